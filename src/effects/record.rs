//! The Intervention record: reading it, and writing it under a resourceVersion guard before and after an effect.
//!
//! Spec is the intent (who holds the slot, what was found, what is to stand), status what was reached. An intent whose
//! effect may or may not have been made is told from one that was confirmed by comparing the two; nothing else is
//! remembered, so that any instance can go on from what it reads. Refuses to know how effects are made.

use chrono::{DateTime, Utc};
use kube::{Api, ResourceExt, api::PostParams};

use super::{
    Wanted,
    error::{Error, Result},
    objects::Objects,
    weights::route,
};
use crate::{
    api::{
        Intervention, InterventionStatus,
        conditions::{self, Condition, ConditionType},
        intervention::{Actor, Episode, name_of},
    },
    model::{
        effect::{Desired, Holder, InterventionPhase, Original, Record},
        reason::Reason,
        slot::Slot,
    },
};

/// A record whose obligation is not over.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) stored: Intervention,
    pub(crate) holder: Holder,
    pub(crate) original: Original,
    pub(crate) desired: Desired,
    /// What was confirmed to stand last in this episode.
    pub(crate) applied: Option<Desired>,
    pub(crate) phase: InterventionPhase,
    /// When it began and grew: budgets count these.
    pub(crate) starts: Starts,
}

/// When a slot's effect was begun or grew: the last time, and those before that still count.
#[derive(Clone, Debug)]
pub(crate) struct Starts {
    pub(crate) last: DateTime<Utc>,
    pub(crate) earlier: Vec<DateTime<Utc>>,
}

impl Starts {
    pub(crate) fn of(stored: &Intervention) -> Self {
        Self { last: stored.spec.started_at, earlier: stored.spec.earlier_starts.clone() }
    }
}

impl Held {
    /// Reads a record; none if its obligation is over. One whose `original` somebody took away cannot be undone by
    /// us, and says so.
    pub(crate) fn read(slot: &Slot, stored: &Intervention) -> Result<Option<Self>> {
        if stored.phase() == InterventionPhase::Restored {
            return Ok(None);
        }
        let misfit = |what| Error::Misfit { slot: Box::new(slot.clone()), what };
        let unreadable = |problem| Error::Unreadable { record: describe(stored), problem };
        let record = stored.record().map_err(unreadable)?;
        let applied = stored.status.as_ref().and_then(|status| status.applied.as_ref());
        let applied = applied.map(TryInto::try_into).transpose().map_err(unreadable)?;
        Ok(Some(Self {
            holder: record.holder,
            original: record.original.ok_or_else(|| misfit("an Intervention without spec.original"))?,
            desired: record.desired,
            applied,
            phase: record.phase,
            starts: Starts::of(stored),
            stored: stored.clone(),
        }))
    }

    /// Whether the intent as it stands was seen to be reached.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.phase == InterventionPhase::Applied
    }

    /// Every value of ours that the slot may hold now.
    pub(crate) fn ours(&self) -> impl Iterator<Item = &Desired> {
        std::iter::once(&self.desired).chain(&self.applied)
    }

    /// uid of the object that was changed; empty where there is no single one.
    pub(crate) fn object_uid(&self) -> &str {
        self.stored.spec.object_uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> InterventionStatus {
        self.stored.status.clone().unwrap_or_default()
    }
}

/// What is to be written down before an effect.
pub(crate) struct Intent<'a> {
    pub(crate) holder: &'a Holder,
    pub(crate) original: Original,
    pub(crate) desired: Desired,
    /// uid of the one object that is changed, if there is one.
    pub(crate) object_uid: Option<String>,
    pub(crate) starts: Starts,
    /// The time of this growth, if it is one.
    pub(crate) grows_at: Option<DateTime<Utc>>,
}

/// Stops an actor that has lost: a record of a later epoch is not ours to touch.
pub(crate) fn fence(actor: &Actor, stored: Option<&Intervention>) -> Result<()> {
    match stored.map(|stored| (stored, &stored.spec.actor)) {
        Some((stored, writer)) if writer.epoch > actor.epoch => Err(Error::Fenced {
            record: stored.name_any(),
            by: writer.name.clone(),
            theirs: writer.epoch,
            ours: actor.epoch,
        }),
        _ => Ok(()),
    }
}

/// Writes the intent. What another actor or an earlier episode left in the record is taken over or replaced.
pub(crate) async fn intend(
    objects: &Objects,
    actor: &Actor,
    slot: &Slot,
    wanted: &Wanted<'_>,
    intent: Intent<'_>,
    stored: Option<&Intervention>,
) -> Result<Intervention> {
    let mut record = Record {
        slot: slot.clone(),
        holder: intent.holder.clone(),
        original: Some(intent.original),
        desired: intent.desired,
        phase: InterventionPhase::Pending,
        started_at: intent.starts.last,
        earlier_starts: intent.starts.earlier,
    };
    if let Some(now) = intent.grows_at {
        record.grow(now);
    }
    let target = wanted.target.map(Into::into);
    let mut next = Intervention::of(&record, target, actor.clone(), wanted.reason);
    next.spec.object_uid = intent.object_uid;
    match stored {
        None => create(objects, &next).await,
        Some(stored) if stored.spec == next.spec => Ok(stored.clone()),
        Some(stored) => replace(objects, &Intervention { spec: next.spec, ..stored.clone() }).await,
    }
}

/// Makes the record ours before anything is done by it, so that its former writer is fenced.
pub(crate) async fn adopt(objects: &Objects, actor: &Actor, stored: &Intervention) -> Result<Intervention> {
    if stored.spec.actor == *actor {
        return Ok(stored.clone());
    }
    let mut next = stored.clone();
    next.spec.actor = actor.clone();
    replace(objects, &next).await
}

