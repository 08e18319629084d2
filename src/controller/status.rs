//! What a policy's status says, made from what the loop knows. Pure: no writes, no clock.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use crate::api::conditions::{self, Condition, ConditionStatus, ConditionType};
use crate::api::policy_status::{Change, HeldBack, PolicyStatus, QueryStatus, SignalStatus, WorkloadStatus};
use crate::controller::act::is_open;
use crate::controller::governed::{Governed, Round, TextId};
use crate::controller::slots::Slots;
use crate::decide::{Judgement, Plan};
use crate::model::effect::InterventionPhase;
use crate::model::facts;
use crate::model::phase::{Phase, Transition};
use crate::model::policy::{Action, Enforcement, Policy, PolicyKey};
use crate::model::quantity::{self, Percent};
use crate::model::reading::SignalName;
use crate::model::reason::Reason;
use crate::model::time::Written;
use crate::model::verdict::Outcome;

/// The whole status of a policy.
pub(crate) fn status(
    key: &PolicyKey,
    governed: &Governed,
    slots: &Slots,
    plan: &Plan,
    now: DateTime<Utc>,
) -> PolicyStatus {
    let mut conditions = governed.report.conditions.clone();
    for condition in all_conditions(key, governed, slots, plan, now) {
        let generation = governed.object.generation();
        conditions::set(&mut conditions, condition.of_generation(generation));
    }
    let round = governed.last.as_ref();
    let policy = governed.entry.as_ref().map(|entry| &*entry.policy);
    let status = PolicyStatus {
        observed_generation: Some(governed.object.generation()),
        observed: round.and_then(|round| observed(policy?, round)),
        signals: round.zip(policy).map(|(round, policy)| signals(policy, round)).unwrap_or_default(),
        queries: round.map(queries).unwrap_or_default(),
        revision: governed.revision(),
        workload: governed.resolved.as_ref().and_then(|resolved| workload(policy?, &resolved.facts)),
        held_back: held_back(key, plan),
        history: governed.history.clone(),
        conditions,
        ..PolicyStatus::default()
    };
    status.with_state(&governed.state)
}

/// Names what must be written at once when it changes. Kept of every policy, so it is a digest, not the text.
pub(crate) type Essence = [u8; 32];

/// The essence of a status; everything else waits for the next refresh.
pub(crate) fn essence(status: &PolicyStatus) -> Essence {
    let conditions: Vec<_> =
        status.conditions.iter().map(|c| (&c.kind, c.status, &c.reason, &c.message, c.observed_generation)).collect();
    let held: Vec<_> = status.held_back.iter().map(|held| (&held.slot, &held.reason)).collect();
    let text = format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {conditions:?} {held:?}",
        status.phase,
        status.stage,
        status.since,
        status.reopened,
        status.blind,
        status.held,
        status.suspects,
        status.returned,
    );
    Sha256::digest(text).into()
}

fn all_conditions(
    key: &PolicyKey,
    governed: &Governed,
    slots: &Slots,
    plan: &Plan,
    now: DateTime<Utc>,
) -> Vec<Condition> {
    let accepted = accepted(governed);
    let is_accepted = accepted.0;
    let blind = governed.state.blind;
    let of = |kind, (holds, reason, message): (bool, Reason, String)| Condition::new(kind, holds, reason, message, now);
    let mut all = vec![
        of(ConditionType::Accepted, accepted),
        of(ConditionType::Enforced, enforced(key, governed, slots, plan)),
        of(
            ConditionType::Blind,
            match blind {
                Some(reason) => (true, reason, format!("no usable reading: {}", reason.meaning().trim())),
                None => (false, Reason::Measuring, String::new()),
            },
        ),
        of(ConditionType::Overridden, overridden(key, plan)),
        of(ConditionType::Contested, contested(key, slots)),
    ];
    all.extend(breached(governed, now));
    let suspended = governed.entry.as_ref().is_some_and(|entry| entry.policy.suspend);
    if suspended {
        let message = "its effects are undone and it is not judged".to_owned();
        all.push(of(ConditionType::Suspended, (true, Reason::Suspended, message)));
    } else if conditions::get(&governed.report.conditions, ConditionType::Suspended).is_some() {
        all.push(of(ConditionType::Suspended, (false, Reason::Accepted, String::new())));
    }
    let ready = match (is_accepted, blind) {
        (false, _) => (false, accepted_reason(governed), "not accepted".to_owned()),
        (true, Some(reason)) => (false, reason, "blind".to_owned()),
        (true, None) => (true, Reason::Accepted, String::new()),
    };
    all.push(of(ConditionType::Ready, ready));
    all
}

