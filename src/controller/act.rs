//! From claims to effects: the plan over all policies, and one task per slot that brings it there.
//!
//! A slot is driven by one task at a time; slots succeed and fail alone. Driving is idempotent, so whoever is in doubt
//! drives again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use kube::ResourceExt;
use tracing::{debug, info, warn};

use crate::api::Intervention;
use crate::controller::backoff::Backoff;
use crate::controller::engine::{Done, Engine, SLOT};
use crate::controller::governed::Governed;
use crate::controller::watches::Caches;
use crate::decide::{self, Freeze, Planned};
use crate::effects::{self, Driven, Outcome, Seen, Wanted};
use crate::model::effect::{InterventionPhase, Record, Records};
use crate::model::phase::Phase;
use crate::model::policy::{ActionKind, PolicyKey};
use crate::model::reason::Reason;
use crate::model::slot::Slot;
use crate::telemetry::metrics::{ExecutionResult, ReconcileResult, Step};

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
}

/// What came of driving a slot.
pub(crate) struct Finished {
    slot: Slot,
    holder: PolicyKey,
    action: ActionKind,
    tenant: String,
    result: Result<Driven, effects::Error>,
}

impl Slots {
    /// The records as decisions see them.
    pub(crate) fn records(&self) -> &Records {
        &self.records
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

    fn take(&mut self, object: &Intervention) {
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

    fn drop_record(&mut self, slot: &Slot) {
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

    fn is_free(&self, slot: &Slot, now: DateTime<Utc>) -> bool {
        self.work.get(slot).is_none_or(|work| !work.running && work.not_before.is_none_or(|at| at <= now))
    }

    fn needs_look(&self, slot: &Slot) -> bool {
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

impl Engine {
    /// Makes the plan anew from the claims of all policies that status says are Active or Recovering.
    pub(crate) fn make_plan(&mut self, now: DateTime<Utc>) {
        let mut unknown_scales = Vec::new();
        let keys: Vec<PolicyKey> = self.registry.iter().map(|(key, _)| key.clone()).collect();
        let mut wanted = Vec::new();
        let mut facts = decide::Facts::new();
        let mut keep: BTreeSet<PolicyKey> = BTreeSet::new();
        for key in keys {
            let Some(governed) = self.registry.get(&key) else { continue };
            let is_open = governed.persisted.as_ref().is_some_and(|state| is_open(state.phase));
            if !is_open || governed.object.is_being_deleted() || governed.keeps_what_stands() {
                continue;
            }
            self.ensure_facts(&key, &mut unknown_scales);
            let Some(governed) = self.registry.get(&key) else { continue };
            let (Some(entry), Some(state)) = (&governed.entry, &governed.persisted) else { continue };
            if entry.policy.suspend {
                continue;
            }
            // Without facts nothing can be said; without a target, what its policy holds is undone.
            let Some(resolved) = &governed.resolved else {
                keep.insert(key);
                continue;
            };
            match resolved.refused {
                None => {}
                Some(Reason::TargetNotFound) => continue,
                Some(_) => {
                    keep.insert(key);
                    continue;
                }
            }
            facts.insert(key, Arc::clone(&resolved.facts));
            wanted.push(decide::claims(entry, state, &resolved.facts, self.slots.records()));
        }
        let decisions = wanted.iter().map(|(claims, held)| (claims.as_slice(), held.as_slice()));
        let budgets = decide::Budgets { freeze: self.freeze, ..self.parts.options.budgets };
        let mut plan = decide::settle(decisions, &facts, self.slots.records(), &budgets, now);
        plan.release.retain(|slot| {
            let holder = self.slots.records().get(slot).map(|record| &record.holder.policy);
            holder.is_some_and(|holder| !keep.contains(holder) && !self.keeps_what_stands(holder))
        });
        self.mark_affected(&plan);
        self.plan = Arc::new(plan);
        for key in facts.keys() {
            self.show(key);
        }
        self.show_rest();
    }

    /// A policy whose newest text is not valid, with no good one known: its effects stay as they are.
    fn keeps_what_stands(&self, key: &PolicyKey) -> bool {
        self.registry.get(key).is_some_and(Governed::keeps_what_stands)
    }

    /// Policies whose conditions follow from the plan are reported where it differs from the last.
    fn mark_affected(&mut self, plan: &decide::Plan) {
        let mut affected: BTreeSet<PolicyKey> = BTreeSet::new();
        if plan.held != self.plan.held {
            affected.extend(plan.held.iter().chain(&self.plan.held).map(|held| held.policy.clone()));
        }
        if plan.overridden != self.plan.overridden {
            affected.extend(plan.overridden.keys().chain(self.plan.overridden.keys()).cloned());
        }
        for key in affected {
            self.registry.want_report(&key);
        }
    }

    /// Starts a task for every slot that is not as planned, or not known to be.
    pub(crate) fn start_slots(&mut self, now: DateTime<Utc>) {
        if self.freeze == Freeze::All {
            return;
        }
        let mut starts: Vec<(Slot, Option<Planned>)> = Vec::new();
        for (slot, planned) in &self.plan.slots {
            let stands = self.slots.records().get(slot).is_some_and(|record| {
                record.phase == InterventionPhase::Applied
                    && record.desired == planned.desired
                    && record.holder == planned.holder
            });
            if self.slots.is_free(slot, now) && (!stands || self.slots.needs_look(slot)) {
                starts.push((slot.clone(), Some(planned.clone())));
            }
        }
        for slot in &self.plan.release {
            let undone = self.slots.records().get(slot).is_none_or(|r| r.phase == InterventionPhase::Restored);
            if self.slots.is_free(slot, now) && !undone {
                starts.push((slot.clone(), None));
            }
        }
        for (slot, planned) in starts {
            self.start_slot(slot, planned, now);
        }
    }

    fn start_slot(&mut self, slot: Slot, planned: Option<Planned>, now: DateTime<Utc>) {
        let Some(actor) = self.actor() else { return };
        let record = self.slots.object(&slot).cloned();
        let held_by = self.slots.records().get(&slot).map(|record| record.holder.clone());
        let Some(holder) = planned.as_ref().map(|planned| planned.holder.clone()).or(held_by) else { return };
        let governed = self.registry.get(&holder.policy);
        let seen = self.seen(&slot, governed.and_then(|governed| governed.resolved.as_ref()));
        let target = governed.and_then(|governed| Some(governed.entry.as_ref()?.policy.target_ref.clone()));
        let work = self.slots.work.entry(slot.clone()).or_default();
        work.running = true;
        work.recheck = false;
        work.not_before = None;
        let effects = Arc::clone(&self.parts.effects);
        let metrics = Arc::clone(&self.parts.metrics);
        self.tasks.spawn(async move {
            let running = metrics.reconcile_started(SLOT);
            let started = tokio::time::Instant::now();
            let wanted = planned.as_ref().map(|planned| Wanted {
                holder: &planned.holder,
                desired: &planned.desired,
                target: target.as_ref(),
                reason: Reason::BreachConfirmed,
            });
            let result = effects.drive(&actor, &slot, wanted.as_ref(), record.as_ref(), &seen, now).await;
            metrics.step(Step::Apply, started.elapsed());
            running.finish(if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error });
            match result.as_ref().map(|driven| &driven.outcome) {
                Ok(Outcome::Applied) if planned.as_ref().is_some_and(|planned| planned.grows) => {
                    metrics.effect_started(slot.kind());
                }
                Ok(Outcome::Restored | Outcome::ObjectGone) => metrics.effect_undone(slot.kind()),
                _ => {}
            }
            let action = holder.action;
            Done::Driven(Box::new(Finished { slot, holder: holder.policy, action, tenant: holder.tenant, result }))
        });
    }

    /// What the caches know about a slot's objects.
    fn seen(&self, slot: &Slot, resolved: Option<&crate::controller::resolve::Resolved>) -> Seen {
        let namespace = slot.namespace();
        let pods = match resolved {
            Some(resolved) => resolved.pods.clone(),
            None => self.parts.caches.pods.in_namespace(namespace),
        };
        let services = self.parts.caches.services.in_namespace(namespace);
        Seen { pods, services, object: None }
    }

    /// Takes in what came of driving a slot.
    pub(crate) fn driven(&mut self, finished: Finished, now: DateTime<Utc>) {
        let Finished { slot, holder, action, tenant, result } = finished;
        let jitter = self.parts.random.f64();
        let work = self.slots.work.entry(slot.clone()).or_default();
        work.running = false;
        match result {
            Ok(driven) => {
                work.backoff.reset();
                work.failure = None;
                work.not_before = driven.again_at;
                let outcome = driven.outcome;
                if let Some(record) = &driven.record {
                    self.slots.take(record);
                }
                if !matches!(outcome, Outcome::Unchanged | Outcome::Waiting(_)) {
                    info!(reconciler = SLOT, request = %holder, tenant, policy = holder.name, %slot, ?outcome, "effect");
                    self.parts.metrics.execution(&tenant, action, ExecutionResult::Success);
                    self.announce_effect(&slot, &holder, &driven, now);
                }
            }
            Err(error) => {
                let pause = work.backoff.after_failure(jitter);
                work.not_before = Some(now + pause);
                work.failure = Some((error.reason(), error.to_string()));
                self.parts.metrics.queue_retried(SLOT);
                warn!(reconciler = SLOT, request = %holder, tenant, policy = holder.name, %slot, %error, ?pause, "effect failed");
                self.parts.metrics.execution(&tenant, action, ExecutionResult::Failure);
                // Our picture of the record may be old: take the newest before the next attempt.
                self.reread(&slot);
            }
        }
        self.replan = true;
        if let Some(governed) = self.registry.get_mut(&holder) {
            governed.resolved = None;
        }
        self.registry.want_report(&holder);
    }

    /// Reads a slot's record from the API server.
    fn reread(&mut self, slot: &Slot) {
        let (client, slot) = (self.parts.client.clone(), slot.clone());
        self.tasks.spawn(async move {
            let api = kube::Api::<Intervention>::namespaced(client, slot.namespace());
            match api.get_opt(&crate::api::intervention::name_of(&slot)).await {
                Ok(found) => Done::Record(Box::new((slot, found))),
                Err(error) => {
                    debug!(%error, %slot, "the record could not be read");
                    Done::Nothing
                }
            }
        });
    }

    /// Takes in a record that was read.
    pub(crate) fn record_read(&mut self, slot: &Slot, found: Option<&Intervention>) {
        match found {
            Some(object) => self.slots.take(object),
            None => self.slots.drop_record(slot),
        }
        self.replan = true;
    }

    /// Deletes records that were finished a day ago.
    pub(crate) fn start_sweep(&mut self, now: DateTime<Utc>) {
        let effects = Arc::clone(&self.parts.effects);
        let records = self.parts.caches.interventions.all();
        self.tasks.spawn(async move {
            if let Err(error) = effects.sweep(&records, now).await {
                debug!(%error, "finished records were not swept");
            }
            Done::Nothing
        });
    }
}

/// Whether a policy in this phase wants effects.
pub(crate) fn is_open(phase: Phase) -> bool {
    matches!(phase, Phase::Active | Phase::Recovering)
}
