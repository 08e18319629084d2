use std::fs;

use serde_json::{Value, json};

use crate::cli::{Exit, tests::run};

const SEED: &str = include_str!("../../../deploy/examples/order-processing.yaml");

/// Runs `eval` on files with these texts: exit, stdout, stderr.
fn eval(policy: &str, readings: &str, more: &[&str]) -> (Exit, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let (policy_path, readings_path) = (dir.path().join("policy.yaml"), dir.path().join("readings.yaml"));
    fs::write(&policy_path, policy).unwrap();
    fs::write(&readings_path, readings).unwrap();
    let files = ["eval", "-f", policy_path.to_str().unwrap(), "--readings", readings_path.to_str().unwrap()];
    run(&[&files, more].concat())
}

fn verdict(readings: &str) -> Value {
    let (exit, out, err) = eval(SEED, readings, &["--output", "json"]);
    assert!(matches!(exit, Exit::Ok | Exit::No) && err.is_empty(), "{exit:?} {err}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_latency_above_the_budget_is_breached_in_any_unit() {
    let seconds = verdict("readings: {p99: {value: 1.2, unit: s, ageSeconds: 3, series: 1}}");
    let millis = verdict("readings: {p99: {value: 1200, unit: ms, ageSeconds: 3, series: 1}}");
    assert_eq!(seconds, millis);
    assert_eq!(seconds["verdict"], "breached");
    assert_ne!(seconds["severity"], "none");
    let reason = &seconds["reasons"][0];
    assert_eq!(
        (&reason["signal"], &reason["observed"], &reason["threshold"]),
        (&json!("p99"), &json!(1.2), &json!(0.8))
    );
}

#[test]
fn a_latency_within_the_budget_is_ok() {
    let (exit, out, _) = eval(SEED, "readings: {p99: {value: 300, unit: ms}}", &["--output", "json"]);
    assert_eq!(exit, Exit::Ok);
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["verdict"], "ok");
}

#[test]
fn what_was_not_measured_is_unknown_and_no_yes() {
    for readings in ["readings: {p99: {reason: NoData}}", "readings: {}", "readings: {p99: {reason: NaN}}"] {
        let (exit, out, _) = eval(SEED, readings, &["--output", "json"]);
        assert_eq!(exit, Exit::No, "{readings}");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["verdict"], "unknown", "{readings}");
    }
    assert_eq!(verdict("readings: {p99: {reason: Timeout}}")["reason"], "Timeout");
    assert_eq!(verdict("readings: {p99: {value: 1, unit: s, ageSeconds: 3600}}")["reason"], "Stale");
}

#[test]
fn abnormal_pods_are_named() {
    let found = verdict(
        "
readings: {p99: {value: 1.2, unit: s}}
pods:
  fast: {p99: {value: 0.1, unit: s}}
  slow: {p99: {value: 4000, unit: ms}}
",
    );
    assert_eq!(found["suspects"], json!(["slow"]));
}

#[test]
fn people_read_values_thresholds_and_the_rules_line() {
    let (exit, out, _) = eval(SEED, "readings: {p99: {value: 1.2, unit: s}}", &[]);
    assert_eq!(exit, Exit::No);
    assert!(out.starts_with("breached ("), "{out}");
    for words in ["p99 1.2s, threshold 800ms", ".rego:"] {
        assert!(out.contains(words), "no `{words}` in {out}");
    }
}

#[test]
fn an_invalid_policy_is_refused_with_the_path_of_its_field() {
    let readings = "readings: {p99: {value: 1.2, unit: s}}";
    for (from, to, path) in [
        ("duration: \"2m\"", "duration: \"1h30\"", "spec.thresholds.duration"),
        ("duration: \"2m\"", "duration: \"1min\"", "spec.thresholds.duration"),
        ("duration: \"2m\"", "duration: \"1.5\"", "spec.thresholds.duration"),
        ("duration: \"2m\"", "duration: \"-5m\"", "spec.thresholds.duration"),
        ("duration: \"2m\"", "duration: \"0s\"", "spec.thresholds.duration"),
        ("duration: \"2m\"", "duration: 120", "spec.thresholds.duration"),
        ("duration: \"2m\"", "durations: \"2m\"", "spec.thresholds.durations"),
        ("p99: \"800ms\"", "p98: \"800ms\"", "spec.thresholds"),
        ("type: \"circuit-breaker\"", "type: \"circuit-braker\"", "spec.actions[0].type"),
        ("fallback: \"cache-only\"", "fallback: \"read-only\"", "spec.actions[0].config.fallback"),
        ("timeout: \"30s\"", "timeout: \"half a minute\"", "spec.actions[0].config.timeout"),
        ("kind: LatencyBudgetPolicy", "kind: LatencyBudget", "kind"),
        ("v1alpha2", "v1", "apiVersion"),
    ] {
        assert!(SEED.contains(from), "{from}");
        let (exit, out, err) = eval(&SEED.replace(from, to), readings, &["--output", "json"]);
        assert_eq!((exit, out.as_str()), (Exit::Usage, ""), "{to}: {err}");
        assert!(err.contains(path), "{to}: no `{path}` in {err}");
    }
}

