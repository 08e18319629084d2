//! Intervention: the durable record of an effect, one per slot, in the namespace of the object that it changes.
//!
//! It is written before the effect, under a resourceVersion guard. Spec holds the obligation (who holds the slot, what
//! was found, what is to stand); status how far it got. Only the engine writes it.

mod wire;

use chrono::{DateTime, Utc};
use kube::api::ObjectMeta;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::conditions::Condition;
use super::marks;
use super::policy_spec::TargetRef;
use super::schema;
use crate::model::effect::{self, InterventionPhase, Record};
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::slot::Slot;

pub use wire::{DesiredSpec, HolderSpec, IsolatedPodSpec, OriginalMode, OriginalSpec, RouteSpec, SlotSpec, WeightSpec};

/// How many past episodes an Intervention remembers.
pub const EPISODES: usize = 10;

/// The spec of an Intervention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "policy.trade.io",
    version = "v1alpha2",
    kind = "Intervention",
    plural = "interventions",
    shortname = "iv",
    category = "policy",
    namespaced,
    status = "InterventionStatus",
    derive = "PartialEq",
    doc = "The record of one effect: who holds the slot, what was found, what was set, and how it was undone. Written by the engine only.",
    printcolumn(name = "Slot", type_ = "string", json_path = ".spec.slot.kind"),
    printcolumn(name = "Policy", type_ = "string", json_path = ".spec.holder.name"),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.holder.action"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Started", type_ = "date", json_path = ".spec.startedAt"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".spec.reason", priority = 1),
    printcolumn(name = "Reverts", type_ = "integer", json_path = ".status.reverts", priority = 1),
    printcolumn(name = "Actor", type_ = "string", json_path = ".spec.actor.name", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct InterventionSpec {
    /// What is held.
    pub slot: SlotSpec,
    /// Who holds it.
    pub holder: HolderSpec,
    /// The target of the holder's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetRef>,
    /// What the slot held before the first effect, and holds again after the last; absent until an effect is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalSpec>,
    /// What the slot is to hold.
    pub desired: DesiredSpec,
    /// uid of the object that is changed, where it is a single one: one that was created anew is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_uid: Option<String>,
    /// Which instance of the engine wrote this.
    pub actor: Actor,
    /// When the effect was begun or last grew.
    #[schemars(schema_with = "schema::time")]
    pub started_at: DateTime<Utc>,
    /// When it began and grew before that, as far as it is less than a minute ago: budgets count these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::times")]
    pub earlier_starts: Vec<DateTime<Utc>>,
    /// Why the policy asked for it, as one word of a closed list.
    pub reason: String,
}

/// The instance of the engine that acts, fenced by its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// Name of the instance.
    pub name: String,
    /// How often the Lease had changed hands when it took over; a lower epoch never overwrites a higher one.
    pub epoch: i64,
}

/// The status of an Intervention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterventionStatus {
    /// Pending (written down, not yet made), Applied, Restoring, Restored, Contested or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<InterventionPhase>,
    /// Why it stands there, as one word of a closed list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the effect was first seen to stand in this episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub applied_at: Option<DateTime<Utc>>,
    /// When it was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub restored_at: Option<DateTime<Utc>>,
    /// How often others wrote over it in this episode.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reverts: u32,
    /// When it is asserted again after a revert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub next_assert_at: Option<DateTime<Utc>>,
    /// What was last seen to stand in this episode; another value than the desired one is an intent not yet reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<DesiredSpec>,
    /// The metadata.generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last ten episodes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<Episode>,
    /// Ready, Contested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// One finished episode of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Episode {
    /// Name of the episode.
    pub episode: String,
    /// `namespace/name` of the policy that held the slot last.
    pub policy: String,
    /// When the effect was first seen to stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub applied_at: Option<DateTime<Utc>>,
    /// When it was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub restored_at: Option<DateTime<Utc>>,
    /// What was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<OriginalSpec>,
    /// What was set last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<DesiredSpec>,
}

