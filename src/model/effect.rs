//! Effects: what a slot should hold, what it held before, and the record of both.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::policy::{ActionKind, PolicyKey};
use super::reading::PodName;
use super::slot::Slot;

/// A destination of a route; siblings are told apart by all three.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Destination {
    /// `destination.host`.
    pub host: String,
    /// `destination.subset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<String>,
    /// `destination.port.number`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Destination {
    /// Whether a fallback or destination of this name means this one: its subset, else its host.
    pub fn is_called(&self, name: &str) -> bool {
        match &self.subset {
            Some(subset) => subset == name,
            None => self.host == name,
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.subset.as_deref().unwrap_or(&self.host))
    }
}

/// One weight of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    /// Where to.
    pub destination: Destination,
    /// How much; none: not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// What a slot should hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Desired {
    /// Exactly these Pods are out of service.
    Isolated(Vec<PodName>),
    /// This mode.
    Mode(String),
    /// These weights, one per destination of the route.
    Weights(Vec<Weight>),
}

/// What a slot held before the first effect, and must hold again after the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Original {
    /// The Pods that were put out of service, each with how.
    Isolated(Vec<IsolatedPod>),
    /// The mode annotation; none: there was none.
    Mode {
        /// Its value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// The weights as found.
    Weights(Vec<Weight>),
}

/// One isolated Pod and how it was taken out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedPod {
    /// Its name.
    pub name: PodName,
    /// Its uid: a re-created Pod of that name is another one.
    pub uid: String,
    /// How.
    pub by: IsolatedBy,
}

/// How a Pod was taken out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IsolatedBy {
    /// Its readiness gate `policy.trade.io/serving` was set False.
    Gate,
    /// A label that Services select was taken away.
    Label {
        /// The label's key.
        key: String,
        /// The value that was there.
        value: String,
        /// True where the Pod's controller selects it too, so that it was replaced.
        replaced: bool,
    },
}

/// Where an intervention stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum InterventionPhase {
    /// Written down, not yet made.
    Pending,
    /// The effect stands.
    Applied,
    /// Being undone.
    Restoring,
    /// Undone: what was found is back, or the object is gone.
    Restored,
    /// Somebody else keeps reverting it; hands off.
    Contested,
    /// The API server refuses it.
    Failed,
}

/// Who holds a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The policy.
    pub policy: PolicyKey,
    /// Its uid.
    pub uid: String,
    /// The tenant it belongs to.
    pub tenant: String,
    /// The action of the policy that asked.
    pub action: ActionKind,
    /// The episode of the policy (one from leaving Healthy to being Healthy again).
    pub episode: String,
}

/// The durable record of one slot, as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The slot.
    pub slot: Slot,
    /// Who holds it.
    pub holder: Holder,
    /// What was found; none until the effect is under way.
    pub original: Option<Original>,
    /// What should stand.
    pub desired: Desired,
    /// Where it stands.
    pub phase: InterventionPhase,
    /// When the effect was begun or last grew: the budget per minute counts these.
    pub started_at: DateTime<Utc>,
}

/// Records by slot.
pub type Records = BTreeMap<Slot, Record>;