#[test]
fn a_file_that_is_no_policy_is_refused_by_name() {
    let readings = "readings: {p99: {value: 1.2, unit: s}}";
    for policy in ["", "---\n---\n", "a: [", &format!("{SEED}---\n{SEED}"), &"#".repeat(10_000_000)] {
        let (exit, _, err) = eval(policy, readings, &[]);
        assert_eq!(exit, Exit::Usage);
        assert!(err.contains("policy.yaml:"), "{err}");
    }
    let (exit, _, err) = run(&["eval", "-f", "/nowhere/policy.yaml", "--readings", "/nowhere/readings.yaml"]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("/nowhere/policy.yaml: cannot be read"), "{err}");
}

#[test]
fn wrong_readings_are_refused_by_field() {
    for (readings, told) in [
        ("readings: {p95: {value: 1, unit: s}}", "readings.p95: the policy has no such signal; expected p99"),
        ("readings: {p99: {value: 1, unit: parsec}}", "readings.p99.unit"),
        ("readings: {p99: {value: 1}}", "readings.p99.unit"),
        ("readings: {p99: {reason: Whatever}}", "readings.p99.reason"),
        ("readings: {p99: {}}", "readings.p99"),
        (
            "readings: {p99: {value: many, unit: s}}",
            "readings.yaml: readings.p99.value: invalid type: string \"many\", expected f64",
        ),
        ("readings: {p99: {value: 1, unit: s, series: -1}}", "readings.yaml: readings.p99.series: "),
        ("readings: {p99: 1.2}", "readings.yaml: readings.p99: "),
        ("readings: {}\npods: {a: {p99: {value: 1, unit: s, age: 3}}}", "readings.yaml: pods.a.p99.age: "),
        ("reading: {}", "readings.yaml: reading: unknown field `reading`, expected `readings` or `pods`"),
        ("readings: {}\npods: {a: {p99: {value: 1, unit: x}}}", "pods.a.p99.unit"),
    ] {
        let (exit, _, err) = eval(SEED, readings, &[]);
        assert_eq!(exit, Exit::Usage, "{readings}");
        assert!(err.contains(told), "{readings}: no `{told}` in {err}");
    }
}

#[test]
fn a_policy_of_its_own_rule_is_judged_by_it() {
    let policy = r#"
apiVersion: policy.trade.io/v1alpha2
kind: GovernancePolicy
metadata: {name: errors}
spec:
  targetRef: {apiVersion: trade.io/v1, kind: OrderService, name: core-trading}
  thresholds: {duration: 1m}
  signals:
  - {name: error_ratio, query: "QUERY", unit: ratio, threshold: "5%"}
  rule:
    entrypoint: data.errors.verdict
    module: |
      package errors
      verdict := {"breached": input.readings.error_ratio.value > input.thresholds.error_ratio.value, "reasons": [], "pods": []}
"#;
    let readings = "readings: {error_ratio: {value: 9, unit: '%'}}";
    let good = policy.replace("QUERY", "sum(rate(errors_total[1m]))");
    let (exit, out, err) = eval(&good, readings, &["--output", "json"]);
    assert_eq!((exit, err.as_str()), (Exit::No, ""));
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap()["verdict"], "breached");
    let (exit, _, err) = eval(&policy.replace("QUERY", "sum(rate("), readings, &[]);
    assert_eq!(exit, Exit::Usage);
    assert!(err.contains("spec.signals[0].query"), "{err}");
}
