//! From readings to a verdict: which readings count, and what the rule says of them. Rego compares, never Rust.

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::model::phase::Phase;
use crate::model::policy::{Policy, SignalSource};
use crate::model::quantity::BaseUnit;
use crate::model::reading::{NoReading, Observation, PodName, Reading, Readings, Signal};
use crate::model::reason::Reason;
use crate::model::time;
use crate::model::verdict::{Outcome, RuleReason, Verdict};
use crate::rego::{Document, Input};

use super::entry::Entry;

/// The rule's verdict on the whole target. Pods that an unexpired exception names are no suspects.
pub fn evaluate(
    entry: &Entry,
    observation: &Observation,
    target: &Document,
    phase: Phase,
    now: DateTime<Utc>,
) -> Verdict {
    ask(entry, &observation.readings, &observation.pods, target, phase, observation.at, now)
}

/// The rule's verdict on one subject alone: a Pod that came back, a probe group.
pub(super) fn evaluate_subject(
    entry: &Entry,
    readings: &Readings,
    target: &Document,
    phase: Phase,
    measured_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Verdict {
    ask(entry, readings, &BTreeMap::new(), target, phase, measured_at, now)
}

fn ask(
    entry: &Entry,
    readings: &Readings,
    pods: &BTreeMap<PodName, Readings>,
    target: &Document,
    phase: Phase,
    measured_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Verdict {
    let policy = &*entry.policy;
    // Age is that of the newest sample when it was measured; a re-judgement on old readings adds the time since.
    let since = time::elapsed(measured_at, now).as_secs_f64();
    let readings = declared(policy, readings, since);
    let pods = each_usable(policy, pods, since);
    let mut verdict = entry.rule.evaluate(&Input {
        policy: &entry.policy_document,
        tenant: &entry.tenant_document,
        target,
        signals: &policy.signals,
        readings: &readings,
        pods: &pods,
        phase,
        now,
    });
    verdict.suspects.retain(|pod| !is_excepted(policy, pod, now));
    if verdict.outcome == Outcome::Breached
        && let Some(written) = &verdict.actions
        && entry.replacement(written).is_err()
    {
        return refused_actions(verdict);
    }
    verdict
}

/// Replacement actions that fail the checks make the answer one of the wrong shape: neither they nor the written
/// actions, which the rule meant to replace, are what anybody asked for.
fn refused_actions(verdict: Verdict) -> Verdict {
    let refused =
        RuleReason { code: "replacement_refused".to_owned(), signal: None, pod: None, observed: None, threshold: None };
    let reasons = verdict.reasons.into_iter().chain([refused]).collect();
    Verdict { reasons, ..Verdict::unknown(Reason::WrongShape) }
}

/// Whether an unexpired exception keeps this Pod from being a suspect.
pub(super) fn is_excepted(policy: &Policy, pod: &str, now: DateTime<Utc>) -> bool {
    policy.exceptions.iter().any(|exception| now < exception.expires && exception.pods.iter().any(|name| name == pod))
}

/// Whether an unexpired exception covers this moment.
pub(super) fn is_excepted_at(policy: &Policy, now: DateTime<Utc>) -> bool {
    let covers = |(from, until): (DateTime<Utc>, DateTime<Utc>)| from <= now && now < until;
    policy.exceptions.iter().any(|exception| now < exception.expires && exception.span.is_some_and(covers))
}

/// Whether what was measured reaches the rule unchanged: every declared signal is there, and none is stale by now or rests
/// on too few requests.
pub(super) fn counts_as_it_is(entry: &Entry, observation: &Observation, now: DateTime<Utc>) -> bool {
    let policy = &*entry.policy;
    let since = time::elapsed(observation.at, now).as_secs_f64();
    are_all_there(policy, &observation.readings)
        && are_usable(policy, &observation.readings, since)
        && observation.pods.values().all(|readings| are_usable(policy, readings, since))
}

fn are_all_there(policy: &Policy, readings: &Readings) -> bool {
    policy.signals.len() == readings.len() && policy.signals.keys().all(|name| readings.contains_key(name))
}

/// The declared signals' readings: each one there, if only to say that it was not measured.
fn declared<'a>(policy: &Policy, readings: &'a Readings, since: f64) -> Cow<'a, Readings> {
    if are_all_there(policy, readings) {
        return usable(policy, readings, since);
    }
    let found = policy.signals.keys().map(|name| {
        let signal = readings.get(name).cloned().unwrap_or(Err(NoReading::NotMeasured));
        (name.clone(), admit(policy, name, signal, since))
    });
    Cow::Owned(found.collect())
}

fn each_usable<'a>(
    policy: &Policy,
    pods: &'a BTreeMap<PodName, Readings>,
    since: f64,
) -> Cow<'a, BTreeMap<PodName, Readings>> {
    if pods.values().all(|readings| are_usable(policy, readings, since)) {
        return Cow::Borrowed(pods);
    }
    let checked = pods.iter().map(|(pod, readings)| (pod.clone(), usable(policy, readings, since).into_owned()));
    Cow::Owned(checked.collect())
}

fn usable<'a>(policy: &Policy, readings: &'a Readings, since: f64) -> Cow<'a, Readings> {
    if are_usable(policy, readings, since) {
        return Cow::Borrowed(readings);
    }
    let checked = readings.iter().map(|(name, signal)| (name.clone(), admit(policy, name, signal.clone(), since)));
    Cow::Owned(checked.collect())
}

fn are_usable(policy: &Policy, readings: &Readings, since: f64) -> bool {
    let fits = |name: &str, reading: &Reading| why_not(policy, name, reading, since).is_none();
    readings.iter().all(|(name, signal)| signal.as_ref().ok().is_none_or(|reading| fits(name, reading)))
}

fn admit(policy: &Policy, name: &str, signal: Signal, since: f64) -> Signal {
    signal.and_then(|reading| why_not(policy, name, &reading, since).map_or(Ok(reading), Err))
}

/// Why a value that was measured is no reading for this policy.
fn why_not(policy: &Policy, name: &str, reading: &Reading, since: f64) -> Option<NoReading> {
    if reading.value.is_nan() {
        return Some(NoReading::NaN);
    }
    if reading.value.is_infinite() {
        return Some(NoReading::Inf);
    }
    if reading.age_seconds + since > policy.stale_after.as_secs_f64() {
        return Some(NoReading::Stale);
    }
    if reading.requests.is_some_and(|requests| requests < policy.min_requests as f64) {
        return Some(NoReading::TooFewRequests);
    }
    let unit = policy.signals.get(name).map(|signal| match &signal.source {
        SignalSource::Quantile(_) => BaseUnit::Seconds,
        SignalSource::Query { unit, .. } => unit.base,
    });
    unit.is_some_and(|unit| unit != reading.unit).then_some(NoReading::BadAnswer)
}
