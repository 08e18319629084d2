use chrono::TimeDelta;
use serde_json::json;

use super::*;
use crate::model::policy::Enforcement;

fn metadata(managed_fields: &Value) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": "p",
        "creationTimestamp": "2026-03-01T10:00:00Z",
        "managedFields": managed_fields,
    }))
    .unwrap()
}

fn entry(manager: &str, time: &str, field: &str, subresource: &str) -> Value {
    let fields = json!({field: {}});
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": fields, "subresource": subresource,
    })
}

fn changed(managed_fields: &Value) -> String {
    let now = DateTime::parse_from_rfc3339("2026-03-01T12:00:00Z").unwrap().to_utc();
    changed_at(&metadata(managed_fields), now).format("%H:%M").to_string()
}

#[test]
fn the_last_foreign_write_of_the_spec_counts() {
    let edits = json!([
        entry("kubectl", "2026-03-01T10:30:00Z", "f:spec", ""),
        entry("argocd", "2026-03-01T11:00:00Z", "f:spec", ""),
        entry("kubectl-label", "2026-03-01T11:30:00Z", "f:metadata", ""),
    ]);
    assert_eq!(changed(&edits), "11:00");
}

#[test]
fn our_own_writes_status_and_times_in_the_future_do_not_count() {
    let edits = json!([
        entry("tradeguard", "2026-03-01T11:00:00Z", "f:spec", ""),
        entry("someone", "2026-03-01T11:10:00Z", "f:spec", "status"),
        entry("kubectl", "2026-03-01T12:00:01Z", "f:spec", ""),
    ]);
    assert_eq!(changed(&edits), "10:00");
    assert_eq!(changed(&json!([])), "10:00");
}

#[test]
fn an_object_that_never_was_in_a_cluster_is_older_than_all() {
    let now = DateTime::UNIX_EPOCH + TimeDelta::days(1);
    assert_eq!(changed_at(&ObjectMeta::default(), now), DateTime::UNIX_EPOCH);
}

fn latency() -> Value {
    json!({
        "apiVersion": "policy.trade.io/v1alpha2",
        "kind": "LatencyBudgetPolicy",
        "metadata": {"name": "order-processing", "namespace": "trading", "uid": "u1", "generation": 7},
        "spec": {
            "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": "core-trading"},
            "thresholds": {"p99": "800ms", "p50": "100ms", "duration": "2m"},
            "enforcementAction": "dryRun",
            "workload": {"podSelector": {"matchLabels": {"app": "core"}}},
            "actions": [{
                "type": "circuit-breaker",
                "config": {"timeout": "30s", "fallback": "cache-only", "halfOpen": {"initialWeightPercent": 5}},
            }],
        },
    })
}

#[test]
fn a_latency_policy_drafts_a_signal_per_quantile_at_its_path() {
    let draft = AnyPolicy::from_json(latency()).unwrap().draft(DateTime::UNIX_EPOCH);
    assert_eq!((draft.uid.as_str(), draft.generation, draft.enforcement), ("u1", 7, Enforcement::DryRun));
    assert_eq!(draft.key.to_string(), "trading/order-processing");
    assert_eq!((draft.duration.as_str(), draft.recovery, draft.interval.as_deref()), ("2m", None, Some("10s")));
    let signals: Vec<_> =
        draft.signals.iter().map(|signal| (signal.path.as_str(), signal.name.as_str(), signal.quantile)).collect();
    assert_eq!(signals, [("spec.thresholds.p50", "p50", Some(0.5)), ("spec.thresholds.p99", "p99", Some(0.99))]);
    let action = draft.actions.first().unwrap();
    assert_eq!((action.kind.as_str(), action.timeout.as_deref()), ("circuit-breaker", Some("30s")));
    assert_eq!((action.fallback.as_deref(), action.probe_percent), (Some("cache-only"), Some(5)));
    assert_eq!(draft.pod_selector.unwrap().get("app").unwrap(), "core");
    assert_eq!(draft.rule, None);
}

#[test]
fn a_query_of_the_policys_own_takes_the_place_of_the_quantile() {
    let mut object = latency();
    object["spec"]["thresholds"] = json!({"p99": "800ms", "duration": "2m"});
    object["spec"]["signal"] = json!({"query": "latency:p99", "unit": "ms", "backend": "main"});
    let draft = AnyPolicy::from_json(object).unwrap().draft(DateTime::UNIX_EPOCH);
    let signal = draft.signals.first().unwrap();
    assert_eq!(
        (signal.quantile, signal.query.as_deref(), signal.unit.as_deref()),
        (None, Some("latency:p99"), Some("ms"))
    );
    assert_eq!((draft.backend.as_deref(), draft.signal_template), (Some("main"), None));
}

#[test]
fn a_governance_policy_drafts_its_signals_and_rule() {
    let object = json!({
        "apiVersion": "policy.trade.io/v1alpha2",
        "kind": "GovernancePolicy",
        "metadata": {"name": "errors"},
        "spec": {
            "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": "core-trading"},
            "signals": [{"name": "errors", "query": "errors", "unit": "ratio", "threshold": "5%", "optional": true}],
            "thresholds": {"duration": "1m", "recovery": "2m"},
            "rule": {"module": "package a\n", "entrypoint": "data.a.verdict"},
        },
    });
    let policy = AnyPolicy::from_json(object).unwrap();
    assert_eq!(policy.kind(), PolicyKind::GovernancePolicy);
    let draft = policy.draft(DateTime::UNIX_EPOCH);
    let signal = draft.signals.first().unwrap();
    assert_eq!(
        (signal.path.as_str(), signal.threshold.as_deref(), signal.optional),
        ("spec.signals[0]", Some("5%"), true)
    );
    assert_eq!((draft.recovery.as_deref(), draft.actions.len()), (Some("2m"), 0));
    assert_eq!(draft.rule.unwrap().entrypoint, "data.a.verdict");
}

#[test]
fn the_spec_that_rules_see_is_the_one_that_was_written_with_defaults() {
    let spec = AnyPolicy::from_json(latency()).unwrap().spec_json();
    let mut written = latency();
    admission::apply_defaults(&mut written);
    assert_eq!(spec, written["spec"]);
}

#[test]
fn what_is_no_policy_is_refused() {
    let tenant = json!({"apiVersion": "policy.trade.io/v1alpha2", "kind": "Tenant", "metadata": {"name": "t"}, "spec": {"class": "lab"}});
    assert_eq!(AnyPolicy::from_json(tenant).unwrap_err().remove(0).path, "kind");
}
