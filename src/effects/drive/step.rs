//! The step algorithm of one slot, the same for every kind: write down, make, confirm; and the way back.
//!
//! Each step can end at any instruction. The next call reads record and objects, finds how far the last one came, and
//! goes on from there: nothing is made twice, nothing is forgotten. What a slot is made of is behind [`Hold`].

use chrono::{DateTime, TimeDelta, Utc};

use super::{Driven, Freshness, Hold, Outcome, Standing, Wanted};
use crate::{
    api::{Intervention, intervention::Actor},
    effects::{
        error::{Error, Result},
        objects::Objects,
        record::{self, Held, Intent, Starts},
    },
    model::{
        effect::{Desired, InterventionPhase, Original},
        reason::Reason,
        slot::Slot,
    },
};

/// After these pauses a reverted effect is made again; after one more revert it is contested.
const PAUSES: [TimeDelta; 3] = [TimeDelta::seconds(10), TimeDelta::seconds(60), TimeDelta::seconds(300)];

/// How often a step is begun anew when others write in between.
const TRIES: u32 = 4;

/// One call of [`drive`](crate::effects::Effects::drive).
pub(super) struct Step<'a> {
    pub(super) objects: &'a Objects,
    pub(super) actor: &'a Actor,
    pub(super) slot: &'a Slot,
    pub(super) now: DateTime<Utc>,
}

