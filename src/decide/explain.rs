//! Why a policy is where it is: values, thresholds, the rule and line that fired, each check that decided, what
//! overrides it, what is held back, and what would move it next. Made of the same values as the decision itself.

mod words;

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::model::facts;
use crate::model::phase::{Phase, Stage};
use crate::model::quantity::show;
use crate::model::reading::{Observation, PodName};
use crate::model::slot::Slot;
use crate::model::verdict::{Outcome, Severity};

use super::chain::Decision;
use super::claims::Held;
use super::entry::Entry;
use super::plan::Plan;

/// All that an explanation is made of: the policy, its last round, and the plan that came of it.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The policy.
    pub entry: &'a Entry,
    /// What was measured.
    pub observation: &'a Observation,
    /// What is known of its target.
    pub facts: &'a facts::Target,
    /// What was decided.
    pub decision: &'a Decision,
    /// What came of all policies' decisions.
    pub plan: &'a Plan,
    /// When the decision was made.
    pub now: DateTime<Utc>,
}

/// Why a policy is where it is. Shown, it is text for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`.
    pub policy: String,
    /// Its kind.
    pub kind: String,
    /// Kind and name of the target.
    pub target: String,
    /// Name, class and priority of its tenant.
    pub tenant: String,
    /// `enforce`, `dryRun` or `warn`, after the tenant's word.
    pub enforcement: String,
    /// When it was judged last.
    pub at: DateTime<Utc>,
    /// The phase.
    pub phase: Phase,
    /// The stage, while Recovering.
    pub stage: Option<Stage>,
    /// Since when.
    pub since: DateTime<Utc>,
    /// `ok`, `breached` or `unknown`.
    pub verdict: String,
    /// Why it is unknown.
    pub verdict_reason: Option<String>,
    /// How bad.
    pub severity: Severity,
    /// Name of the decision in logs and audit records.
    pub decision_id: String,
    /// Readings against thresholds.
    pub signals: Vec<SignalView>,
    /// Queries as sent.
    pub queries: Vec<QueryView>,
    /// What the rule said, and where.
    pub fired: Vec<Fired>,
    /// Every check that had a say, in order; the last one decided the phase.
    pub checks: Vec<Check>,
    /// Pods held responsible in this episode, worst first.
    pub suspects: Vec<PodName>,
    /// Pods that are back as a probe.
    pub returned: Vec<PodName>,
    /// What the plan gives the policy.
    pub effects: Vec<EffectView>,
    /// Who holds what the policy wants.
    pub overridden: Option<OverriddenView>,
    /// What it wants and does not get.
    pub held: Vec<HeldView>,
    /// What would move it next.
    pub next: Vec<String>,
}

/// One signal's reading against its threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalView {
    /// The signal.
    pub name: String,
    /// The value for people; none: there is no reading.
    pub value: Option<String>,
    /// The value in base units.
    pub observed: Option<f64>,
    /// The base unit.
    pub unit: Option<String>,
    /// The threshold as written.
    pub threshold: Option<String>,
    /// How old the newest sample was.
    pub age_seconds: Option<f64>,
    /// How many requests it rests on.
    pub requests: Option<f64>,
    /// Why there is no reading.
    pub reason: Option<String>,
}

/// A query as sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryView {
    /// Name of the backend.
    pub backend: String,
    /// The text.
    pub text: String,
}

/// One reason that the rule gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fired {
    /// Its code.
    pub code: String,
    /// The same in words, with the values.
    pub words: String,
    /// File and line that give this code, where they can be told.
    pub line: Option<String>,
}

/// One check of the chain and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Which: suspended, target, exception, verdict, onNoData, blind, clock, timeout, evidence, or the like.
    pub name: String,
    /// What it said.
    pub words: String,
}

/// What a slot is to hold for the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectView {
    /// The slot.
    pub slot: String,
    /// What, for people.
    pub desired: String,
}

/// A slot that another policy holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverriddenView {
    /// The slot.
    pub slot: String,
    /// `namespace/name` of the winner.
    pub winner: String,
}

/// Something that is wanted and not had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldView {
    /// The slot, else the action.
    pub what: String,
    /// Why, as one word of the closed list.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// Explains where a policy is.
pub fn explain(of: &Situation<'_>) -> Explanation {
    let (policy, tenant) = (&of.entry.policy, &of.entry.tenant);
    let judgement = &of.decision.judgement;
    let state = &judgement.state;
    Explanation {
        policy: policy.key.to_string(),
        kind: policy.key.kind.to_string(),
        target: format!("{} {}", policy.target_ref.kind, policy.target_ref.name),
        tenant: format!("{} ({}, priority {})", tenant.name, tenant.class.as_str(), tenant.priority),
        enforcement: words::enforcement(of.entry.enforcement()).to_owned(),
        at: of.now,
        phase: state.phase,
        stage: state.stage,
        since: state.since,
        verdict: judgement.verdict.outcome.as_str().to_owned(),
        verdict_reason: match judgement.verdict.outcome {
            Outcome::Unknown(reason) => Some(reason.as_str().to_owned()),
            Outcome::Ok | Outcome::Breached => None,
        },
        severity: judgement.verdict.severity,
        decision_id: judgement.decision_id.clone(),
        signals: signals(of),
        queries: of
            .observation
            .queries
            .iter()
            .map(|query| QueryView { backend: query.backend.to_string(), text: query.text.to_string() })
            .collect(),
        fired: judgement.verdict.reasons.iter().map(|reason| words::fired(of.entry, reason)).collect(),
        checks: words::checks(of),
        suspects: state.suspects.clone(),
        returned: state.returned.clone(),
        effects: effects(of),
        overridden: of
            .plan
            .overridden
            .get(&policy.key)
            .map(|(slot, winner)| OverriddenView { slot: slot.to_string(), winner: winner.to_string() }),
        held: of.plan.held.iter().filter(|held| held.policy == policy.key).map(held_view).collect(),
        next: words::next(of),
    }
}

fn signals(of: &Situation<'_>) -> Vec<SignalView> {
    let view = |(name, spec): (&String, &crate::model::policy::SignalSpec)| {
        let signal = of.observation.readings.get(name);
        let reading = signal.and_then(|signal| signal.as_ref().ok());
        SignalView {
            name: name.clone(),
            value: reading.map(|reading| show(reading.value, reading.unit)),
            observed: reading.map(|reading| reading.value),
            unit: reading.map(|reading| reading.unit.symbol().to_owned()),
            threshold: spec.threshold.as_ref().map(|threshold| threshold.written.clone()),
            age_seconds: reading.map(|reading| reading.age_seconds),
            requests: reading.and_then(|reading| reading.requests),
            reason: match signal {
                Some(Ok(_)) => None,
                Some(Err(why)) => Some(why.reason().as_str().to_owned()),
                None => Some(crate::model::reason::Reason::NotMeasured.as_str().to_owned()),
            },
        }
    };
    of.entry.policy.signals.iter().map(view).collect()
}

fn effects(of: &Situation<'_>) -> Vec<EffectView> {
    let own = of.plan.slots.iter().filter(|(_, planned)| planned.contributors.contains(&of.entry.policy.key));
    own.map(|(slot, planned)| EffectView { slot: slot.to_string(), desired: words::desired(&planned.desired) })
        .collect()
}

fn held_view(held: &Held) -> HeldView {
    HeldView {
        what: held.slot.as_ref().map_or_else(|| held.action.to_string(), Slot::to_string),
        reason: held.reason.as_str().to_owned(),
        message: held.message.clone(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        words::write(self, f)
    }
}
