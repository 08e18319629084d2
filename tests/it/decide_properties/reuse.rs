//! A verdict that is reused is the one that asking would have given.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::json;
use tradeguard::decide::{Before, Entry, Origin, Standing, Turn, judge, judge_after};
use tradeguard::model::phase::{Phase, State};
use tradeguard::model::policy::{OnNoData, SignalSource, SignalSpec};
use tradeguard::model::quantity::{BaseUnit, Threshold};
use tradeguard::model::reading::{NoReading, Observation, Reading, Readings, Signal};
use tradeguard::model::tenant::Class;
use tradeguard::model::verdict::Outcome;
use tradeguard::rego::{Document, Footprint, Input, LATENCY_BUDGET, Rule};

use super::timelines::{facts, policy};
use super::{at, entry, tenant};

/// Few values, so that rounds often say the same; ages and requests on either side of their limits.
fn a_signal() -> impl Strategy<Value = Signal> {
    let value = prop::sample::select(vec![0.1, 0.2, 0.8, 0.9]);
    let unit = prop::sample::select(vec![BaseUnit::Seconds, BaseUnit::Seconds, BaseUnit::Seconds, BaseUnit::Ratio]);
    let age = prop::sample::select(vec![1.0, 2.0, 59.0, 61.0]);
    let requests = prop::sample::select(vec![None, Some(100.0), Some(101.0), Some(5.0)]);
    let reading = (value, unit, age, 1..3_u32, requests).prop_map(|(value, unit, age_seconds, series, requests)| {
        Ok(Reading { value, unit, age_seconds, series, requests })
    });
    let why = prop::sample::select(vec![NoReading::NoData, NoReading::Timeout]);
    prop_oneof![6 => reading, 1 => why.prop_map(Err)]
}

fn some_readings() -> impl Strategy<Value = Readings> {
    a_signal().prop_map(|signal| Readings::from([("p99".to_owned(), signal)]))
}

fn an_observation(second: i64) -> impl Strategy<Value = Observation> {
    let pod = prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned);
    (some_readings(), prop::collection::btree_map(pod, some_readings(), 0..2)).prop_map(move |(readings, pods)| {
        Observation { at: at(second), readings, pods, groups: BTreeMap::new(), queries: Vec::new(), notes: Vec::new() }
    })
}

fn ok(age_seconds: f64, requests: f64) -> Observation {
    let reading = Reading { value: 0.1, unit: BaseUnit::Seconds, age_seconds, series: 1, requests: Some(requests) };
    let readings = Readings::from([("p99".to_owned(), Ok(reading))]);
    Observation { readings, ..Observation::blank(at(0), [], NoReading::NotMeasured) }
}

/// Judges `first`, then `second` ten seconds later: with what went before, and without.
fn rounds(before: &Entry, now: &Entry, first: &Observation, second: &Observation, wait: i64) -> (Origin, Outcome) {
    let (target, facts, standing) = (Document::empty(), facts(), Standing::default());
    let earlier = judge(before, first, &target, &facts, &standing, &State::new(at(0)), first.at);
    let when = second.at + TimeDelta::seconds(wait);
    let (entry, observation, state) = (now, second, &earlier.state);
    let turn = Turn { entry, observation, target: &target, facts: &facts, standing: &standing, state, now: when };
    let known = Before { entry: before, observation: first, verdict: &earlier.verdict, at: first.at };
    let (judgement, origin) = judge_after(Some(known), turn);
    assert_eq!(judgement, judge(entry, observation, &target, &facts, &standing, state, when), "{origin:?}");
    (origin, judgement.verdict.outcome)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reused_verdict_is_the_one_that_asking_gives(
        first in an_observation(0),
        second in an_observation(10),
        again in any::<bool>(),
        optional in any::<bool>(),
        wait in prop::sample::select(vec![0, 1, 58]),
    ) {
        let mut draft = policy(OnNoData::Hold);
        draft.signals[0].optional = optional;
        let entry = entry(&draft, tenant(Class::Core, 0));
        let second = if again { Observation { at: second.at, ..first.clone() } } else { second };
        let (origin, outcome) = rounds(&entry, &entry, &first, &second, wait);
        prop_assert!(origin == Origin::Evaluated || outcome == Outcome::Ok);
    }

    /// What [`Footprint::Readings`] promises of the shipped rule: whatever else the input says, the answer is the same.
    #[test]
    fn the_shipped_rule_looks_at_nothing_but_readings_and_thresholds(
        readings in some_readings(),
        pods in prop::collection::btree_map("[ab]", some_readings(), 0..3),
        phase in prop::sample::select(vec![Phase::Healthy, Phase::Pending, Phase::Active, Phase::Recovering]),
        second in 0..100_000_i64,
        text in "[a-z]{0,3}",
        number in 0..9_u32,
    ) {
        let threshold = Threshold::latency("800ms").ok();
        let spec = SignalSpec { source: SignalSource::Quantile(0.99), threshold, optional: false };
        let signals = BTreeMap::from([("p99".to_owned(), spec)]);
        let other = |readings: &Readings| -> Readings {
            let changed = |signal: &Signal| signal.clone().map(|reading| Reading {
                age_seconds: f64::from(number), series: number, requests: Some(f64::from(number)), ..reading
            });
            readings.iter().map(|(name, signal)| (name.clone(), changed(signal))).collect()
        };
        let (document, empty) = (Document::from_json(&json!({"spec": {text: number}})), Document::empty());
        let plain = Input {
            policy: &empty, tenant: &empty, target: &empty, signals: &signals, readings: &readings, pods: &pods,
            phase: Phase::Healthy, now: at(0),
        };
        let (other_readings, other_pods) = (other(&readings), pods.iter().map(|(p, r)| (p.clone(), other(r))).collect());
        let changed = Input {
            policy: &document, tenant: &document, target: &document, readings: &other_readings, pods: &other_pods,
            phase, now: at(second), ..plain
        };
        let rule = Rule::shipped_latency_budget();
        prop_assert_eq!(rule.output(&plain).unwrap(), rule.output(&changed).unwrap());
    }
}

#[test]
fn an_unchanged_ok_is_reused_though_age_and_requests_move() {
    let entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
    assert_eq!(rounds(&entry, &entry, &ok(1.0, 100.0), &ok(7.0, 90.0), 10), (Origin::Reused, Outcome::Ok));
    // Until age or requests make it a reason.
    assert_eq!(rounds(&entry, &entry, &ok(1.0, 100.0), &ok(1.0, 100.0), 60).0, Origin::Evaluated);
    assert_eq!(rounds(&entry, &entry, &ok(1.0, 100.0), &ok(1.0, 9.0), 10).0, Origin::Evaluated);
}

#[test]
fn a_policy_that_was_compiled_anew_is_asked_anew() {
    let compile = || entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
    assert_eq!(rounds(&compile(), &compile(), &ok(1.0, 100.0), &ok(1.0, 100.0), 10).0, Origin::Evaluated);
}

#[test]
fn a_rule_of_somebody_elses_is_always_asked() {
    let mut entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
    entry.rule = Rule::compile_shipped_from(&format!("{LATENCY_BUDGET}\n# mine")).unwrap();
    assert_eq!(entry.rule.footprint(), Footprint::Everything);
    assert_eq!(rounds(&entry, &entry, &ok(1.0, 100.0), &ok(1.0, 100.0), 10).0, Origin::Evaluated);
}
