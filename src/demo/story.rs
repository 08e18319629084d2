//! One run of the demo as data: what happened when, what was done about it, and whether all of it was undone.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::world::World;
use crate::api::Intervention;
use crate::api::intervention::{DesiredSpec, OriginalSpec};
use crate::model::effect::InterventionPhase;
use crate::model::phase::{Phase, Stage};
use crate::model::view::{PolicyView, View};

/// The JSON document of `demo --once --output json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Document {
    /// Where the policy stood at each judgement.
    pub timeline: Vec<Moment>,
    /// What was done to the cluster.
    pub interventions: Vec<Done>,
    /// The answer.
    pub summary: Summary,
}

/// One judgement.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// Seconds since the start.
    pub t: f64,
    /// The phase.
    pub phase: Phase,
    /// How much is back, while Recovering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// P99 in seconds; null where there was no reading.
    pub p99_seconds: Option<f64>,
}

/// One slot's intervention.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// `isolation`, `mode` or `weights`.
    pub slot: String,
    /// The action that asked.
    pub action: String,
    /// Where it stands at the end.
    pub phase: InterventionPhase,
    /// What was found.
    pub original: Option<OriginalSpec>,
    /// What was set first.
    pub applied: Option<DesiredSpec>,
    /// Whether what was found is back.
    pub restored: bool,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Whether the policy became Active.
    pub activated: bool,
    /// Seconds from the first breached reading to Active.
    pub breach_to_active_seconds: Option<f64>,
    /// Seconds from Active until every effect stood.
    pub active_to_applied_seconds: Option<f64>,
    /// Whether every effect was undone and the policy is Healthy.
    pub restored: bool,
}

/// Watches a run and tells when it is over.
pub struct Recorder {
    world: World,
    started: DateTime<Utc>,
    /// How long to wait before giving up.
    limit: Duration,
    timeline: Vec<Moment>,
    last_judged: Option<DateTime<Utc>>,
    pending_at: Option<f64>,
    active_at: Option<f64>,
    applied_at: Option<f64>,
    most_applied: Vec<(String, DesiredSpec)>,
}

impl Recorder {
    /// Starts recording now.
    pub fn new(world: &World, limit: Duration) -> Self {
        Self {
            world: world.clone(),
            started: world.clock.now(),
            limit,
            timeline: Vec::new(),
            last_judged: None,
            pending_at: None,
            active_at: None,
            applied_at: None,
            most_applied: Vec::new(),
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.world.clock.now().signed_duration_since(self.started).to_std().unwrap_or_default()
    }

    /// The moments so far.
    pub fn timeline(&self) -> &[Moment] {
        &self.timeline
    }

    /// Takes in what the engine shows. With several policies the first in order of name is followed.
    pub fn take(&mut self, view: &View) {
        if let Some(policy) = view.policies.values().next() {
            self.take_policy(policy);
        }
        self.take_effects();
    }

    fn take_policy(&mut self, policy: &Arc<PolicyView>) {
        let Some(judged) = policy.judged_at.filter(|at| self.last_judged != Some(*at)) else { return };
        self.last_judged = Some(judged);
        let t = self.seconds(judged);
        let p99 = policy.signals.get("p99").or_else(|| policy.signals.values().next());
        let p99_seconds = p99.and_then(|signal| signal.reading.as_ref().ok()).map(|reading| reading.value);
        let since = policy.since.map_or(t, |since| self.seconds(since));
        match policy.phase {
            Phase::Pending if self.active_at.is_none() => self.pending_at = Some(since),
            Phase::Active if self.active_at.is_none() => self.active_at = Some(since),
            _ => {}
        }
        self.timeline.push(Moment { t, phase: policy.phase, stage: policy.stage, p99_seconds });
    }

    fn seconds(&self, at: DateTime<Utc>) -> f64 {
        at.signed_duration_since(self.started).as_seconds_f64()
    }

    fn take_effects(&mut self) {
        let interventions = self.interventions();
        for intervention in &interventions {
            let slot = intervention.spec.slot.kind.clone();
            if !self.most_applied.iter().any(|(known, _)| *known == slot) {
                self.most_applied.push((slot, intervention.spec.desired.clone()));
            }
        }
        let all_stand = !interventions.is_empty()
            && interventions.iter().all(|intervention| intervention.phase() == InterventionPhase::Applied);
        if self.active_at.is_some() && self.applied_at.is_none() && all_stand {
            let newest = interventions.iter().filter_map(|one| one.status.as_ref()?.applied_at).max();
            self.applied_at = newest.map(|at| self.seconds(at));
        }
    }

    fn interventions(&self) -> Vec<Intervention> {
        let objects = self.world.memkube.everything().into_iter();
        objects
            .filter(|object| object["kind"] == "Intervention")
            .filter_map(|object| serde_json::from_value(Value::clone(&object)).ok())
            .collect()
    }

    /// Whether there is nothing more to see: all is undone, nothing ever happened, or it takes too long.
    pub fn is_over(&self, fault_ended: Option<Duration>) -> bool {
        let elapsed = self.elapsed();
        if elapsed >= self.limit {
            return true;
        }
        let quiet = self.timeline.last().is_some_and(|moment| moment.phase == Phase::Healthy);
        if self.active_at.is_some() {
            return quiet && self.interventions().iter().all(|one| one.phase() == InterventionPhase::Restored);
        }
        // Nothing came of it: a few minutes after the fault there is nothing left to wait for.
        quiet && fault_ended.is_some_and(|ended| elapsed >= ended + Duration::from_secs(120))
    }

    /// The document.
    pub fn document(&self) -> Document {
        let interventions = self.interventions();
        let done: Vec<Done> = interventions.iter().map(|intervention| self.done(intervention)).collect();
        let activated = self.active_at.is_some();
        let healthy = self.timeline.last().is_some_and(|moment| moment.phase == Phase::Healthy);
        Document {
            summary: Summary {
                activated,
                breach_to_active_seconds: self.active_at.zip(self.pending_at).map(|(active, pending)| active - pending),
                active_to_applied_seconds: self.applied_at.zip(self.active_at).map(|(applied, active)| {
                    // The record keeps the moment of the drive, which may have begun just before status said Active.
                    (applied - active).max(0.0)
                }),
                restored: activated && healthy && done.iter().all(|one| one.restored),
            },
            timeline: self.timeline.clone(),
            interventions: done,
        }
    }

    fn done(&self, intervention: &Intervention) -> Done {
        let slot = intervention.spec.slot.kind.clone();
        let applied = self.most_applied.iter().find(|(known, _)| *known == slot).map(|(_, desired)| desired.clone());
        let restored = intervention.phase() == InterventionPhase::Restored;
        let episode = intervention.status.as_ref().and_then(|status| status.episodes.last());
        Done {
            action: intervention.spec.holder.action.clone(),
            phase: intervention.phase(),
            original: episode
                .filter(|_| restored)
                .and_then(|episode| episode.original.clone())
                .or_else(|| intervention.spec.original.clone()),
            applied,
            restored,
            slot,
        }
    }
}

impl Document {
    /// Whether the demo shows what it should: activated, everything applied, everything restored.
    pub fn is_success(&self) -> bool {
        self.summary.activated && self.summary.active_to_applied_seconds.is_some() && self.summary.restored
    }
}
