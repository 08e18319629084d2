//! What this instance shows of itself: the view that the HTTP surface, `explain` and the state gauges answer from.
//!
//! Entries are shared and made anew only for policies that changed. The whole is put together at a pace that its size
//! allows, so that ten thousand policies do not make every small step pay for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::api::intervention::Intervention;
use crate::controller::act::is_open;
use crate::controller::engine::Engine;
use crate::controller::governed::Governed;
use crate::controller::lease::Role;
use crate::decide::{self, Decision, Judgement, Plan, Situation};
use crate::model::effect::{Desired, InterventionPhase, Records};
use crate::model::policy::PolicyKey;
use crate::model::reason::Reason;
use crate::model::slot::Slot;
use crate::model::view::{self, Explanation, NORMAL, PolicyView, Processing, SignalView, TargetKey, TargetView, View};

/// The view as it grows between two publications.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    policies: BTreeMap<PolicyKey, Arc<PolicyView>>,
    /// None: to be made anew. Most publications have new readings and the same targets.
    targets: Option<Arc<BTreeMap<TargetKey, Arc<TargetView>>>>,
    dirty: bool,
    last: Option<(Instant, Duration)>,
}

/// Publishing may take at most this part of the time.
const SHARE: u32 = 20;

impl Engine {
    /// Takes a policy's present standing into the next publication.
    pub(crate) fn show(&mut self, key: &PolicyKey) {
        self.shown.dirty = true;
        let Some(governed) = self.registry.get(key) else {
            self.shown.policies.remove(key);
            self.shown.targets = None;
            return;
        };
        let shown = Arc::new(policy_view(governed, &self.plan, self.slots.records()));
        match self.shown.policies.get_mut(key) {
            Some(before) if before.target == shown.target => *before = shown,
            _ => {
                self.shown.policies.insert(key.clone(), shown);
                self.shown.targets = None;
            }
        }
    }

    /// Something beside the policies changed: the role, the plan, a record.
    pub(crate) fn show_rest(&mut self) {
        self.shown.dirty = true;
        self.shown.targets = None;
    }

    /// How long until the next publication, if one is wanted.
    pub(crate) fn publish_due(&self) -> Option<Duration> {
        if !self.shown.dirty {
            return None;
        }
        Some(self.shown.last.map_or(Duration::ZERO, |(at, cost)| (cost * SHARE).saturating_sub(at.elapsed())))
    }

    /// Publishes, if something changed and it is time.
    pub(crate) fn publish(&mut self) {
        if self.publish_due().is_none_or(|due| !due.is_zero()) {
            return;
        }
        let started = Instant::now();
        let targets = self.shown.targets.take().unwrap_or_else(|| Arc::new(self.targets()));
        self.shown.targets = Some(Arc::clone(&targets));
        let view = View {
            role: match *self.parts.role.borrow() {
                Role::Actor { .. } => view::Role::Actor,
                Role::Standby | Role::Detached => view::Role::Standby,
            },
            synced: self.parts.caches.are_synced(),
            detached_since: self.detached_since,
            targets,
            policies: self.shown.policies.clone(),
            unmade: self.definitions.unmade(),
            interventions: self.slots.records().iter().map(|(slot, record)| (slot.clone(), record.phase)).collect(),
        };
        self.parts.view.send_replace(Arc::new(view));
        self.shown.dirty = false;
        self.shown.last = Some((started, started.elapsed()));
    }

    /// The modes of governed targets, from the records: every instance has them, whether it acts or not.
    fn targets(&self) -> BTreeMap<TargetKey, Arc<TargetView>> {
        let mut targets: BTreeMap<TargetKey, Arc<TargetView>> = BTreeMap::new();
        for (key, governed) in self.registry.iter() {
            let of = TargetKey::of(&key.namespace, &governed.target);
            targets
                .entry(of)
                .or_insert_with(|| Arc::new(TargetView { mode: NORMAL.to_owned(), since: None, policies: Vec::new() }));
        }
        for (slot, object) in self.slots.objects() {
            let Slot::Mode { namespace, target } = slot else { continue };
            let of = TargetKey::of(namespace, target);
            if let Some(shown) = self.mode_of(slot, object) {
                targets.insert(of, Arc::new(shown));
            }
        }
        targets
    }

