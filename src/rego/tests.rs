//! Semantics of evaluation.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use crate::model::phase::Phase;
use crate::model::policy::{SignalSource, SignalSpec};
use crate::model::quantity::{BaseUnit, Threshold};
use crate::model::reading::{NoReading, PodName, Reading, Readings, SignalName};
use crate::model::reason::Reason;
use crate::model::verdict::{Outcome, Severity, Verdict};

use super::{Document, Error, Input, Limits, Module, Rule};

/// A question with owned parts.
pub(super) struct Question {
    pub(super) signals: BTreeMap<SignalName, SignalSpec>,
    pub(super) readings: Readings,
    pub(super) pods: BTreeMap<PodName, Readings>,
}

impl Question {
    pub(super) fn new() -> Self {
        Self { signals: BTreeMap::new(), readings: Readings::new(), pods: BTreeMap::new() }
    }

    pub(super) fn signal(mut self, name: &str, threshold: &str, reading: Result<f64, NoReading>) -> Self {
        let spec = SignalSpec {
            source: SignalSource::Quantile(0.99),
            threshold: Threshold::parse(threshold),
            optional: false,
        };
        self.signals.insert(name.to_owned(), spec);
        self.readings.insert(name.to_owned(), reading.map(seconds));
        self
    }

    pub(super) fn optional(mut self, name: &str) -> Self {
        self.signals.get_mut(name).unwrap().optional = true;
        self
    }

    pub(super) fn pod(mut self, pod: &str, signal: &str, value: f64) -> Self {
        self.pods.entry(pod.to_owned()).or_default().insert(signal.to_owned(), Ok(seconds(value)));
        self
    }

    pub(super) fn ask<T>(&self, with: impl FnOnce(&Input<'_>) -> T) -> T {
        let empty = Document::empty();
        with(&Input {
            policy: &empty,
            tenant: &empty,
            target: &empty,
            signals: &self.signals,
            readings: &self.readings,
            pods: &self.pods,
            phase: Phase::Healthy,
            now: DateTime::<Utc>::UNIX_EPOCH,
        })
    }

    fn shipped(&self) -> Verdict {
        self.ask(|input| Rule::shipped_latency_budget().evaluate(input))
    }
}

pub(super) fn seconds(value: f64) -> Reading {
    Reading { value, unit: BaseUnit::Seconds, age_seconds: 3.0, series: 1, requests: None }
}

/// A rule `data.p.verdict` with this text after the package.
pub(super) fn rule(text: &str) -> Result<Rule, Error> {
    let module = Module::new("p.rego", format!("package p\n{text}\n"));
    Rule::compile(&[module], "data.p.verdict", &Limits::default())
}

#[test]
fn the_shipped_rule_runs_as_bytecode() {
    assert!(Rule::shipped_latency_budget().is_bytecode());
}

#[test]
fn a_p99_above_its_threshold_is_breached_and_equal_is_within() {
    let above = Question::new().signal("p99", "800ms", Ok(1.2)).shipped();
    assert_eq!((above.outcome, above.severity), (Outcome::Breached, Severity::Warning));
    let equal = Question::new().signal("p99", "800ms", Ok(0.8)).shipped();
    assert_eq!((equal.outcome, equal.severity), (Outcome::Ok, Severity::None));
    let twice = Question::new().signal("p99", "800ms", Ok(1.6)).shipped();
    assert_eq!((twice.outcome, twice.severity), (Outcome::Breached, Severity::Critical));
}

#[test]
fn a_missing_signal_is_unknown_unless_optional_or_another_is_breached() {
    for why in NoReading::ALL {
        let missing = Question::new().signal("p99", "800ms", Err(why));
        let verdict = missing.shipped();
        assert_eq!(verdict.outcome, Outcome::Unknown(why.reason()));
        assert_eq!(verdict.no_data, why.is_no_data(), "{why:?}");
        assert_eq!(missing.optional("p99").shipped().outcome, Outcome::Ok);
        let beside = Question::new().signal("p50", "100ms", Err(why)).signal("p99", "800ms", Ok(1.0)).shipped();
        assert_eq!((beside.outcome, beside.no_data), (Outcome::Breached, false));
    }
}

#[test]
fn a_signal_that_was_never_measured_is_unknown() {
    let mut question = Question::new().signal("p99", "800ms", Ok(0.1));
    question.readings.clear();
    assert_eq!(question.shipped().outcome, Outcome::Unknown(Reason::NotMeasured));
}

#[test]
fn a_failing_backend_outweighs_one_without_data() {
    let verdict = Question::new()
        .signal("p50", "100ms", Err(NoReading::NoData))
        .signal("p99", "800ms", Err(NoReading::BackendError))
        .shipped();
    assert_eq!((verdict.outcome, verdict.no_data), (Outcome::Unknown(Reason::BackendError), false));
}

#[test]
fn a_reading_in_another_unit_is_unknown() {
    let mut question = Question::new().signal("p99", "800ms", Ok(5.0));
    question.readings.insert("p99".into(), Ok(Reading { unit: BaseUnit::Count, ..seconds(5.0) }));
    assert_eq!(question.shipped().outcome, Outcome::Unknown(Reason::UnknownUnit));
}

#[test]
fn suspects_come_worst_first() {
    let verdict = Question::new()
        .signal("p99", "800ms", Ok(1.2))
        .pod("a", "p99", 1.0)
        .pod("b", "p99", 4.0)
        .pod("c", "p99", 0.8)
        .pod("d", "p99", 2.0)
        .shipped();
    assert_eq!(verdict.suspects, ["b", "d", "a"]);
}

#[test]
fn suspects_outside_the_input_are_dropped() {
    let own = rule(r#"verdict := {"breached": true, "pods": ["ghost", "b", "a", "b"]}"#).unwrap();
    let verdict = Question::new().pod("a", "x", 1.0).pod("b", "x", 1.0).ask(|input| own.evaluate(input));
    assert_eq!(verdict.suspects, ["b", "a"]);
}
