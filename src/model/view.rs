//! What the engine publishes of itself: the HTTP surface, `explain` and the state gauges answer from a [`View`] and
//! from nothing else. Plain values; who fills it and who serves it do not know each other.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::effect::InterventionPhase;
use super::phase::{Phase, Stage};
use super::policy::{PolicyKey, TargetRef};
use super::quantity::Threshold;
use super::reading::{PodName, Signal, SignalName};
use super::reason::Reason;
use super::slot::Slot;
use super::tenant::Tenant;
use super::verdict::{Outcome, Severity};

/// The mode of a target that no policy has changed.
pub const NORMAL: &str = "normal";

/// Everything that this instance knows and shows. Cheap to clone: the maps hold shared entries.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Whether this instance acts or stands by.
    pub role: Role,
    /// False until the caches are filled: before that "no policy" may just mean "not read yet".
    pub synced: bool,
    /// Since when the API server cannot be reached; what is shown has that age.
    pub detached_since: Option<DateTime<Utc>>,
    /// Governed targets.
    pub targets: Arc<BTreeMap<TargetKey, Arc<TargetView>>>,
    /// Policies, the refused ones too.
    pub policies: BTreeMap<PolicyKey, Arc<PolicyView>>,
    /// Policies that were written and never came to be, since no text of them was good: by tenant and reason.
    pub unmade: BTreeMap<(String, Reason), u32>,
    /// Where the interventions stand.
    pub interventions: BTreeMap<Slot, InterventionPhase>,
}

/// Whether an instance acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    /// Holds the lease: evaluates, plans, acts, reports.
    Actor,
    /// Watches, serves, and waits for the lease.
    #[default]
    Standby,
}

/// Which target. Ordered so that those of one kind and name, of whatever API group, lie side by side.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetKey {
    /// Its namespace.
    pub namespace: String,
    /// `OrderService`.
    pub kind: String,
    /// `core-trading`.
    pub name: String,
    /// `trade.io/v1`.
    pub api_version: String,
}

impl TargetKey {
    /// The key of a policy's target in this namespace.
    pub fn of(namespace: &str, target: &TargetRef) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: target.kind.clone(),
            name: target.name.clone(),
            api_version: target.api_version.clone(),
        }
    }
}

impl fmt::Display for TargetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// How a governed target runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// `normal`, `cache-only`, …
    pub mode: String,
    /// Since when; none where the mode never changed.
    pub since: Option<DateTime<Utc>>,
    /// The policies that ask for this mode, the holder first; empty while it is [`NORMAL`].
    pub policies: Vec<PolicyKey>,
}

/// What became of a policy, as its tenant counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Processing {
    /// Judged at its last turn.
    Processed,
    /// Accepted, and not judged yet.
    Waiting,
    /// Not valid, or not allowed: its author must change it.
    Rejected,
    /// Valid, and could not be judged.
    Error,
    /// Switched off by its author.
    Suspended,
}

impl Processing {
    /// Every one, for catalogues.
    pub const ALL: [Self; 5] = [Self::Processed, Self::Waiting, Self::Rejected, Self::Error, Self::Suspended];

    /// As in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Waiting => "waiting",
            Self::Rejected => "rejected",
            Self::Error => "error",
            Self::Suspended => "suspended",
        }
    }
}

/// One policy as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyView {
    /// Its tenant.
    pub tenant: Arc<Tenant>,
    /// What it governs; none where the object cannot be read that far.
    pub target: Option<Arc<TargetRef>>,
    /// What became of it.
    pub processing: Processing,
    /// Why.
    pub reason: Reason,
    /// Its phase.
    pub phase: Phase,
    /// The stage, while Recovering.
    pub stage: Option<Stage>,
    /// Since when it is in this phase.
    pub since: Option<DateTime<Utc>>,
    /// Whether, and why, it is Blind.
    pub blind: Option<Reason>,
    /// Its last verdict.
    pub verdict: Option<(Outcome, Severity)>,
    /// When it was judged last.
    pub judged_at: Option<DateTime<Utc>>,
    /// What was measured last, and what it is held against.
    pub signals: BTreeMap<SignalName, SignalView>,
    /// Pods held responsible.
    pub suspects: Vec<PodName>,
    /// The whole explanation, as `explain` prints it.
    pub explanation: Explanation,
}

/// An explanation that is put together when somebody asks: most policies are never asked about.
#[derive(Clone)]
pub struct Explanation(Arc<dyn Fn() -> serde_json::Value + Send + Sync>);

impl Explanation {
    /// The explanation that `explain` gives.
    pub fn new(explain: impl Fn() -> serde_json::Value + Send + Sync + 'static) -> Self {
        Self(Arc::new(explain))
    }

    /// As JSON, for machines and for `explain`.
    pub fn to_json(&self) -> serde_json::Value {
        (self.0)()
    }
}

impl fmt::Debug for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Explanation")
    }
}

impl PartialEq for Explanation {
    /// The same explanation, not an equal one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// One signal's last answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalView {
    /// The reading, or why there is none.
    pub reading: Signal,
    /// The threshold, if the policy names one.
    pub threshold: Option<Threshold>,
}