    fn mode_of(&self, slot: &Slot, object: &Intervention) -> Option<TargetView> {
        let record = self.slots.records().get(slot)?;
        let status = object.status.as_ref();
        let since = status.and_then(|status| status.restored_at.or(status.applied_at));
        match (&record.desired, record.phase) {
            (Desired::Mode(mode), InterventionPhase::Applied) => {
                let mut policies = vec![record.holder.policy.clone()];
                if let Some(planned) = self.plan.slots.get(slot) {
                    policies.extend(planned.standing_by.iter().cloned());
                }
                Some(TargetView { mode: mode.clone(), since, policies })
            }
            (_, InterventionPhase::Restored) => {
                Some(TargetView { mode: NORMAL.to_owned(), since, policies: Vec::new() })
            }
            _ => None,
        }
    }
}

fn policy_view(governed: &Governed, plan: &Arc<Plan>, records: &Records) -> PolicyView {
    let (processing, reason) = processing(governed);
    let judgement = governed.last.as_ref().map(|round| &round.judgement);
    PolicyView {
        tenant: Arc::clone(&governed.tenant),
        target: Some(Arc::clone(&governed.target)),
        processing,
        reason,
        phase: governed.state.phase,
        stage: governed.state.stage,
        since: Some(governed.state.since),
        blind: governed.state.blind,
        verdict: judgement.map(|judgement| (judgement.verdict.outcome, judgement.verdict.severity)),
        judged_at: governed.last.as_ref().map(|round| round.observation.at),
        signals: signals(governed),
        suspects: governed.state.suspects.clone(),
        explanation: explanation(governed, plan, records),
    }
}

fn processing(governed: &Governed) -> (Processing, Reason) {
    use crate::model::verdict::Outcome;
    if let Some(refusal) = &governed.refusal {
        return (Processing::Rejected, refusal.reason);
    }
    if governed.entry.as_ref().is_some_and(|entry| entry.policy.suspend) {
        return (Processing::Suspended, Reason::Suspended);
    }
    if let Some(reason) = governed.resolved.as_ref().and_then(|resolved| resolved.refused) {
        return (Processing::Error, reason);
    }
    match governed.last.as_ref().map(|round| round.judgement.verdict.outcome) {
        None => (Processing::Waiting, Reason::NotMeasured),
        Some(Outcome::Unknown(reason)) => (Processing::Error, reason),
        Some(Outcome::Ok) => (Processing::Processed, Reason::WithinThresholds),
        Some(Outcome::Breached) => (Processing::Processed, Reason::ThresholdExceeded),
    }
}

fn signals(governed: &Governed) -> BTreeMap<String, SignalView> {
    let (Some(entry), Some(round)) = (&governed.entry, &governed.last) else { return BTreeMap::new() };
    let of = |(name, signal): (&String, &crate::model::policy::SignalSpec)| {
        let reading = round.observation.readings.get(name)?.clone();
        Some((name.clone(), SignalView { reading, threshold: signal.threshold.clone() }))
    };
    entry.policy.signals.iter().filter_map(of).collect()
}

/// Made when somebody asks: most policies are never asked about.
fn explanation(governed: &Governed, plan: &Arc<Plan>, records: &Records) -> Explanation {
    let known = (governed.entry.clone(), governed.last.clone(), governed.resolved.as_ref());
    let (Some(entry), Some(round), Some(resolved)) = known else {
        let refusal = governed.refusal.as_ref().map(|refusal| (refusal.reason, refusal.message()));
        return Explanation::new(move || match &refusal {
            Some((reason, message)) => json!({ "reason": reason.as_str(), "message": message }),
            None => json!({ "reason": Reason::NotMeasured.as_str(), "message": "it was not judged yet" }),
        });
    };
    let facts = Arc::clone(&resolved.facts);
    // Only an open policy wants anything; what it wants is fixed now, since records move on.
    let (claims, held) = if is_open(governed.state.phase) {
        decide::claims(&entry, &governed.state, &facts, records)
    } else {
        (Vec::new(), Vec::new())
    };
    let plan = Arc::clone(plan);
    Explanation::new(move || {
        let judgement = Judgement::clone(&round.judgement);
        let decision = Decision { judgement, claims: claims.clone(), held: held.clone() };
        let observation = &round.observation;
        let situation = Situation {
            entry: &entry,
            observation,
            facts: &facts,
            decision: &decision,
            plan: &plan,
            now: observation.at,
        };
        serde_json::to_value(decide::explain(&situation)).unwrap_or_default()
    })
}
