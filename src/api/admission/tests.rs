use serde_json::json;

use super::*;

fn policy() -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "LatencyBudgetPolicy",
        "metadata": {"name": "order-processing"},
        "spec": {
            "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": "core-trading"},
            "thresholds": {"p99": "800ms", "duration": "2m"},
            "actions": [{"type": "circuit-breaker", "config": {"timeout": "30s", "fallback": "cache-only"}}],
        },
    })
}

#[test]
fn defaults_are_those_of_the_design() {
    let mut object = policy();
    object["spec"]["window"] = Value::Null;
    admit(&mut object).unwrap();
    for (field, value) in [
        ("suspend", json!(false)),
        ("enforcementAction", json!("enforce")),
        ("interval", json!("10s")),
        ("window", json!("1m")),
        ("staleAfter", json!("1m")),
        ("onNoData", json!("hold")),
        ("minRequests", json!(10)),
    ] {
        assert_eq!(object["spec"][field], value, "{field}");
    }
}

#[test]
fn an_object_that_is_none_of_ours_is_refused_by_kind_or_version() {
    let path = |object: Value| check(&object).unwrap_err().remove(0).path;
    assert_eq!(path(json!("policy")), "");
    assert_eq!(path(json!({"apiVersion": "policy.trade.io/v1", "kind": "Tenant"})), "apiVersion");
    assert_eq!(path(json!({"apiVersion": API_VERSION, "kind": "Policy"})), "kind");
}

#[test]
fn a_name_is_needed_unless_one_is_to_be_generated() {
    let mut object = policy();
    object["metadata"] = json!({});
    assert_eq!(check(&object).unwrap_err().remove(0).path, "metadata.name");
    object["metadata"] = json!({"generateName": "order-"});
    assert_eq!(check(&object), Ok(()));
}

#[test]
fn a_write_that_leaves_the_spec_alone_is_not_held_to_rules_it_already_broke() {
    let mut old = policy();
    old["spec"]["thresholds"]["duration"] = json!("1h30");
    apply_defaults(&mut old);
    let mut new = old.clone();
    new["status"] = json!({"phase": "Healthy"});
    assert_eq!(admit_update(&mut new, &old), Ok(()));
    new["status"] = json!({"phase": "Broken"});
    assert_eq!(admit_update(&mut new, &old).unwrap_err().remove(0).path, "status.phase");
    new["status"] = Value::Null;
    new["spec"]["suspend"] = json!(true);
    assert_eq!(admit_update(&mut new, &old).unwrap_err().remove(0).path, "spec.thresholds.duration");
}
