//! What a policy asks for: as written ([`Draft`]), and checked ([`Policy`]).
//!
//! A draft comes from a custom resource of any kind and version; `decide::validate` makes a policy of it. Everything
//! after that works on policies only, so nothing else meets a malformed duration or an unknown action.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::quantity::{Percent, Threshold, Unit};
use super::reading::{PodName, SignalName};

/// The kinds of policy that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PolicyKind {
    /// Latency quantiles over a duration.
    LatencyBudgetPolicy,
    /// Named signals and a rule of the tenant's own.
    GovernancePolicy,
}

impl PolicyKind {
    /// Every kind, for catalogues.
    pub const ALL: [Self; 2] = [Self::LatencyBudgetPolicy, Self::GovernancePolicy];

    /// The Kubernetes kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LatencyBudgetPolicy => "LatencyBudgetPolicy",
            Self::GovernancePolicy => "GovernancePolicy",
        }
    }

    /// The kind of this name.
    pub fn parse(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|candidate| candidate.as_str() == kind)
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which policy: kind, namespace, name. The uid is kept beside it where a re-creation must be noticed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyKey {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where a policy's text comes from. Among the policies of core tenants, Git goes before the rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// A commit of the tenant's repository.
    Git,
    /// An object that was applied by hand, or a ConfigMap.
    #[default]
    Cluster,
}

/// The object under governance, in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// `trade.io/v1`.
    pub api_version: String,
    /// `OrderService`.
    pub kind: String,
    /// `core-trading`.
    pub name: String,
}

/// Whether a policy acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Enforcement {
    /// Computes and records what it would do.
    DryRun,
    /// Notifies only.
    Warn,
    /// Acts.
    #[default]
    Enforce,
}

/// What happens to the clock when a working backend has no data. It never changes the verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnNoData {
    /// The clock stands.
    #[default]
    Hold,
    /// The clock runs as if the signal were breached.
    Breach,
    /// The clock runs as if the signal were ok.
    Recover,
}

/// The actions that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionKind {
    /// Isolation, mode and, where there is a route, weights.
    CircuitBreaker,
    /// Isolation of a workload's abnormal Pods.
    IsolatePods,
    /// The mode of the target.
    Mode,
    /// The weights of a VirtualService route.
    RouteWeight,
    /// An event to a sink of the configuration.
    Notify,
}

impl ActionKind {
    /// Every action.
    pub const ALL: [Self; 5] = [Self::CircuitBreaker, Self::IsolatePods, Self::Mode, Self::RouteWeight, Self::Notify];

    /// As written in a policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CircuitBreaker => "circuit-breaker",
            Self::IsolatePods => "isolate-pods",
            Self::Mode => "mode",
            Self::RouteWeight => "route-weight",
            Self::Notify => "notify",
        }
    }

    /// The action of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy as written, before anything was checked: texts stay texts. Field names are those of the custom
/// resource, so that a problem's path can be read off.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Which policy.
    pub key: PolicyKey,
    /// Its uid; empty for a policy from a file.
    pub uid: String,
    /// metadata.generation; 0 for a policy from a file.
    pub generation: i64,
    /// When its spec was last written: orders lab policies.
    pub changed_at: DateTime<Utc>,
    /// Where its text comes from.
    pub origin: Origin,
    /// `spec.targetRef`.
    pub target_ref: TargetRef,
    /// `spec.suspend`.
    pub suspend: bool,
    /// `spec.enforcementAction`.
    pub enforcement: Enforcement,
    /// `spec.interval`, default 10s.
    pub interval: Option<String>,
    /// `spec.window`, default 1m.
    pub window: Option<String>,
    /// `spec.staleAfter`, default 1m.
    pub stale_after: Option<String>,
    /// `spec.onNoData`.
    pub on_no_data: OnNoData,
    /// `spec.minRequests`, default 10.
    pub min_requests: Option<u64>,
    /// `spec.thresholds.duration`.
    pub duration: String,
    /// `spec.thresholds.recovery`, default: `duration`.
    pub recovery: Option<String>,
    /// What is measured and held against what.
    pub signals: Vec<DraftSignal>,
    /// `spec.signal.template`, for quantile signals.
    pub signal_template: Option<String>,
    /// `spec.signal.backend`.
    pub backend: Option<String>,
    /// `spec.workload.podSelector.matchLabels`.
    pub pod_selector: Option<BTreeMap<String, String>>,
    /// `spec.exceptions`.
    pub exceptions: Vec<DraftException>,
    /// `spec.actions`.
    pub actions: Vec<DraftAction>,
    /// `spec.rule`, of a GovernancePolicy.
    pub rule: Option<OwnRule>,
}

/// A signal as written. `path` is its field (`spec.thresholds.p99`, `spec.signals[0]`).
#[derive(Clone, Debug, PartialEq)]
pub struct DraftSignal {
    /// Field path of the signal.
    pub path: String,
    /// Its name.
    pub name: SignalName,
    /// The quantile, for a signal measured from a template's buckets.
    pub quantile: Option<f64>,
    /// The policy's own query.
    pub query: Option<String>,
    /// The unit that the query's answers have; else the metric's suffix tells.
    pub unit: Option<String>,
    /// The threshold as written; a GovernancePolicy's rule may do without.
    pub threshold: Option<String>,
    /// Whether the rule may say "not breached" without it.
    pub optional: bool,
}

/// An exception as written.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftException {
    /// Pods that are never suspects.
    pub pods: Vec<PodName>,
    /// Start of a time span in which the policy does not move (RFC 3339).
    pub from: Option<String>,
    /// End of that span.
    pub until: Option<String>,
    /// Why.
    pub reason: String,
    /// When the exception itself ends (RFC 3339).
    pub expires: String,
}

