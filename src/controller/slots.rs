//! What is known of the slots: their records as the watch and our own writes tell, and the work on each.
//!
//! Knows no plan. A slot's record may be behind the server; what is written next is guarded by its version.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::ResourceExt;
use tracing::warn;

use crate::api::Intervention;
use crate::controller::backoff::Backoff;
use crate::controller::watches::Caches;
use crate::decide::Planned;
use crate::model::effect::{Desired, Holder, InterventionPhase, Record, Records};
use crate::model::policy::PolicyKey;
use crate::model::reason::Reason;
use crate::model::slot::Slot;

/// The slots that something was ever wanted of, and their records.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    records: Records,
    objects: BTreeMap<Slot, Intervention>,
    work: BTreeMap<Slot, Work>,
}

#[derive(Debug, Default)]
struct Work {
    running: bool,
    backoff: Backoff,
    /// Not before this, after a failure or while a revert is waited out.
    not_before: Option<DateTime<Utc>>,
    /// Something about the slot's objects changed: look whether the effect still stands.
    recheck: bool,
    /// Why it does not stand, if the last attempt failed.
    failure: Option<(Reason, String)>,
    /// What the running attempt was let begin, or grow.
    begun: Option<Begun>,
}

/// A new or growing effect that may not be written down yet.
#[derive(Debug)]
struct Begun {
    at: DateTime<Utc>,
    holder: Holder,
    desired: Desired,
}

impl Begun {
    /// The record that the attempt is about to write.
    fn record(&self, slot: &Slot, known: Option<&Record>) -> Record {
        let mut record = known.cloned().unwrap_or_else(|| Record {
            slot: slot.clone(),
            holder: self.holder.clone(),
            original: None,
            desired: self.desired.clone(),
            phase: InterventionPhase::Pending,
            started_at: self.at,
            earlier_starts: Vec::new(),
        });
        if known.is_some() {
            record.grow(self.at);
        }
        if record.phase == InterventionPhase::Restored {
            record.original = None;
        }
        record.phase = InterventionPhase::Pending;
        record.holder = self.holder.clone();
        record.desired = self.desired.clone();
        record
    }
}

