//! What a person does about each reason.

use super::Reason;

impl Reason {
    /// What to do, in a sentence or two; "Nothing" where the engine goes on by itself.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::InvalidPolicy => {
                "Correct the field that the message names. The last valid text stays in force until then."
            }
            Self::InvalidRule => {
                "Correct the module at the file and line of the message; `opa check` and `tradeguard eval` say the same \
                 at the desk. The last valid rule stays in force until then."
            }
            Self::TenantAmbiguous => {
                "Change the `namespaceSelector` of the Tenants in the message so that one of them selects the namespace."
            }
            Self::ActionNotAllowed => {
                "Use another action, or have the tenant's `allowedActions` extended by whoever runs the engine."
            }
            Self::TargetKindNotListed => {
                "Have the kind added to `targets` of the engine's configuration and install.yaml made anew, so that \
                 the engine may read it."
            }
            Self::TargetKindNotServed => {
                "Install the target's CustomResourceDefinition, or correct `targetRef`. The engine looks again by itself."
            }
            Self::TargetNotFound => "Create the target, or correct `targetRef`. It lies in the policy's namespace.",
            Self::NoWorkload => {
                "See that the target's Pods run; if they do, name their labels in `workload.podSelector`."
            }
            Self::Suspended => "Set `suspend: false` when the policy is to work again.",
            Self::Deleted => "Nothing; the policy goes when its effects are undone.",
            Self::NoData => {
                "See that the metric exists for this workload under the template's labels: send the query of status by \
                 hand. For services without traffic at times, choose `onNoData`."
            }
            Self::NaN => "Nothing if there was no traffic; else look at the query, which divides by zero.",
            Self::Inf => "Look at the query and the metric: an infinity is no measurement.",
            Self::Stale => {
                "See why the service or its scraping stopped, or raise `staleAfter` above the scrape interval."
            }
            Self::TooFewRequests => {
                "Nothing; or lower `minRequests`, or widen `window`, for a service with little traffic."
            }
            Self::Several => "Aggregate the query to one series, for example with `sum` or `max`.",
            Self::Partial => "Repair the backend's stores; a part of the data is missing.",
            Self::IncompatibleBuckets => "Give all Pods of the workload the same histogram buckets.",
            Self::BadAnswer => {
                "See that the backend's `url` is that of a Prometheus API and not of a login page or a proxy; for a \
                 query of your own, that it gives a vector or a number."
            }
            Self::QueryError => "Send the query of status to the backend by hand; it says what is wrong with it.",
            Self::BackendError => "See that the backend runs and can be reached. What stands, stands meanwhile.",
            Self::Timeout => "Make the backend faster or the query cheaper, or raise the backend's `timeout`.",
            Self::NotMeasured => {
                "Nothing right after a start. Else see that the workload has Pods and that a backend is configured."
            }
            Self::ThresholdAboveBuckets => {
                "Lower the threshold below the highest finite bucket, or give the histogram higher buckets."
            }
            Self::UnknownUnit => "Declare the signal's `unit`, or use a metric whose name ends in one.",
            Self::ThresholdExceeded => "Look at the service: this is what the policy is for.",
            Self::Undefined => "Give the rule a value for every input, for example with a `default`.",
            Self::WrongShape => "Let the rule answer as docs/schemas says; the message names the field.",
            Self::EvaluationFailed => {
                "Correct the rule at the line of the message; builtins fail on values they do not expect."
            }
            Self::EvaluationLimit => "Make the rule cheaper: fewer nested iterations, smaller comprehensions.",
            Self::SignalMissing => "See why the signal has no reading, or mark it `optional`.",
            Self::Excepted => "Nothing; the exception ends by itself.",
            Self::BreachPending => "Look at the service before `duration` is over.",
            Self::BreachConfirmed => "Look at the service; `kubectl get interventions` says what was done about it.",
            Self::BreachEnded => "Nothing. If it happens often, the threshold lies within what is usual.",
            Self::HalfOpen => "Nothing; a part of the traffic comes back as a probe.",
            Self::ProbeOk => "Nothing; the next part comes back.",
            Self::ProbeFailed => "Look at the service: it is not well yet. The next try comes after twice the time.",
            Self::NoEvidence => {
                "See that what came back gets traffic and has readings of its own; lower `minRequests` if it is little. \
                 Suspending or deleting the policy undoes everything without evidence."
            }
            Self::Blind => "See the reason of the condition Blind: why there is no reading.",
            Self::PartlyEnforced => "See each slot's reason in the message.",
            Self::Overridden => {
                "Nothing if the winner is meant to win; else settle with its owner: class, then the tenant's priority, \
                 then the newest text decides."
            }
            Self::DryRun | Self::Warn => "Set `enforcementAction: enforce` on policy and Tenant when it is to act.",
            Self::NoFallbackDestination => {
                "Add a destination to the route whose subset, else host, is the fallback; or use another fallback."
            }
            Self::NoRoute => {
                "Name the VirtualService and route in the action's config, or leave the weights to others."
            }
            Self::AmbiguousRoute => "Name the VirtualService and route in the action's config.",
            Self::UnsupportedRoute => "Give the route's destinations weights that add up to 100.",
            Self::UnknownMode => "Use a mode of the configuration, or have it added to `modes`.",
            Self::IsolationBudget => {
                "Nothing if the rest can bear it; else raise `maxIsolatedPercent` within what tenant and engine allow."
            }
            Self::EffectBudget => "Nothing; it begins when the minute is over. If that is too slow, raise the budget.",
            Self::Storm => "Look at what all Pods share: isolating some would only load the others.",
            Self::Frozen => "Set the ConfigMap `tradeguard-freeze` to `off` when the engine may act again.",
            Self::NotIsolable => "Give the Pods the readiness gate `policy.trade.io/serving`.",
            Self::WillBeReplaced => "Nothing, or give the Pods the readiness gate `policy.trade.io/serving`.",
            Self::Contested => {
                "Find who writes the object (its managedFields say) and take one of the two out: a GitOps tool needs to \
                 ignore the field."
            }
            Self::ObjectGone => "Nothing; there is nothing left to undo.",
            Self::EffectRefused => {
                "See what the API server says in the message: mostly a missing right or another admission webhook."
            }
            Self::EffectFailed => "Nothing at first, it is tried again; if it stays, see the message.",
            Self::Detached => {
                "See that the API server can be reached from this node. Another instance acts, if one can."
            }
            Self::InvalidSource => {
                "Correct the file at the line of the message. The last good revision stays in force until then."
            }
            Self::SourceNotFound => "Correct the source that the ConfigMap names, or create it.",
            Self::TenantNotFound => "Create the Tenant, or correct `spec.tenant` of the source.",
            Self::OutOfScope => {
                "Move the ConfigMap into a namespace of its tenant; it defines policies for its own alone."
            }
            Self::RevisionNotFound => "Pin a revision that the source's status lists, or take the pin away.",
            Self::MassRemoval => {
                "If that is meant, take it with `tradeguard source accept`; else put back what the revision left out."
            }
            Self::PutBack => "Change the policy where it comes from, in its source.",
            Self::SourceUnreachable => {
                "See that the server runs and can be reached from the engine. What was accepted stays in force; it is \
                 tried again by itself."
            }
            Self::SourceUnauthorized => {
                "Put credentials that may read the repository into the file that the configuration's `gitCredentials` names; no restart is needed."
            }
            Self::NotARepository => "Correct the `url` of the source.",
            Self::BranchNotFound => {
                "Correct the `branch` of the source, or push it again. What was accepted stays in force."
            }
            Self::PathNotFound => "Correct the `path` of the source, or push a commit that has the folder.",
            Self::NotDescendant => {
                "Find out who rewrote the branch. If it was meant, `tradeguard source accept`; else push the old history \
                 back. What was accepted stays in force until then."
            }
            Self::SourceTooLarge => "Make it smaller, or keep policies in a repository or folder of their own.",
            Self::SourceCacheFailed => {
                "Nothing if it passes: the copy is fetched anew. Else see that the engine's disk has room and is writable."
            }
            Self::BundleInvalid => "Build the bundle anew with `opa build`; the message names the file and field.",
            Self::BundleTooLarge => "Make the bundle smaller, or have its source's limits raised.",
            Self::PathEscape | Self::DuplicateFile => {
                "Build the bundle with `opa build` rather than with an archiver; if that did not make it, find out who did."
            }
            Self::NotAFile => {
                "Replace it by a plain file. Build bundles with `opa build` rather than with an archiver; if that did not \
                 make it, find out who did."
            }
            Self::UnsupportedContent => "Build the bundle as Rego: `opa build` without a target of wasm or plan.",
            Self::UnsupportedRegoVersion => "Write the modules in Rego v1 and build the bundle anew.",
            Self::RootsOverlap => "Give each bundle roots of its own in its `.manifest`.",
            Self::RootForeign => "Use roots that the source may bring, or have the source allow these.",
            Self::OutsideRoots => "Move the module or data below the manifest's roots, or name its root there.",
            Self::Unsigned => "Sign the bundle: `opa build --signing-key`, or `opa sign`.",
            Self::SignatureStripped | Self::SignatureMalformed | Self::FileChanged | Self::FileMissing => {
                "Publish the bundle as it was built and signed. If it was, somebody changed it on the way: find out who."
            }
            Self::FileNotSigned => "Sign the bundle again after its last change.",
            Self::SignatureInvalid => "Sign with the key whose public part the source trusts, after the last change.",
            Self::KeyUnknown => "Add the public key to the source's trust, or sign with a key that is there.",
            Self::KeyRevoked | Self::KeyExpired => "Sign the bundle with a key that is valid.",
            Self::AlgorithmMismatch => "Sign with the algorithm that the source names for the key.",
            Self::SharedSecret => "Sign with a key pair (Ed25519, RS256, ES256).",
            Self::ScopeMismatch => "Sign for the scope that the source expects.",
            Self::WeakHash => "Sign anew with a current version of opa.",
            Self::SequenceMissing => "Set `metadata.sequence` in the bundle's manifest, one higher with each release.",
            Self::SequenceReplayed | Self::SequenceReused => {
                "Publish with a higher `metadata.sequence`; to go back, pin the revision at the source."
            }
            Self::Accepted
            | Self::WithinThresholds
            | Self::Healthy
            | Self::Recovered
            | Self::Measuring
            | Self::Enforced
            | Self::NothingToEnforce
            | Self::NotOverridden
            | Self::NotContested
            | Self::Applied
            | Self::Restored => "Nothing.",
        }
    }
}