/// An action as written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DraftAction {
    /// `type`.
    pub kind: String,
    /// `config.timeout`.
    pub timeout: Option<String>,
    /// `config.fallback`.
    pub fallback: Option<String>,
    /// `config.mode`.
    pub mode: Option<String>,
    /// `config.maxIsolatedPercent`.
    pub max_isolated_percent: Option<i64>,
    /// `config.minHealthy`.
    pub min_healthy: Option<i64>,
    /// `config.virtualService`.
    pub virtual_service: Option<String>,
    /// `config.route`.
    pub route: Option<String>,
    /// `config.destination`: subset, else host, that the whole weight goes to.
    pub destination: Option<String>,
    /// `config.weight`: share in percent that goes there.
    pub weight: Option<i64>,
    /// `config.sink`.
    pub sink: Option<String>,
    /// `config.halfOpen.initialWeightPercent`.
    pub probe_percent: Option<i64>,
}

/// A rule of the tenant's own, from a module inside the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnRule {
    /// Rego v1 source.
    pub module: String,
    /// `data.<package>.<rule>`.
    pub entrypoint: String,
}

/// A policy whose every field was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Which policy.
    pub key: PolicyKey,
    /// Its uid.
    pub uid: String,
    /// metadata.generation.
    pub generation: i64,
    /// When its spec was last written.
    pub changed_at: DateTime<Utc>,
    /// Where its text comes from.
    pub origin: Origin,
    /// What it governs.
    pub target_ref: TargetRef,
    /// Whether its effects are to be undone.
    pub suspend: bool,
    /// Whether it acts.
    pub enforcement: Enforcement,
    /// How often it is judged.
    pub interval: Duration,
    /// The time span a reading covers.
    pub window: Duration,
    /// Older samples are no reading; a longer gap makes the policy Blind.
    pub stale_after: Duration,
    /// What no data does to the clock.
    pub on_no_data: OnNoData,
    /// Fewer requests are no reading (unchecked where no count is to be had).
    pub min_requests: u64,
    /// How long a breach must last.
    pub duration: Duration,
    /// How long each step of recovery must be ok.
    pub recovery: Duration,
    /// What is measured.
    pub signals: BTreeMap<SignalName, SignalSpec>,
    /// The signal template by name; none: the tenant's, else the configuration's.
    pub signal_template: Option<String>,
    /// The backend by name; none: the configuration's default.
    pub backend: Option<String>,
    /// `spec.workload.podSelector`.
    pub pod_selector: Option<BTreeMap<String, String>>,
    /// Pods and time spans left out.
    pub exceptions: Vec<Exception>,
    /// What to do while Active; empty: findings only.
    pub actions: Vec<Action>,
    /// Who decides.
    pub rule: RuleRef,
}

/// How one signal is measured, and what it is held against.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalSpec {
    /// Where the value comes from.
    pub source: SignalSource,
    /// The threshold, if the policy names one.
    pub threshold: Option<Threshold>,
    /// Whether "not breached" may be said without it.
    pub optional: bool,
}

/// Where a signal's value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalSource {
    /// A quantile (0 to 1, exclusive) of the template's histogram.
    Quantile(f64),
    /// A query of the policy's own; the unit if declared or told by the metric's name.
    Query {
        /// PromQL, as written.
        query: String,
        /// Unit of its answers.
        unit: Unit,
    },
}

/// Which rule judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleRef {
    /// The shipped latency rule.
    LatencyBudget,
    /// The policy's own.
    Own(OwnRule),
}

/// Something left out, with reason and expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Pods that are never suspects.
    pub pods: Vec<PodName>,
    /// The policy does not move between these.
    pub span: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// Why.
    pub reason: String,
    /// When the exception itself ends.
    pub expires: DateTime<Utc>,
}

/// A checked action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Isolation, mode and weights.
    CircuitBreaker {
        /// Least time open.
        timeout: Duration,
        /// Mode, and subset or host that the traffic goes to.
        fallback: String,
        /// How many Pods may be isolated.
        isolation: IsolationLimits,
        /// Which route, if the policy names one.
        route: RouteRef,
        /// The share of the recorded weight that returns first.
        probe: Percent,
    },
    /// Isolation alone.
    IsolatePods(IsolationLimits),
    /// Mode alone.
    Mode(String),
    /// Weights alone.
    RouteWeight {
        /// Which route.
        route: RouteRef,
        /// Subset, else host, of the destination.
        destination: String,
        /// Its share of the total while Active.
        weight: Percent,
    },
    /// An event to this sink of the configuration.
    Notify {
        /// Name of the sink.
        sink: String,
    },
}

impl Action {
    /// Which action it is.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::CircuitBreaker { .. } => ActionKind::CircuitBreaker,
            Self::IsolatePods(_) => ActionKind::IsolatePods,
            Self::Mode(_) => ActionKind::Mode,
            Self::RouteWeight { .. } => ActionKind::RouteWeight,
            Self::Notify { .. } => ActionKind::Notify,
        }
    }
}

/// How many Pods of a workload an action may isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolationLimits {
    /// At most this share of the workload, rounded down.
    pub max_percent: Percent,
    /// At least this many Pods stay ready and in service.
    pub min_healthy: usize,
}

impl Default for IsolationLimits {
    fn default() -> Self {
        Self { max_percent: Percent::DEFAULT_MAX_ISOLATED, min_healthy: 1 }
    }
}

/// Which VirtualService route an action names; both absent: found from the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteRef {
    /// Name of the VirtualService in the policy's namespace.
    pub virtual_service: Option<String>,
    /// Name of the http route.
    pub route: Option<String>,
}
