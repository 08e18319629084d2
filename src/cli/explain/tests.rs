use serde_json::json;

use super::{status_text, text_of};
use crate::api::PolicyStatus;
use crate::cli::{Exit, tests::run};
use crate::model::policy::{PolicyKey, PolicyKind};

fn key() -> PolicyKey {
    PolicyKey { kind: PolicyKind::LatencyBudgetPolicy, namespace: "trading".into(), name: "order-processing".into() }
}

#[test]
fn an_engine_that_is_not_there_is_exit_three() {
    let (exit, _, err) = run(&["explain", "trading/order-processing", "--server", "http://127.0.0.1:1"]);
    assert_eq!(exit, Exit::Unreachable);
    assert!(err.contains("the engine at http://127.0.0.1:1"), "{err}");
}

#[test]
fn wrong_arguments_are_exit_two() {
    for args in [
        &["explain", "order-processing"][..],
        &["explain", "a/b/c"],
        &["explain", "trading/a", "--kind", "Deployment"],
        &["explain", "trading/a", "--server", "nowhere"],
        &["explain", "trading/a", "--kubeconfig", "/nowhere/kubeconfig"],
    ] {
        let (exit, _, err) = run(args);
        assert_eq!(exit, Exit::Usage, "{args:?}: {err}");
    }
}

#[test]
fn a_refused_policy_tells_why() {
    let text = text_of(&key(), &json!({"reason": "InvalidPolicy", "message": "spec.thresholds.duration: `1h30`"}));
    assert_eq!(
        text,
        "LatencyBudgetPolicy trading/order-processing is not judged (InvalidPolicy): spec.thresholds.duration: `1h30`\n"
    );
}

#[test]
fn a_status_is_told_in_lines() {
    let status: PolicyStatus = serde_json::from_value(json!({
        "observedGeneration": 1,
        "phase": "Active",
        "since": "2026-01-01T00:00:00Z",
        "signals": [{"name": "p99", "value": 1.2, "unit": "s", "threshold": "800ms"}, {"name": "p50", "reason": "NoData"}],
        "queries": [{"backend": "prometheus", "text": "sum by (le) (rate(x[1m]))"}],
        "heldBack": [{"slot": "weights", "reason": "NoRoute", "message": "no route could be found"}],
    }))
    .unwrap();
    let text = status_text(&key(), 2, &status);
    for line in [
        "LatencyBudgetPolicy trading/order-processing is Active since 2026-01-01T00:00:00+00:00",
        "  the spec has changed since (generation 2, the status is of 1)",
        "  p99 1.2s, threshold 800ms",
        "  p50 NoData",
        "  query at prometheus: sum by (le) (rate(x[1m]))",
        "  held back: weights: no route could be found (NoRoute)",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    assert!(status_text(&key(), 1, &PolicyStatus::default()).contains("no engine has seen it"));
}