impl Step<'_> {
    pub(super) async fn take<K: Hold>(
        &self,
        kind: &K,
        wanted: Option<&Wanted<'_>>,
        known: Option<&Intervention>,
    ) -> Result<Driven> {
        record::fence(self.actor, known)?;
        let wanted = wanted.filter(|wanted| !asks_for_nothing(wanted.desired));
        if let Some(settled) = self.settled(kind, wanted, known).await? {
            return Ok(settled);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let stored = record::fetch(self.objects, self.slot).await?;
            match self.attempt(kind, wanted, stored).await {
                Err(Error::Conflict { object }) if tries < TRIES => {
                    tracing::debug!(slot = %self.slot, %object, "changed in between, reading again");
                }
                other => return other,
            }
        }
    }

    /// The common case, answered from caches: everything stands.
    async fn settled<K: Hold>(
        &self,
        kind: &K,
        wanted: Option<&Wanted<'_>>,
        known: Option<&Intervention>,
    ) -> Result<Option<Driven>> {
        let held = known.map(|known| Held::read(self.slot, known)).transpose()?.flatten();
        let unchanged = || driven(known.cloned(), Outcome::Unchanged);
        let (wanted, held) = match (wanted, held) {
            (None, None) => return Ok(Some(unchanged())),
            (Some(wanted), Some(held)) => (wanted, held),
            _ => return Ok(None),
        };
        if !held.is_confirmed() || held.holder != *wanted.holder || held.status().next_assert_at.is_some() {
            return Ok(None);
        }
        let live = kind.read(Some(&held), Some(wanted.desired), Freshness::Cached).await?;
        if is_gone(kind, &live, &held) || !kind.is_reached(&live, &held) {
            return Ok(None);
        }
        if held.desired == *wanted.desired {
            return Ok(Some(unchanged()));
        }
        let (original, desired) = kind.intent(&live, Some(&held.original), wanted.desired).await?;
        let is_all_that_can_be = original == held.original && desired == held.desired;
        Ok(is_all_that_can_be.then(|| self.later(known.cloned(), Outcome::Unchanged)))
    }

    /// What is wanted cannot be had as things are: they may be otherwise in a while.
    fn later(&self, record: Option<Intervention>, outcome: Outcome) -> Driven {
        Driven { record, outcome, again_at: Some(self.now + PAUSES[0]) }
    }

    async fn attempt<K: Hold>(
        &self,
        kind: &K,
        wanted: Option<&Wanted<'_>>,
        stored: Option<Intervention>,
    ) -> Result<Driven> {
        record::fence(self.actor, stored.as_ref())?;
        let held = stored.as_ref().map(|stored| Held::read(self.slot, stored)).transpose()?.flatten();
        match (wanted, held) {
            (None, None) => Ok(driven(stored, Outcome::Unchanged)),
            (None, Some(held)) => self.undo(kind, held).await,
            (Some(wanted), None) => self.begin(kind, wanted, stored).await,
            (Some(wanted), Some(held)) => self.hold(kind, wanted, held).await,
        }
    }

    /// The first effect of an episode. What is read now is the original.
    async fn begin<K: Hold>(&self, kind: &K, wanted: &Wanted<'_>, stored: Option<Intervention>) -> Result<Driven> {
        let live = kind.read(None, Some(wanted.desired), Freshness::Live).await?;
        let Some(uid) = kind.object_uid(&live) else {
            return Ok(self.later(stored, Outcome::ObjectGone));
        };
        let (original, desired) = kind.intent(&live, None, wanted.desired).await?;
        if asks_for_nothing(&desired) {
            return Ok(self.later(stored, Outcome::Unchanged));
        }
        // What an episode just over began still counts against the budget.
        let (starts, grows_at) = match &stored {
            Some(stored) => (Starts::of(stored), Some(self.now)),
            None => (Starts { last: self.now, earlier: Vec::new() }, None),
        };
        let intent = Intent {
            holder: wanted.holder,
            original,
            desired,
            object_uid: Some(uid).filter(|uid| !uid.is_empty()),
            starts,
            grows_at,
        };
        let stored = record::intend(self.objects, self.actor, self.slot, wanted, intent, stored.as_ref()).await?;
        self.make(kind, &live, stored, Outcome::Applied).await
    }

    /// A slot that is held already: another value, another holder, an intent to finish, or somebody wrote over it.
    async fn hold<K: Hold>(&self, kind: &K, wanted: &Wanted<'_>, held: Held) -> Result<Driven> {
        let live = kind.read(Some(&held), Some(wanted.desired), Freshness::Live).await?;
        if is_gone(kind, &live, &held) {
            return self.undo(kind, held).await;
        }
        let mut held = held;
        if held.phase == InterventionPhase::Contested {
            let same_episode =
                held.holder.policy == wanted.holder.policy && held.holder.episode == wanted.holder.episode;
            if same_episode {
                return Ok(self.later(Some(held.stored), Outcome::Contested));
            }
            held = self.no_longer_contested(held).await?;
        }
        let standing = kind.standing(&live, &held)?;
        let is_overwritten = standing != Standing::Ours;
        let due = held.status().next_assert_at;
        let original = match standing {
            Standing::Foreign(original) => original,
            Standing::Ours | Standing::Original => held.original.clone(),
        };
        if is_overwritten && (held.is_confirmed() || due.is_some()) && due.is_none_or(|due| due > self.now) {
            return self.reverted(held, original, due, wanted).await;
        }
        let outcome = if is_overwritten && due.is_some() { Outcome::Reasserted } else { Outcome::Applied };
        let reached = kind.is_reached(&live, &held);
        let was_confirmed = held.is_confirmed();
        if reached && (!was_confirmed || due.is_some()) {
            // Another intent may be about to take this one's place; that it was reached must not be lost with it.
            held = self.confirm(held).await?;
        }
        let (original, desired) = kind.intent(&live, Some(&original), wanted.desired).await?;
        let has_grown = record::has_grown(&original, &held.desired, &desired);
        let is_same = held.original == original && held.desired == desired && held.holder == *wanted.holder;
        if reached && is_same {
            let outcome = if was_confirmed { Outcome::Unchanged } else { Outcome::Applied };
            return Ok(driven(Some(held.stored), outcome));
        }
        let intent = Intent {
            holder: wanted.holder,
            original,
            desired,
            object_uid: held.stored.spec.object_uid.clone(),
            starts: held.starts,
            grows_at: has_grown.then_some(self.now),
        };
        let stored = record::intend(self.objects, self.actor, self.slot, wanted, intent, Some(&held.stored)).await?;
        self.make(kind, &live, stored, outcome).await
    }

    /// The policy that others fought with is Healthy, or gone: the next one starts afresh.
    async fn no_longer_contested(&self, held: Held) -> Result<Held> {
        let stored = record::adopt(self.objects, self.actor, &held.stored).await?;
        let stored = record::report(self.objects, &stored, self.now, |status| {
            status.phase = Some(InterventionPhase::Pending);
            status.reverts = 0;
            status.next_assert_at = None;
        })
        .await?;
        Ok(Held { phase: stored.phase(), stored, ..held })
    }

    async fn confirm(&self, held: Held) -> Result<Held> {
        let stored = record::adopt(self.objects, self.actor, &held.stored).await?;
        let stored = record::report(self.objects, &stored, self.now, record::applied(self.now, &held.desired)).await?;
        Ok(Held { applied: Some(held.desired.clone()), phase: stored.phase(), stored, ..held })
    }

    /// Makes what the record says, and confirms it.
    async fn make<K: Hold>(&self, kind: &K, live: &K::Live, stored: Intervention, outcome: Outcome) -> Result<Driven> {
        let objects = self.objects;
        let misfit = || Error::Misfit { slot: Box::new(self.slot.clone()), what: "the Intervention just written" };
        let held = Held::read(self.slot, &stored)?.ok_or_else(misfit)?;
        let left = match kind.apply(live, &held).await {
            Ok(left) => left,
            Err(error @ (Error::Refused { .. } | Error::NothingMatched { .. })) => {
                self.refused(&stored, &error).await;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let stored = if left == held.original { stored } else { record::prune(objects, &stored, &left).await? };
        let stored = record::report(objects, &stored, self.now, record::applied(self.now, &held.desired)).await?;
        Ok(driven(Some(stored), outcome))
    }

    /// Says in the record that the effect was refused. The error itself goes to the caller, so that a second failure
    /// here changes nothing.
    async fn refused(&self, stored: &Intervention, error: &Error) {
        let message = error.to_string();
        let reason = error.reason();
        let change = |status: &mut crate::api::InterventionStatus| {
            status.phase = Some(InterventionPhase::Failed);
            status.reason = Some(reason.as_str().to_owned());
            status.message = Some(message);
        };
        if let Err(second) = record::report(self.objects, stored, self.now, change).await {
            tracing::warn!(slot = %self.slot, error = %second, "a refused effect could not be noted in its record");
        }
    }

    /// Somebody wrote over a confirmed effect: counted once per write, made again after a pause, then contested.
    async fn reverted(
        &self,
        held: Held,
        new_original: Original,
        due: Option<DateTime<Utc>>,
        wanted: &Wanted<'_>,
    ) -> Result<Driven> {
        let objects = self.objects;
        let reverts = held.status().reverts + u32::from(due.is_none());
        let pause = PAUSES.get(usize::try_from(reverts).unwrap_or(usize::MAX).saturating_sub(1));
        let next = due.or_else(|| pause.map(|pause| self.now + *pause));
        // Status first: if we die before the original is written, the write is counted already and is not again.
        let stored = record::adopt(objects, self.actor, &held.stored).await?;
        let stored = record::report(objects, &stored, self.now, |status| {
            status.reverts = reverts;
            status.next_assert_at = next;
            if next.is_none() {
                status.phase = Some(InterventionPhase::Contested);
                status.reason = Some(Reason::Contested.as_str().to_owned());
            }
        })
        .await?;
        let intent = Intent {
            holder: &held.holder,
            original: new_original,
            desired: held.desired.clone(),
            object_uid: stored.spec.object_uid.clone(),
            starts: held.starts.clone(),
            grows_at: None,
        };
        let stored = record::intend(objects, self.actor, self.slot, wanted, intent, Some(&stored)).await?;
        tracing::info!(slot = %self.slot, reverts, "somebody wrote over an effect");
        Ok(match next {
            Some(due) => waiting(stored, due),
            None => driven(Some(stored), Outcome::Contested),
        })
    }

    /// The way back. The record says that it is under way before the first object is touched.
    async fn undo<K: Hold>(&self, kind: &K, held: Held) -> Result<Driven> {
        let objects = self.objects;
        let live = kind.read(Some(&held), None, Freshness::Live).await?;
        let is_gone = is_gone(kind, &live, &held);
        let stored = record::adopt(objects, self.actor, &held.stored).await?;
        let stored = record::report(objects, &stored, self.now, |status| {
            status.phase = Some(InterventionPhase::Restoring);
            status.reason = Some(Reason::NothingToEnforce.as_str().to_owned());
            status.message = None;
            status.next_assert_at = None;
        })
        .await?;
        kind.restore(&live, &held).await?;
        let (reason, outcome) =
            if is_gone { (Reason::ObjectGone, Outcome::ObjectGone) } else { (Reason::Restored, Outcome::Restored) };
        let finished = record::finished(self.now, &held, reason);
        let stored = record::report(objects, &stored, self.now, finished).await?;
        Ok(driven(Some(stored), outcome))
    }
}

fn is_gone<K: Hold>(kind: &K, live: &K::Live, held: &Held) -> bool {
    kind.object_uid(live).is_none_or(|uid| !uid.is_empty() && uid != held.object_uid())
}

/// An isolation of no Pod is no effect.
fn asks_for_nothing(desired: &Desired) -> bool {
    matches!(desired, Desired::Isolated(pods) if pods.is_empty())
}

fn driven(record: Option<Intervention>, outcome: Outcome) -> Driven {
    Driven { record, outcome, again_at: None }
}

fn waiting(record: Intervention, due: DateTime<Utc>) -> Driven {
    Driven { record: Some(record), outcome: Outcome::Waiting(due), again_at: Some(due) }
}