fn accepted(governed: &Governed) -> (bool, Reason, String) {
    if let Some(refusal) = &governed.refusal {
        let kept = if governed.entry.is_some() { "; the last valid text stays in force" } else { "" };
        return (false, refusal.reason, format!("{}{kept}", refusal.message()));
    }
    match governed.resolved.as_ref().and_then(|resolved| resolved.refused) {
        Some(reason) => {
            let target = &governed.object.core().target_ref;
            let message = format!("target {} {}: {}", target.kind, target.name, reason.meaning().trim());
            (false, reason, message)
        }
        None => (true, Reason::Accepted, format!("tenant {}", governed.tenant.name)),
    }
}

fn accepted_reason(governed: &Governed) -> Reason {
    accepted(governed).1
}

fn enforced(key: &PolicyKey, governed: &Governed, slots: &Slots, plan: &Plan) -> (bool, Reason, String) {
    let Some(entry) = &governed.entry else { return (false, Reason::NothingToEnforce, String::new()) };
    match entry.enforcement() {
        Enforcement::DryRun => return (false, Reason::DryRun, "records what it would do".to_owned()),
        Enforcement::Warn => return (false, Reason::Warn, "notifies only".to_owned()),
        Enforcement::Enforce => {}
    }
    if !is_open(governed.state.phase) {
        return (false, Reason::NothingToEnforce, String::new());
    }
    let mut missing: Vec<String> = plan
        .slots
        .iter()
        .filter(|(_, planned)| planned.holder.policy == *key)
        .filter(|(slot, planned)| {
            let record = slots.records().get(slot);
            record.is_none_or(|r| r.phase != InterventionPhase::Applied || r.desired != planned.desired)
        })
        .map(|(slot, _)| match slots.failure(slot) {
            Some((reason, message)) => format!("{slot}: {reason}: {message}"),
            None => format!("{slot}: under way"),
        })
        .collect();
    let held = plan.held.iter().filter(|held| held.policy == *key);
    missing.extend(held.map(|held| match &held.slot {
        Some(slot) => format!("{slot}: {}: {}", held.reason, held.message),
        None => format!("{}: {}: {}", held.action, held.reason, held.message),
    }));
    if missing.is_empty() {
        (true, Reason::Enforced, String::new())
    } else {
        (false, Reason::PartlyEnforced, missing.join("; "))
    }
}

fn overridden(key: &PolicyKey, plan: &Plan) -> (bool, Reason, String) {
    match plan.overridden.get(key) {
        Some((slot, winner)) => (true, Reason::Overridden, format!("{} {winner} holds the {slot}", winner.kind)),
        None => (false, Reason::NotOverridden, String::new()),
    }
}

fn contested(key: &PolicyKey, slots: &Slots) -> (bool, Reason, String) {
    let contested = slots.held_by(key).find(|record| record.phase == InterventionPhase::Contested);
    match contested {
        Some(record) => {
            (true, Reason::Contested, format!("somebody else keeps reverting the {}; hands off", record.slot))
        }
        None => (false, Reason::NotContested, String::new()),
    }
}

/// Not said anew while a reading is missing for a moment: the last answer stands until the policy is Blind.
fn breached(governed: &Governed, now: DateTime<Utc>) -> Option<Condition> {
    let kind = ConditionType::Breached;
    if let Some(reason) = governed.state.blind {
        return Some(Condition::new(kind, ConditionStatus::Unknown, reason, "", now));
    }
    let verdict = &governed.last.as_ref()?.judgement.verdict;
    match verdict.outcome {
        Outcome::Breached => Some(Condition::new(kind, true, Reason::ThresholdExceeded, "", now)),
        Outcome::Ok => Some(Condition::new(kind, false, Reason::WithinThresholds, "", now)),
        Outcome::Unknown(_) => None,
    }
}

