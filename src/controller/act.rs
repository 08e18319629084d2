//! From claims to effects: the plan over all policies, and one task per slot that brings it there.
//!
//! A slot is driven by one task at a time; slots succeed and fail alone. Driving is idempotent, so whoever is in doubt
//! drives again.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use tracing::{debug, info, warn};

use crate::api::Intervention;
use crate::controller::engine::{Done, Engine, SLOT};
use crate::controller::governed::Governed;
use crate::decide::{self, Freeze, Planned};
use crate::effects::{self, Driven, Outcome, Seen, Wanted};
use crate::model::effect::InterventionPhase;
use crate::model::phase::Phase;
use crate::model::policy::{ActionKind, PolicyKey};
use crate::model::reason::Reason;
use crate::model::slot::Slot;
use crate::telemetry::metrics::{ExecutionResult, ReconcileResult, Step};

/// What came of driving a slot.
pub(crate) struct Finished {
    slot: Slot,
    holder: PolicyKey,
    /// Who held it before, if it was another policy.
    previous: Option<PolicyKey>,
    action: ActionKind,
    tenant: String,
    result: Result<Driven, effects::Error>,
}

impl Engine {
    /// Makes the plan anew from the claims of all policies that status says are Active or Recovering.
    pub(crate) fn make_plan(&mut self, now: DateTime<Utc>) {
        let mut unknown_scales = Vec::new();
        let keys: Vec<PolicyKey> = self.registry.open().cloned().collect();
        let mut wanted = Vec::new();
        let mut facts = decide::Facts::new();
        let mut keep: BTreeSet<PolicyKey> = BTreeSet::new();
        for key in keys {
            let Some(governed) = self.registry.get(&key) else { continue };
            if governed.object.is_being_deleted() || governed.keeps_what_stands() {
                continue;
            }
            self.ensure_facts(&key, &mut unknown_scales);
            self.forget_replaced(&key);
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
        let mut plan = decide::settle(decisions, &facts, &self.slots.records_with_begun(), &budgets, now);
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

    /// A Pod of the name of one that was isolated is not held for it. Before the record lets go of the old one, which
    /// is all that tells the two apart.
    fn forget_replaced(&mut self, key: &PolicyKey) {
        let Some(governed) = self.registry.get(key) else { return };
        let (Some(resolved), Some(persisted)) = (&governed.resolved, &governed.persisted) else { return };
        let replaced = decide::replaced(persisted, &resolved.facts, self.slots.records());
        if replaced.is_empty() {
            return;
        }
        if let Some(governed) = self.registry.get_mut(key) {
            for state in std::iter::once(&mut governed.state).chain(governed.persisted.as_mut()) {
                state.suspects.retain(|pod| !replaced.contains(pod));
            }
        }
        self.registry.want_report(key);
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
        let previous = held_by.as_ref().map(|holder| holder.policy.clone());
        let Some(holder) = planned.as_ref().map(|planned| planned.holder.clone()).or(held_by) else { return };
        let previous = previous.filter(|previous| *previous != holder.policy);
        let governed = self.registry.get(&holder.policy);
        let known_pods = governed.and_then(|governed| Some(governed.resolved.as_ref()?.pods.clone()));
        let seen = self.seen(&slot, planned.is_some(), known_pods);
        let target = governed.and_then(|governed| Some(governed.entry.as_ref()?.policy.target_ref.clone()));
        self.slots.begin(&slot, planned.as_ref(), now);
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
            let (holder, tenant) = (holder.policy, holder.tenant);
            Done::Driven(Box::new(Finished { slot, holder, previous, action, tenant, result }))
        });
    }

    /// What the caches know about a slot's objects. `pods` are those of the holder's target, where they are known:
    /// an effect to be made never guesses at Pods, one to be undone looks for its marks in the whole namespace.
    fn seen(&self, slot: &Slot, is_wanted: bool, pods: Option<Vec<Arc<Pod>>>) -> Seen {
        let caches = &self.parts.caches;
        let namespace = slot.namespace();
        let object = match slot {
            Slot::Weights { route } => caches.virtual_services.cache.get(namespace, &route.virtual_service),
            Slot::Mode { target, .. } => {
                let kind = caches.targets.get(&(target.api_version.clone(), target.kind.clone()));
                kind.and_then(|kind| kind.cache.get(namespace, &target.name))
            }
            Slot::Isolation { .. } => None,
        };
        let pods = match pods {
            Some(pods) => pods,
            None if is_wanted => Vec::new(),
            None => caches.pods.in_namespace(namespace),
        };
        Seen { pods, services: caches.services.in_namespace(namespace), object }
    }

    /// Takes in what came of driving a slot.
    pub(crate) fn driven(&mut self, finished: Finished, now: DateTime<Utc>) {
        let Finished { slot, holder, previous, action, tenant, result } = finished;
        let jitter = self.parts.random.f64();
        match result {
            Ok(driven) => {
                self.slots.succeeded(&slot, driven.again_at);
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
                let failure = (error.reason(), error.to_string());
                let pause = self.slots.failed(&slot, failure, jitter, now);
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
        // One that holds nothing any more loses its finalizer, and may be waiting for that.
        if let Some(previous) = previous {
            self.registry.want_report(&previous);
        }
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
