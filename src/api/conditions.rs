//! Conditions: how status says what holds, in the shape that kubectl and people's tools know.
//!
//! `lastTransitionTime` moves with the status alone, so that "since when" stays true while messages change.

use chrono::{DateTime, SubsecRound, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use crate::model::reason::Reason;

/// The types of condition that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConditionType {
    /// Valid, owned, target found.
    Accepted,
    /// Its effects stand.
    Enforced,
    /// The readings are above their thresholds.
    Breached,
    /// There was no usable reading for longer than `staleAfter`.
    Blind,
    /// Another policy holds what this one wants.
    Overridden,
    /// Somebody else keeps reverting its effects.
    Contested,
    /// It is suspended; its effects are undone.
    Suspended,
    /// The summary that `kubectl wait` waits for.
    Ready,
}

impl ConditionType {
    /// As it stands in `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Enforced => "Enforced",
            Self::Breached => "Breached",
            Self::Blind => "Blind",
            Self::Overridden => "Overridden",
            Self::Contested => "Contested",
            Self::Suspended => "Suspended",
            Self::Ready => "Ready",
        }
    }
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// One condition of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is told about, such as Accepted, Enforced, Breached, Blind, Ready.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Why, as one word of a closed list.
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
    /// The metadata.generation that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Since when status is what it is.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: DateTime<Utc>,
}

impl Condition {
    /// A condition that came to be `now` (kept in whole seconds, as Kubernetes does).
    pub fn new(
        kind: ConditionType,
        status: impl Into<ConditionStatus>,
        reason: Reason,
        message: impl Into<String>,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            kind: kind.as_str().to_owned(),
            status: status.into(),
            reason: reason.as_str().to_owned(),
            message: message.into(),
            observed_generation: None,
            last_transition_time: now.trunc_subsecs(0),
        }
    }

    /// The same, about this metadata.generation.
    pub fn of_generation(mut self, generation: i64) -> Self {
        self.observed_generation = Some(generation);
        self
    }
}

/// Puts `new` in its place among `conditions`: the one of its type is replaced, its transition time kept if the status
/// is the same. Conditions are kept in order of type. True if anything but the time would differ.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|condition| condition.kind == new.kind) else {
        conditions.push(new);
        conditions.sort_by(|a, b| a.kind.cmp(&b.kind));
        return true;
    };
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time;
    }
    let changed = *old != new;
    *old = new;
    changed
}

/// The condition of this type.
pub fn get(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == kind.as_str())
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn blind(status: bool, message: &str, at: DateTime<Utc>) -> Condition {
        Condition::new(ConditionType::Blind, status, Reason::Blind, message, at).of_generation(3)
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let start = DateTime::<Utc>::UNIX_EPOCH;
        let later = start + TimeDelta::seconds(90);
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, blind(true, "no data", start)));
        assert!(!set(&mut conditions, blind(true, "no data", later)));
        assert!(set(&mut conditions, blind(true, "still no data", later)));
        assert_eq!(get(&conditions, ConditionType::Blind).unwrap().last_transition_time, start);
        assert!(set(&mut conditions, blind(false, "", later)));
        let condition = get(&conditions, ConditionType::Blind).unwrap();
        assert_eq!((condition.last_transition_time, condition.observed_generation), (later, Some(3)));
    }

    #[test]
    fn conditions_stand_in_order_of_type_whatever_comes_first() {
        let now = DateTime::<Utc>::UNIX_EPOCH;
        let mut conditions = Vec::new();
        for kind in [ConditionType::Ready, ConditionType::Accepted, ConditionType::Blind] {
            set(&mut conditions, Condition::new(kind, true, Reason::Accepted, "", now));
        }
        let kinds: Vec<_> = conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Accepted", "Blind", "Ready"]);
    }
}
