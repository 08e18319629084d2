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

mod replays;

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

/// What an own rule with this text says of one signal that is well measured.
fn own(text: &str) -> Result<Verdict, Error> {
    let own = rule(text)?;
    Question::new().signal("p99", "800ms", Ok(1.2)).pod("a", "p99", 2.0).ask(|input| own.try_evaluate(input))
}

fn reason_of(text: &str) -> Reason {
    own(text).unwrap_err().reason()
}

#[test]
fn an_endless_rule_is_stopped_and_the_next_one_runs() {
    let quick = Limits { evaluation: std::time::Duration::from_millis(50), ..Limits::default() };
    let hundred = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        "package p\nten := [{hundred}]\n\
         verdict := {{\"breached\": count([1 | some a in ten; some b in ten; some c in ten; some d in ten; some e in ten; a+b+c+d+e < 0]) > 0}}"
    );
    let endless = Rule::compile(&[Module::new("p.rego", text)], "data.p.verdict", &quick).unwrap();
    let question = Question::new().signal("p99", "800ms", Ok(1.2));
    let verdict = question.ask(|input| endless.evaluate(input));
    assert_eq!(verdict.outcome, Outcome::Unknown(Reason::EvaluationLimit));
    assert_eq!(question.shipped().outcome, Outcome::Breached);
    assert_eq!(question.ask(|input| endless.evaluate(input)).outcome, Outcome::Unknown(Reason::EvaluationLimit));
}

