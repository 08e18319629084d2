//! Effects: what a slot should hold, what it held before, and the record of both.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
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
    /// Earlier begins and growths of the same slot that are still less than a minute old.
    pub earlier_starts: Vec<DateTime<Utc>>,
}

impl Record {
    /// The time span over which begins and growths are counted.
    pub const COUNTED: TimeDelta = TimeDelta::minutes(1);
    /// How many earlier begins and growths are kept; more in a minute than any budget lets happen.
    const MOST_STARTS: usize = 256;

    /// Notes that the effect begins or grows now. Whoever writes the record of a new or growing effect calls this,
    /// so that the budget per minute survives a restart.
    pub fn grow(&mut self, now: DateTime<Utc>) {
        self.earlier_starts.push(self.started_at);
        self.earlier_starts.retain(|start| now.signed_duration_since(*start) < Self::COUNTED);
        let surplus = self.earlier_starts.len().saturating_sub(Self::MOST_STARTS);
        self.earlier_starts.drain(..surplus);
        self.started_at = now;
    }

    /// How many begins and growths lie less than a minute before `now`.
    pub fn starts_at(&self, now: DateTime<Utc>) -> usize {
        let counted = |start: &DateTime<Utc>| now.signed_duration_since(*start) < Self::COUNTED;
        self.earlier_starts.iter().chain([&self.started_at]).filter(|start| counted(start)).count()
    }

    /// Whether the effect stands, or is on its way to.
    pub fn stands(&self) -> bool {
        !matches!(self.phase, InterventionPhase::Restoring | InterventionPhase::Restored)
    }
}

/// Records by slot.
pub type Records = BTreeMap<Slot, Record>;
