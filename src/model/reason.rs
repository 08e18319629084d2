//! The one closed list of reasons, shared by conditions, Events, audit records and metric labels. docs/reasons.md is
//! made from it; a test keeps it equal.

mod remedy;

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident),+ $(,)?) => {
        /// Why something is as it is. CamelCase, as in a Kubernetes condition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name),+
        }

        impl Reason {
            /// Every reason, for catalogues and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// As it stands in conditions and labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+)),+ }
            }
        }
    };
}

reasons! {
    // The policy object.
    /// The policy is valid, owned by a tenant, and its target was found.
    Accepted,
    /// A field of the policy is wrong; the message names it.
    InvalidPolicy,
    /// The policy's Rego did not pass the gate; the message names file and line.
    InvalidRule,
    /// More than one Tenant selects the policy's namespace.
    TenantAmbiguous,
    /// The tenant may not ask for this action.
    ActionNotAllowed,
    /// The configuration does not list the target's kind.
    TargetKindNotListed,
    /// The cluster does not have the target's kind.
    TargetKindNotServed,
    /// The target does not exist.
    TargetNotFound,
    /// The target has no Pods by any of the ways to find them.
    NoWorkload,
    /// The policy is suspended; its effects are undone.
    Suspended,
    /// The policy is being deleted; its effects are undone.
    Deleted,

    // Sources.
    /// A file or field of the source is wrong; the message names file, line and field.
    InvalidSource,
    /// The PolicySource that the ConfigMap names does not exist, or takes no ConfigMaps.
    SourceNotFound,
    /// The Tenant that owns the source does not exist.
    TenantNotFound,
    /// The ConfigMap lies outside of what its source's tenant may define policies for.
    OutOfScope,
    /// A pin names a revision that is not kept.
    RevisionNotFound,
    /// The revision would remove more than half of its source's policies; it waits for a person.
    MassRemoval,
    /// A policy of a source was edited by hand; the source's text was put back.
    PutBack,
    /// The source's server could not be reached, failed, or did not answer in time.
    SourceUnreachable,
    /// The source's server refused the credentials, or wants some where there are none.
    SourceUnauthorized,
    /// There is no Git repository at the source's address.
    NotARepository,
    /// The repository does not have the source's branch; the message lists branches that it has.
    BranchNotFound,
    /// The commit does not have the source's folder.
    PathNotFound,
    /// The head of the branch does not descend from the accepted commit: its history was rewritten.
    NotDescendant,
    /// A file of the source, all of them together, or the transfer of them is larger than it may be.
    SourceTooLarge,
    /// The engine's copy of the source is damaged, or its disk cannot be written.
    SourceCacheFailed,

    // Readings: why there is none.
    /// The backend answered without a series.
    NoData,
    /// The backend answered with NaN: there were no requests.
    NaN,
    /// The backend answered with an infinity.
    Inf,
    /// The newest sample is older than staleAfter.
    Stale,
    /// The reading rests on fewer requests than minRequests.
    TooFewRequests,
    /// The query answered with several series where one is meant.
    Several,
    /// The backend said that its answer is partial.
    Partial,
    /// The histograms of several Pods have different buckets.
    IncompatibleBuckets,
    /// The backend's answer was not of the kind that was asked for.
    BadAnswer,
    /// The backend refused the query.
    QueryError,
    /// The backend failed or could not be reached.
    BackendError,
    /// The backend did not answer in time.
    Timeout,
    /// The signal is not measured: nothing to measure it on.
    NotMeasured,
    /// The threshold lies at or above the highest finite bucket, so it can never be breached.
    ThresholdAboveBuckets,
    /// Neither the metric's name nor the policy says which unit the signal has.
    UnknownUnit,

    // Verdicts.
    /// The readings are within their thresholds.
    WithinThresholds,
    /// A reading is above its threshold.
    ThresholdExceeded,
    /// The rule's answer is undefined.
    Undefined,
    /// The rule's answer has the wrong shape.
    WrongShape,
    /// The rule failed while it was evaluated.
    EvaluationFailed,
    /// The rule ran longer, or used more, than it may.
    EvaluationLimit,
    /// The rule said "not breached" while a declared signal has no reading.
    SignalMissing,
    /// An exception of the policy covers this moment.
    Excepted,

    // Phases.
    /// The policy never breached, or has recovered.
    Healthy,
    /// A breach began and has not lasted for `duration` yet.
    BreachPending,
    /// The breach lasted for `duration`.
    BreachConfirmed,
    /// The breach ended before `duration` was over.
    BreachEnded,
    /// The breaker stood open for its time and no reading breached since.
    HalfOpen,
    /// The probe's readings were ok; the next step returns.
    ProbeOk,
    /// A reading breached during recovery; everything is taken back.
    ProbeFailed,
    /// Everything is back and ok.
    Recovered,
    /// The probe yields no evidence; everything stays as it is.
    NoEvidence,
    /// There was no usable reading for longer than staleAfter.
    Blind,
    /// Readings are usable.
    Measuring,

    // Claims and effects.
    /// All effects of the policy stand.
    Enforced,
    /// Some effects of the policy do not stand; the message names the slots.
    PartlyEnforced,
    /// The policy wants no effect now.
    NothingToEnforce,
    /// Another policy holds the slot; the message names the winner.
    Overridden,
    /// No other policy holds what this one wants.
    NotOverridden,
    /// The policy only computes and records what it would do.
    DryRun,
    /// The policy only notifies.
    Warn,
    /// No destination of the route has the fallback as its subset or host.
    NoFallbackDestination,
    /// No route could be found for the target.
    NoRoute,
    /// Several routes fit and the policy names none.
    AmbiguousRoute,
    /// The route cannot be reweighted: its weights add up to nothing, or to one, which leaves no share for a probe.
    UnsupportedRoute,
    /// The mode is not in the configuration's list.
    UnknownMode,
    /// The workload's budget of isolated Pods is used up, or none may be isolated at all.
    IsolationBudget,
    /// The budget of new effects a minute is used up.
    EffectBudget,
    /// All Pods are suspect: none is isolated.
    Storm,
    /// A freeze stops new and growing effects.
    Frozen,
    /// Nothing can take the Pod out of service without its controller replacing it.
    NotIsolable,
    /// The Pod's controller will replace it once it is isolated.
    WillBeReplaced,
    /// Somebody else keeps putting the original back; hands off until Healthy.
    Contested,
    /// Nobody interferes with the effects.
    NotContested,
    /// The object under the effect is gone, and the obligation with it.
    ObjectGone,
    /// The API server refused the effect.
    EffectRefused,
    /// The effect could not be made for now and is tried again.
    EffectFailed,
    /// This instance cannot reach the API server: it judges and serves, and starts nothing.
    Detached,

    // Bundles: why one is refused.
    /// The bundle is no readable archive, or its manifest or data are wrong; the message names the file and field.
    BundleInvalid,
    /// The bundle, one of its files or what it unpacks to is larger than it may be.
    BundleTooLarge,
    /// An entry of the bundle's archive has a name that leads out of the bundle.
    PathEscape,
    /// The bundle's archive or the source's folder holds a link, device, submodule or other entry that is no plain file.
    NotAFile,
    /// The bundle's archive holds one file twice.
    DuplicateFile,
    /// The bundle holds content that the engine cannot run: wasm, plans, deltas, protobuf manifests.
    UnsupportedContent,
    /// The bundle's manifest asks for a Rego version that the engine does not have.
    UnsupportedRegoVersion,
    /// Two roots overlap: of one manifest, or of this bundle and another.
    RootsOverlap,
    /// The manifest claims a root that this source may not bring.
    RootForeign,
    /// A module or data of the bundle lies outside the roots of its manifest.
    OutsideRoots,
    /// The bundle must be signed and is not.
    Unsigned,
    /// The bundle was signed, and its signature is gone.
    SignatureStripped,
    /// The bundle's signature file cannot be read.
    SignatureMalformed,
    /// The bundle's signature does not fit its content and key.
    SignatureInvalid,
    /// The bundle is signed by a key that this source does not trust.
    KeyUnknown,
    /// The bundle is signed by a key that was revoked.
    KeyRevoked,
    /// The bundle is signed by a key that had expired when the bundle arrived.
    KeyExpired,
    /// The bundle is signed by another algorithm than its key is for.
    AlgorithmMismatch,
    /// The bundle is signed with a shared secret, which this source refuses.
    SharedSecret,
    /// The bundle is signed for another scope.
    ScopeMismatch,
    /// A file of the bundle is not what was signed.
    FileChanged,
    /// A file that was signed is missing from the bundle.
    FileMissing,
    /// A file of the bundle is not covered by its signature.
    FileNotSigned,
    /// The signature rests on a hash function that is refused.
    WeakHash,
    /// The bundle's manifest has no metadata.sequence, and its source needs one.
    SequenceMissing,
    /// The bundle's sequence is lower than the highest that was accepted.
    SequenceReplayed,
    /// The bundle has the sequence of one that was accepted, and other content.
    SequenceReused,

    // Interventions.
    /// The effect was made.
    Applied,
    /// What was found is back.
    Restored,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Reason {
    /// The reason with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == name)
    }
}