#[test]
fn an_undefined_answer_is_unknown_never_ok() {
    assert_eq!(reason_of(r#"verdict := {"breached": true} if input.nothing"#), Reason::Undefined);
    assert_eq!(reason_of(r#"verdict := {"breached": input.nothing}"#), Reason::Undefined);
}

#[test]
fn an_answer_of_the_wrong_shape_is_unknown_and_says_where() {
    for (output, path) in [
        ("true", "output"),
        ("[]", "output"),
        ("{}", "output.breached"),
        (r#"{"breached": "yes"}"#, "output.breached"),
        (r#"{"breached": null}"#, "output.breached"),
        (r#"{"breached": true, "severity": "bad"}"#, "output.severity"),
        (r#"{"breached": true, "severity": "none"}"#, "output.severity"),
        (r#"{"breached": true, "reasons": "slow"}"#, "output.reasons"),
        (r#"{"breached": true, "reasons": ["slow"]}"#, "output.reasons[0]"),
        (r#"{"breached": true, "reasons": [{"signal": "p99"}]}"#, "output.reasons[0].code"),
        (r#"{"breached": true, "reasons": [{"code": "a", "observed": "1"}]}"#, "output.reasons[0].observed"),
        (r#"{"breached": true, "reasons": [{"code": "a", "message": "b"}]}"#, "output.reasons[0].message"),
        (r#"{"breached": true, "pods": [1]}"#, "output.pods[0]"),
        (r#"{"breached": true, "pods": {"a": 1}}"#, "output.pods"),
        (r#"{"breached": true, "pod": ["a"]}"#, "output.pod"),
        (r#"{"breached": true, "actions": ["notify"]}"#, "output.actions[0]"),
        (r#"{"breached": true, 1: 2}"#, "output"),
    ] {
        let error = own(&format!("verdict := {output}")).unwrap_err();
        assert!(matches!(&error, Error::WrongShape { path: at, .. } if at == path), "{output}: {error}");
    }
}

#[test]
fn a_long_wrong_value_is_shown_cut() {
    let error = own(&format!("verdict := {{\"breached\": \"{}\"}}", "ä".repeat(500))).unwrap_err();
    assert!(error.to_string().chars().count() < 150, "{error}");
}

#[test]
fn what_may_be_left_out_has_a_default() {
    let breached = own(r#"verdict := {"breached": true}"#).unwrap();
    assert_eq!((breached.severity, breached.reasons.len(), breached.actions), (Severity::Warning, 0, None));
    let ok = own(r#"verdict := {"breached": false, "severity": "critical", "pods": ["a"]}"#).unwrap();
    assert_eq!((ok.outcome, ok.severity, ok.suspects.len()), (Outcome::Ok, Severity::None, 0));
}

#[test]
fn replacement_actions_are_handed_on_as_written() {
    let verdict = own(r#"verdict := {"breached": true, "actions": [{"type": "notify", "config": {"sink": "sre"}}]}"#);
    let expected = serde_json::json!([{"type": "notify", "config": {"sink": "sre"}}]);
    assert_eq!(verdict.unwrap().actions, Some(expected));
}

#[test]
fn conflicting_values_are_unknown() {
    let text = r#"verdict := {"breached": true} if input.phase == "Healthy"
verdict := {"breached": false} if input.readings.p99.value > 1"#;
    assert_eq!(reason_of(text), Reason::EvaluationFailed);
}

#[test]
fn an_error_inside_a_builtin_is_undefined_as_in_opa() {
    for expression in ["to_number(\"abc\")", "1 / 0"] {
        let text = format!("default verdict := {{\"breached\": true}}\nverdict := {{\"breached\": {expression} > 0}}");
        assert_eq!(own(&text).unwrap().outcome, Outcome::Breached, "{expression}");
    }
    // One that the engine raises all the same (microsoft/regorus 153) is unknown, never ok.
    assert_eq!(reason_of("verdict := {\"breached\": 5.5 % 2 > 0}"), Reason::EvaluationFailed);
}

#[test]
fn strings_sort_after_numbers_so_the_shipped_rule_checks_types() {
    assert_eq!(own(r#"verdict := {"breached": "3" > 20}"#).unwrap().outcome, Outcome::Breached);
    let readings = serde_json::json!({
        "thresholds": {"p99": {"value": 20, "unit": "s"}}, "readings": {"p99": {"value": "3", "unit": "s"}},
    });
    let shipped = Rule::shipped_latency_budget();
    for rule in [&shipped, &shipped.interpreted()] {
        let output = rule.answer(super::input::value_of(&readings)).unwrap();
        assert_eq!(output["breached"], regorus::Value::from(false));
    }
}

#[test]
fn a_rule_that_prints_writes_nothing_and_keeps_nothing() {
    let printing = rule("verdict := {\"breached\": true} if print(input.phase)").unwrap();
    for _ in 0..3 {
        let verdict = Question::new().ask(|input| printing.evaluate(input));
        assert_eq!(verdict.outcome, Outcome::Breached);
    }
}

#[test]
fn a_rule_sees_everything_that_the_input_promises() {
    let text = r#"verdict := {"breached": all}
default all := false
all if {
    input.policy.spec.x == 1
    input.tenant.class == "lab"
    input.target.kind == "OrderService"
    input.thresholds.p99 == {"value": 0.8, "unit": "s"}
    input.readings.p99 == {"value": 1.2, "unit": "s", "ageSeconds": 3, "series": 1}
    input.readings.p50 == {"reason": "NoData"}
    input.readings.rate.requests == 40
    not input.thresholds.rate
    input.pods.a.p99.value == 2
    input.phase == "Pending"
    input.now == "1970-01-01T00:00:00.000Z"
}"#;
    let own = rule(text).unwrap();
    let mut question = Question::new()
        .signal("p99", "800ms", Ok(1.2))
        .signal("p50", "1s", Err(NoReading::NoData))
        .pod("a", "p99", 2.0);
    let counted = Reading { requests: Some(40.0), unit: BaseUnit::Count, ..seconds(2.5) };
    question.readings.insert("rate".into(), Ok(counted));
    let policy = Document::from_json(&serde_json::json!({"spec": {"x": 1}}));
    let tenant = Document::from_json(&serde_json::json!({"class": "lab"}));
    let target = Document::from_json(&serde_json::json!({"kind": "OrderService"}));
    let verdict = question.ask(|input| {
        let input = Input { policy: &policy, tenant: &tenant, target: &target, phase: Phase::Pending, ..*input };
        own.try_evaluate(&input)
    });
    assert_eq!(verdict.unwrap().outcome, Outcome::Breached);
}

#[test]
fn many_threads_may_ask_one_rule() {
    let question = Question::new().signal("p99", "800ms", Ok(1.2)).pod("a", "p99", 2.0);
    for rule in [Rule::shipped_latency_budget(), Rule::shipped_latency_budget().interpreted()] {
        let expected = question.ask(|input| rule.evaluate(input));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(question.ask(|input| rule.evaluate(input)), expected);
                    }
                });
            }
        });
    }
}

#[test]
fn a_refused_rule_is_unknown_with_the_errors_reason() {
    let refused = Rule::refused(rule("verdict := ").unwrap_err());
    let verdict = Question::new().ask(|input| refused.evaluate(input));
    assert_eq!(verdict.outcome, Outcome::Unknown(Reason::InvalidRule));
}

#[test]
fn a_users_own_text_takes_the_shipped_rules_place() {
    let never = super::LATENCY_BUDGET.replace("count(exceeded) > 0,", "false,");
    let rule = Rule::compile_shipped_from(&never).unwrap();
    assert!(!rule.is_bytecode());
    let verdict = Question::new().signal("p99", "800ms", Ok(9.0)).ask(|input| rule.evaluate(input));
    assert_eq!(verdict.outcome, Outcome::Ok);
    let broken = Rule::compile_shipped_from("package other\n").unwrap_err();
    assert!(matches!(broken, Error::Entrypoint { .. }), "{broken}");
}

#[test]
fn the_lines_that_fired_are_told() {
    let question = Question::new().signal("p99", "800ms", Ok(1.2));
    let rule = Rule::shipped_latency_budget();
    let lines = question.ask(|input| rule.lines(input));
    assert!(lines.iter().any(|line| line.text == "reading.value > threshold.value"), "{lines:?}");
    let within = Question::new().signal("p99", "800ms", Ok(0.2)).ask(|input| rule.lines(input));
    assert!(within.len() < lines.len());
    let source = rule.line_of("above_threshold").unwrap();
    assert_eq!(
        (source.file.as_str(), source.text.as_str()),
        (super::LATENCY_BUDGET_PATH, "\"code\": \"above_threshold\",")
    );
    assert_eq!(rule.line_of("nothing"), None);
}
