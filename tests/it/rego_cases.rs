//! The case list of the shipped latency rule: `tests/rego_cases` through bytecode, interpreter and verdict. The same
//! list goes through `opa` in `real::opa`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use tradeguard::model::phase::Phase;
use tradeguard::model::policy::{SignalSource, SignalSpec};
use tradeguard::model::quantity::{Threshold, Unit};
use tradeguard::model::reading::{NoReading, PodName, Reading, Readings, Signal, SignalName};
use tradeguard::model::verdict::{Outcome, RuleReason, Verdict};
use tradeguard::rego::schema::{self, InputShape, OutputShape};
use tradeguard::rego::{Document, Input, LATENCY_BUDGET, LATENCY_BUDGET_ENTRYPOINT, Rule};

/// One case; the words are explained in thresholds.yaml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Case {
    pub(crate) name: String,
    #[serde(default)]
    thresholds: BTreeMap<SignalName, String>,
    #[serde(default)]
    readings: BTreeMap<SignalName, String>,
    #[serde(default)]
    pods: BTreeMap<PodName, BTreeMap<SignalName, String>>,
    #[serde(default)]
    optional: BTreeSet<SignalName>,
    wanted: String,
    #[serde(default)]
    reasons: Vec<String>,
    #[serde(default)]
    suspects: Vec<PodName>,
    #[serde(default)]
    no_data: bool,
}

impl Case {
    /// The case as a question.
    pub(crate) fn ask<T>(&self, with: impl FnOnce(&Input<'_>) -> T) -> T {
        let signals = self.thresholds.iter().map(|(name, text)| (name.clone(), self.signal(name, text))).collect();
        let pods = self.pods.iter().map(|(pod, of)| (pod.clone(), readings(of))).collect();
        let object = |kind| Document::from_json(&serde_json::json!({"kind": kind, "name": "core-trading"}));
        with(&Input {
            policy: &object("LatencyBudgetPolicy"),
            tenant: &object("Tenant"),
            target: &object("OrderService"),
            signals: &signals,
            readings: &readings(&self.readings),
            pods: &pods,
            phase: Phase::Healthy,
            now: DateTime::<Utc>::UNIX_EPOCH,
        })
    }

    fn signal(&self, name: &str, threshold: &str) -> SignalSpec {
        SignalSpec {
            source: SignalSource::Quantile(0.99),
            threshold: Some(Threshold::parse(threshold).unwrap_or_else(|| panic!("{}: {threshold}", self.name))),
            optional: self.optional.contains(name),
        }
    }
}

fn readings(written: &BTreeMap<SignalName, String>) -> Readings {
    written.iter().map(|(name, text)| (name.clone(), reading(text))).collect()
}

fn reading(text: &str) -> Signal {
    let Some((value, unit)) = text.split_once(' ') else {
        return Err(NoReading::parse(text).unwrap_or_else(|| panic!("`{text}` is no reason")));
    };
    let unit = Unit::parse(unit).unwrap_or_else(|| panic!("`{text}` has no unit"));
    let value = unit.to_base(value.parse().unwrap_or_else(|_| panic!("`{text}` is no number")));
    Ok(Reading { value, unit: unit.base, age_seconds: 3.0, series: 1, requests: Some(40.0) })
}

/// Every case of the list.
pub(crate) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rego_cases");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            serde_saphyr::from_str::<Vec<Case>>(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        })
        .collect()
}

/// The verdict in the words of the case list.
fn told(verdict: &Verdict) -> (String, Vec<String>, Vec<PodName>, bool) {
    let wanted = match verdict.outcome {
        Outcome::Ok => "ok".to_owned(),
        Outcome::Breached => format!("breached {}", format!("{:?}", verdict.severity).to_lowercase()),
        Outcome::Unknown(reason) => format!("unknown {reason}"),
    };
    let reasons = verdict.reasons.iter().map(told_reason).collect();
    (wanted, reasons, verdict.suspects.clone(), verdict.no_data)
}