/// The readings in words: `p99 1.2s > 800ms`.
fn observed(policy: &Policy, round: &Round) -> Option<String> {
    let parts: Vec<String> = policy
        .signals
        .iter()
        .filter_map(|(name, signal)| {
            let reading = round.observation.readings.get(name)?;
            Some(match (reading, &signal.threshold) {
                (Ok(reading), Some(threshold)) => {
                    format!("{name} {} / {}", quantity::show(reading.value, reading.unit), threshold.written)
                }
                (Ok(reading), None) => format!("{name} {}", quantity::show(reading.value, reading.unit)),
                (Err(why), _) => format!("{name} {}", why.reason()),
            })
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn signals(policy: &Policy, round: &Round) -> Vec<SignalStatus> {
    let of = |name: &SignalName| {
        let signal = policy.signals.get(name)?;
        let reading = round.observation.readings.get(name)?;
        Some(SignalStatus {
            name: name.clone(),
            value: reading.as_ref().ok().map(|reading| reading.value),
            unit: reading.as_ref().ok().map(|reading| reading.unit.symbol().to_owned()),
            threshold: signal.threshold.as_ref().map(|threshold| threshold.written.clone()),
            reason: reading.as_ref().err().map(|why| why.reason().to_string()),
        })
    };
    policy.signals.keys().filter_map(of).collect()
}

fn queries(round: &Round) -> Vec<QueryStatus> {
    let sent = round.observation.queries.iter();
    sent.map(|query| QueryStatus { backend: query.backend.to_string(), text: shortened(&query.text) }).collect()
}

/// A query that many policies share may name hundreds of workloads; twenty changes of that are too much for etcd.
fn shortened(query: &str) -> String {
    const LONGEST: usize = 1_000;
    match query.char_indices().nth(LONGEST) {
        None => query.to_owned(),
        Some((end, _)) => format!("{} …", &query[..end]),
    }
}

fn workload(policy: &Policy, facts: &facts::Target) -> Option<WorkloadStatus> {
    let workload = facts.workload.as_ref().ok()?;
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let percent = policy.actions.iter().find_map(|action| match action {
        Action::CircuitBreaker { isolation, .. } | Action::IsolatePods(isolation) => Some(isolation.max_percent),
        _ => None,
    });
    Some(WorkloadStatus {
        resolved_by: workload.resolved_by.as_str().to_owned(),
        kind: workload.key.kind.clone(),
        name: workload.key.name.clone(),
        pods: count(workload.pods.len()),
        isolated: count(workload.pods.values().filter(|pod| pod.isolated).count()),
        budget: count(percent.map_or(0, |percent: Percent| percent.of(workload.pods.len()))),
    })
}

fn held_back(key: &PolicyKey, plan: &Plan) -> Vec<HeldBack> {
    plan.held
        .iter()
        .filter(|held| held.policy == *key)
        .map(|held| HeldBack {
            slot: held.slot.as_ref().map_or_else(|| held.action.to_string(), ToString::to_string),
            reason: held.reason.to_string(),
            message: held.message.clone(),
        })
        .collect()
}

impl Governed {
    /// One change with what it rested on.
    pub(crate) fn change(&self, transition: &Transition, judgement: &Judgement) -> Change {
        let policy = self.entry.as_ref().map(|entry| &*entry.policy);
        let observation = self.last.as_ref().map(|round| &round.observation);
        let decisive = judgement.verdict.reasons.iter().find_map(|reason| reason.signal.clone());
        let decisive = decisive.or_else(|| policy?.signals.keys().next().cloned());
        let signal = decisive.as_ref().and_then(|name| policy?.signals.get(name));
        let reading = decisive.as_ref().and_then(|name| observation?.readings.get(name)?.as_ref().ok());
        Change {
            time: transition.at,
            from: transition.from,
            to: transition.to,
            stage: transition.stage,
            reason: transition.reason.to_string(),
            value: reading.map(|reading| reading.value),
            unit: reading.map(|reading| reading.unit.symbol().to_owned()),
            series: reading.map(|reading| reading.series),
            threshold: signal.and_then(|signal| signal.threshold.as_ref()).map(|threshold| threshold.written.clone()),
            window: policy.map(|policy| Written(policy.window).to_string()),
            query: observation.and_then(|observation| Some(shortened(&observation.queries.first()?.text))),
            revision: self.revision(),
            verdict: judgement.verdict.outcome.as_str().to_owned(),
            decision_id: judgement.decision_id.clone(),
            signal: decisive,
        }
    }

    /// Which text is in force: the metadata.generation of the object when it was valid last.
    pub(crate) fn revision(&self) -> Option<String> {
        self.entry.as_ref().map(|entry| match &self.text {
            TextId::Defined { part, revision } => format!("{}/{}@{revision}", part.source, part.part()),
            TextId::ByHand(_) | TextId::Unknown => format!("generation/{}", entry.policy.generation),
        })
    }

    /// Adds a change; the oldest goes once there are too many.
    pub(crate) fn remember(&mut self, change: Change) {
        self.history.push(change);
        let surplus = self.history.len().saturating_sub(crate::api::policy_status::HISTORY);
        self.history.drain(..surplus);
    }

    /// Whether this phase is one in which status is refreshed though nothing changed.
    pub(crate) fn is_refreshed(&self) -> bool {
        self.state.phase != Phase::Healthy
    }
}