impl Slots {
    /// The records as decisions see them.
    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// The records, with what running attempts were let begin and have not been seen to write down: budgets count
    /// that too, so that a better claim that comes meanwhile cannot begin in its place as well.
    pub(crate) fn records_with_begun(&self) -> Cow<'_, Records> {
        let unwritten: Vec<(&Slot, &Begun)> = self
            .work
            .iter()
            .filter_map(|(slot, work)| Some((slot, work.begun.as_ref()?)))
            .filter(|(slot, begun)| self.records.get(slot).is_none_or(|record| record.started_at < begun.at))
            .collect();
        if unwritten.is_empty() {
            return Cow::Borrowed(&self.records);
        }
        let mut records = self.records.clone();
        for (slot, begun) in unwritten {
            records.insert(slot.clone(), begun.record(slot, self.records.get(slot)));
        }
        Cow::Owned(records)
    }

    /// The Intervention of a slot.
    pub(crate) fn object(&self, slot: &Slot) -> Option<&Intervention> {
        self.objects.get(slot)
    }

    /// Every Intervention.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Slot, &Intervention)> {
        self.objects.iter()
    }

    /// Why a slot does not stand, if the last attempt failed.
    pub(crate) fn failure(&self, slot: &Slot) -> Option<&(Reason, String)> {
        self.work.get(slot)?.failure.as_ref()
    }

    /// Takes in what the watch says of one Intervention.
    pub(crate) fn refresh(&mut self, caches: &Caches, namespace: &str, name: &str) {
        match caches.interventions.get(namespace, name) {
            Some(object) => self.take(&object),
            None => {
                let gone = self.objects.iter().find(|(_, object)| is_called(object, namespace, name));
                if let Some(slot) = gone.map(|(slot, _)| slot.clone()) {
                    self.drop_record(&slot);
                }
            }
        }
    }

    /// Takes in everything that the watch holds.
    pub(crate) fn refresh_all(&mut self, caches: &Caches) {
        for object in caches.interventions.all() {
            self.take(&object);
        }
    }

    /// Forgets what was known and takes in what was read.
    pub(crate) fn replace(&mut self, objects: Vec<Intervention>) {
        self.objects.clear();
        self.records.clear();
        for object in objects {
            self.take(&object);
        }
        self.recheck(|_| true);
    }

    /// An attempt on a slot starts; none is planned where it is to be undone.
    pub(crate) fn begin(&mut self, slot: &Slot, planned: Option<&Planned>, now: DateTime<Utc>) {
        let work = self.work.entry(slot.clone()).or_default();
        work.running = true;
        work.recheck = false;
        work.not_before = None;
        work.begun = planned.filter(|planned| planned.grows).map(|planned| Begun {
            at: now,
            holder: planned.holder.clone(),
            desired: planned.desired.clone(),
        });
    }

    /// The attempt came to an end; it is to be looked at again at `again_at`.
    pub(crate) fn succeeded(&mut self, slot: &Slot, again_at: Option<DateTime<Utc>>) {
        let work = self.ended(slot);
        work.backoff.reset();
        work.failure = None;
        work.not_before = again_at;
    }

    /// The attempt failed. Returns the pause before the next one.
    pub(crate) fn failed(
        &mut self,
        slot: &Slot,
        failure: (Reason, String),
        jitter: f64,
        now: DateTime<Utc>,
    ) -> Duration {
        let work = self.ended(slot);
        let pause = work.backoff.after_failure(jitter);
        work.not_before = Some(now + pause);
        work.failure = Some(failure);
        pause
    }

    fn ended(&mut self, slot: &Slot) -> &mut Work {
        let work = self.work.entry(slot.clone()).or_default();
        work.running = false;
        work.begun = None;
        work
    }

    /// Takes in a record that was read or written.
    pub(crate) fn take(&mut self, object: &Intervention) {
        match object.record() {
            Ok(record) => {
                let slot = record.slot.clone();
                // The watch may be behind our own last write.
                let newest = self.objects.get(&slot).is_none_or(|known| version(object) >= version(known));
                if newest {
                    self.records.insert(slot.clone(), record);
                    self.objects.insert(slot, object.clone());
                }
            }
            Err(problem) => warn!(intervention = %object.name_any(), %problem, "a record cannot be read"),
        }
    }

    /// There is no record any more.
    pub(crate) fn drop_record(&mut self, slot: &Slot) {
        self.records.remove(slot);
        self.objects.remove(slot);
    }

    /// Slots in these namespaces are looked at again.
    pub(crate) fn recheck(&mut self, concerns: impl Fn(&str) -> bool) {
        for (slot, record) in &self.records {
            if record.phase != InterventionPhase::Restored && concerns(slot.namespace()) {
                self.work.entry(slot.clone()).or_default().recheck = true;
            }
        }
    }

    /// When a slot that waits is to be looked at again.
    pub(crate) fn next_look(&self) -> Option<DateTime<Utc>> {
        self.work.values().filter(|work| !work.running).filter_map(|work| work.not_before).min()
    }

    /// Whether an attempt may start now.
    pub(crate) fn is_free(&self, slot: &Slot, now: DateTime<Utc>) -> bool {
        self.work.get(slot).is_none_or(|work| !work.running && work.not_before.is_none_or(|at| at <= now))
    }

    /// Whether it is to be looked at though the record says that it stands.
    pub(crate) fn needs_look(&self, slot: &Slot) -> bool {
        self.work.get(slot).is_some_and(|work| work.recheck || work.not_before.is_some() || work.failure.is_some())
    }

    /// The slots that a policy holds and that are not undone.
    pub(crate) fn held_by<'a>(&'a self, key: &'a PolicyKey) -> impl Iterator<Item = &'a Record> {
        self.records
            .values()
            .filter(move |record| record.holder.policy == *key && record.phase != InterventionPhase::Restored)
    }
}

fn is_called(object: &Intervention, namespace: &str, name: &str) -> bool {
    object.namespace().as_deref() == Some(namespace) && object.name_any() == name
}

/// resourceVersions order as integers, in etcd as in the in-memory server.
fn version(object: &Intervention) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}