fn told_reason(reason: &RuleReason) -> String {
    let number = |value: &Option<f64>| value.map(|value| value.to_string());
    [
        Some(reason.code.clone()),
        reason.signal.clone(),
        reason.pod.clone(),
        number(&reason.observed),
        number(&reason.threshold),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

#[test]
fn every_case_gets_its_verdict_from_bytecode_and_interpreter() {
    let bytecode = Rule::shipped_latency_budget();
    assert!(bytecode.is_bytecode());
    let interpreter = bytecode.interpreted();
    let mut wrong = Vec::new();
    for case in cases() {
        case.ask(|input| {
            let output = interpreter.output(input);
            if bytecode.output(input) != output {
                wrong.push(format!("{}: bytecode answers otherwise than the interpreter's {output:?}", case.name));
            }
            let (wanted, reasons, suspects, no_data) = told(&bytecode.evaluate(input));
            let actual = (wanted, sorted(reasons), suspects, no_data);
            let expected = (case.wanted.clone(), sorted(case.reasons.clone()), case.suspects.clone(), case.no_data);
            if actual != expected {
                wrong.push(format!("{}:\n  expected {expected:?}\n  actual   {actual:?}", case.name));
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_case_list_is_long_and_names_every_reason() {
    let cases = cases();
    assert!(cases.len() >= 60, "{}", cases.len());
    let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    for why in NoReading::ALL {
        let wanted = format!("unknown {}", why.reason());
        assert!(cases.iter().any(|case| case.wanted == wanted), "no case wants `{wanted}`");
    }
}

#[test]
fn the_case_list_goes_through_every_line_of_the_rule() {
    let mut engine = regorus::Engine::new();
    engine.add_policy("latency_budget.rego".to_owned(), LATENCY_BUDGET.to_owned()).unwrap();
    engine.set_enable_coverage(true);
    for case in cases() {
        case.ask(|input| engine.set_input(regorus::Value::from(input.to_json())));
        engine.eval_rule(LATENCY_BUDGET_ENTRYPOINT.to_owned()).unwrap();
    }
    for file in engine.get_coverage_report().unwrap().files {
        assert!(!file.covered.is_empty());
        assert!(file.not_covered.is_empty(), "lines {:?} of {} are in no case", file.not_covered, file.path);
    }
}

#[test]
fn the_shipped_rules_own_tests_pass_in_the_interpreter() {
    let path = "policies/latency/latency_budget_test.rego";
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let tests: Vec<_> = text.lines().filter_map(|line| line.strip_suffix(" if {")).collect();
    assert!(tests.len() >= 10, "{tests:?}");
    let mut engine = regorus::Engine::new();
    engine.add_policy("latency_budget.rego".to_owned(), LATENCY_BUDGET.to_owned()).unwrap();
    engine.add_policy(path.to_owned(), text.clone()).unwrap();
    for test in tests {
        let passed = engine.eval_rule(format!("data.tradeguard.latency_budget_test.{test}")).unwrap();
        assert_eq!(passed, regorus::Value::from(true), "{test}");
    }
}

#[test]
fn inputs_and_outputs_have_the_published_shapes() {
    let rule = Rule::shipped_latency_budget();
    for case in cases() {
        case.ask(|input| {
            let json = input.to_json();
            let shape: InputShape =
                serde_json::from_value(json.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(numbers_as_floats(serde_json::to_value(shape).unwrap()), numbers_as_floats(json));
            let output = rule.output(input).unwrap();
            let shape: OutputShape = serde_json::from_value(output).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert!(shape.severity.is_some());
        });
    }
}

/// `3` and `3.0` are one number in Rego.
pub(crate) fn numbers_as_floats(json: Value) -> Value {
    match json {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(numbers_as_floats).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, numbers_as_floats(value))).collect(),
        other => other,
    }
}

#[test]
fn the_published_schemas_are_current() {
    for (name, schema) in [("input", schema::input()), ("output", schema::output())] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/schemas/{name}.schema.json"));
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{} is not current: run `UPDATE_GOLDEN=1 cargo test`", path.display());
    }
}