/// Leaves out of the original what is back.
pub(crate) async fn prune(objects: &Objects, stored: &Intervention, left: &Original) -> Result<Intervention> {
    let mut next = stored.clone();
    next.spec.original = Some(left.into());
    replace(objects, &next).await
}

/// Writes status, unless it says so already.
pub(crate) async fn report(
    objects: &Objects,
    stored: &Intervention,
    now: DateTime<Utc>,
    change: impl FnOnce(&mut InterventionStatus),
) -> Result<Intervention> {
    let mut next = stored.clone();
    let starts_anew = stored.phase() != InterventionPhase::Restored;
    let status = next.status.get_or_insert_with(InterventionStatus::default);
    if starts_anew && status.phase == Some(InterventionPhase::Restored) {
        // What the last episode said about itself is among the episodes.
        *status =
            InterventionStatus { episodes: std::mem::take(&mut status.episodes), ..InterventionStatus::default() };
    }
    change(status);
    status.observed_generation = stored.metadata.generation;
    set_conditions(status, now);
    if next.status == stored.status {
        return Ok(next);
    }
    let api = api(objects, &next.namespace().unwrap_or_default());
    let name = next.name_any();
    let written = objects.call(|| describe(&next), api.replace_status(&name, &params(objects), &next)).await;
    missing_is_conflict(written)
}

/// Ready: what is intended stands, or is undone. Contested: hands off.
fn set_conditions(status: &mut InterventionStatus, now: DateTime<Utc>) {
    let is_contested = status.phase == Some(InterventionPhase::Contested);
    let is_overwritten = is_contested || status.next_assert_at.is_some();
    let is_reached = matches!(status.phase, Some(InterventionPhase::Applied | InterventionPhase::Restored));
    let known = status.reason.as_deref().and_then(Reason::parse).unwrap_or(Reason::EffectFailed);
    let reason = if is_overwritten { Reason::Contested } else { known };
    let message = status.message.clone().unwrap_or_default();
    let generation = status.observed_generation.unwrap_or_default();
    let ready = Condition::new(ConditionType::Ready, is_reached && !is_overwritten, reason, message, now);
    let contest = if is_contested { Reason::Contested } else { Reason::NotContested };
    let contested = Condition::new(ConditionType::Contested, is_contested, contest, "", now);
    for condition in [ready, contested] {
        conditions::set(&mut status.conditions, condition.of_generation(generation));
    }
}

/// The effect stands as intended.
pub(crate) fn applied(now: DateTime<Utc>, desired: &Desired) -> impl FnOnce(&mut InterventionStatus) {
    let desired = desired.into();
    move |status| {
        status.applied_at.get_or_insert(now);
        status.phase = Some(InterventionPhase::Applied);
        status.reason = Some(Reason::Applied.as_str().to_owned());
        status.message = None;
        status.applied = Some(desired);
        status.next_assert_at = None;
    }
}

/// The obligation is over, for this reason.
pub(crate) fn finished(now: DateTime<Utc>, held: &Held, reason: Reason) -> impl FnOnce(&mut InterventionStatus) {
    let episode = Episode {
        episode: held.holder.episode.clone(),
        policy: held.holder.policy.to_string(),
        applied_at: held.status().applied_at,
        restored_at: Some(now),
        original: Some((&held.original).into()),
        applied: Some((&held.desired).into()),
    };
    move |status| {
        status.phase = Some(InterventionPhase::Restored);
        status.reason = Some(reason.as_str().to_owned());
        status.message = None;
        status.restored_at = Some(now);
        status.applied = None;
        status.next_assert_at = None;
        status.record(episode);
    }
}

/// Whether the new value takes more away from what was found than the old one: the budget of new effects counts that.
pub(crate) fn has_grown(original: &Original, old: &Desired, new: &Desired) -> bool {
    match (original, old, new) {
        (_, Desired::Isolated(old), Desired::Isolated(new)) => new.iter().any(|pod| !old.contains(pod)),
        (Original::Weights(original), Desired::Weights(old), Desired::Weights(new)) => {
            route::diverted(original, new) > route::diverted(original, old)
        }
        _ => old != new,
    }
}

/// The record of a slot as the server has it.
pub(crate) async fn fetch(objects: &Objects, slot: &Slot) -> Result<Option<Intervention>> {
    let name = name_of(slot);
    objects
        .call(|| format!("Intervention {}/{name}", slot.namespace()), api(objects, slot.namespace()).get_opt(&name))
        .await
}

pub(crate) fn api(objects: &Objects, namespace: &str) -> Api<Intervention> {
    Api::namespaced(objects.client().clone(), namespace)
}

async fn create(objects: &Objects, record: &Intervention) -> Result<Intervention> {
    let api = api(objects, &record.namespace().unwrap_or_default());
    objects.call(|| describe(record), api.create(&params(objects), record)).await
}

async fn replace(objects: &Objects, record: &Intervention) -> Result<Intervention> {
    let api = api(objects, &record.namespace().unwrap_or_default());
    let written = objects.call(|| describe(record), api.replace(&record.name_any(), &params(objects), record)).await;
    missing_is_conflict(written)
}

/// A record that was deleted meanwhile is read again like one that was changed.
fn missing_is_conflict(written: Result<Intervention>) -> Result<Intervention> {
    match written {
        Err(Error::Refused { object, code: 404, .. }) => Err(Error::Conflict { object }),
        other => other,
    }
}

fn params(objects: &Objects) -> PostParams {
    PostParams { field_manager: Some(objects.manager().to_owned()), ..PostParams::default() }
}

fn describe(record: &Intervention) -> String {
    format!("Intervention {}/{}", record.namespace().unwrap_or_default(), record.name_any())
}