impl InterventionStatus {
    /// Adds a finished episode; the oldest goes once there are more than [`EPISODES`].
    pub fn record(&mut self, episode: Episode) {
        self.episodes.push(episode);
        let surplus = self.episodes.len().saturating_sub(EPISODES);
        self.episodes.drain(..surplus);
    }
}

/// The name that the Intervention of a slot has: `weights-core-trading-1f0c9a3e`. The same for the same slot, at most
/// 63 characters, distinct for distinct slots of a namespace.
pub fn name_of(slot: &Slot) -> String {
    // The derived serialisation of a slot is total and stable: kind first, then its fields in order.
    let canonical = serde_json::to_vec(slot).expect("a slot is made of strings");
    let digest = Sha256::digest(&canonical);
    let hash = format!("{:08x}", digest.iter().take(4).fold(0_u32, |hash, byte| (hash << 8) | u32::from(*byte)));
    let object = match slot {
        Slot::Isolation { workload } => &workload.name,
        Slot::Mode { target, .. } => &target.name,
        Slot::Weights { route } => &route.virtual_service,
    };
    let kind = slot.kind();
    let room = 63 - kind.len() - hash.len() - 2;
    // Names of custom objects may hold what a DNS label may not.
    let object: String = object
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(room)
        .collect();
    match object.trim_matches('-') {
        "" => format!("{kind}-{hash}"),
        object => format!("{kind}-{object}-{hash}"),
    }
}

impl Intervention {
    /// The Intervention that says what `record` says, without status. The record's phase belongs into status.
    pub fn of(record: &Record, target: Option<TargetRef>, actor: Actor, reason: Reason) -> Self {
        let spec = InterventionSpec {
            slot: (&record.slot).into(),
            holder: (&record.holder).into(),
            target,
            original: record.original.as_ref().map(Into::into),
            desired: (&record.desired).into(),
            object_uid: None,
            actor,
            started_at: record.started_at,
            earlier_starts: record.earlier_starts.clone(),
            reason: reason.as_str().to_owned(),
        };
        let labels = [(marks::MANAGED_BY_LABEL, marks::FIELD_MANAGER), (marks::SLOT_LABEL, record.slot.kind())];
        Self {
            metadata: ObjectMeta {
                name: Some(name_of(&record.slot)),
                namespace: Some(record.slot.namespace().to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            spec,
            status: None,
        }
    }

    /// The record as decisions see it. An error names the field that a foreign hand broke.
    pub fn record(&self) -> Result<Record, Problem> {
        let slot: Slot = (&self.spec.slot).try_into()?;
        let original: Option<effect::Original> = self.spec.original.as_ref().map(TryInto::try_into).transpose()?;
        let record = Record {
            holder: (&self.spec.holder).try_into()?,
            original,
            desired: (&self.spec.desired).try_into()?,
            phase: self.phase(),
            started_at: self.spec.started_at,
            earlier_starts: self.spec.earlier_starts.clone(),
            slot,
        };
        if self.namespace().as_deref() != Some(record.slot.namespace()) {
            return Err(Problem::expected("spec.slot", "another namespace than the Intervention's", "the same"));
        }
        Ok(record)
    }

    /// Where it stands. An intent that status does not know of yet is pending, whatever the phase of the one before.
    pub fn phase(&self) -> InterventionPhase {
        let Some(status) = &self.status else { return InterventionPhase::Pending };
        let is_current = match status.phase {
            Some(InterventionPhase::Applied) => status.applied.as_ref() == Some(&self.spec.desired),
            Some(InterventionPhase::Restored | InterventionPhase::Failed) => {
                status.observed_generation == self.metadata.generation
            }
            _ => true,
        };
        status.phase.filter(|_| is_current).unwrap_or(InterventionPhase::Pending)
    }
}

#[cfg(test)]
mod tests;
