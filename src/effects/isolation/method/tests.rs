#![allow(clippy::needless_pass_by_value)] // `json!` at the call reads better than a reference to it

use serde_json::json;

use super::*;

fn pod(labels: serde_json::Value, gate: Option<&str>) -> Pod {
    let gates = if gate.is_some() { json!([{"conditionType": SERVING_GATE}]) } else { json!([]) };
    let conditions = match gate {
        Some(status) if !status.is_empty() => json!([{"type": SERVING_GATE, "status": status}]),
        _ => json!([]),
    };
    serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": labels},
        "spec": {"containers": [], "readinessGates": gates},
        "status": {"conditions": conditions},
    }))
    .unwrap()
}

fn service(selector: serde_json::Value) -> Arc<Service> {
    Arc::new(serde_json::from_value(json!({"spec": {"selector": selector}})).unwrap())
}

fn controller(kind: &str, selector: serde_json::Value) -> Controller {
    Controller { kind: kind.to_owned(), selector: Some(serde_json::from_value(selector).unwrap()) }
}

fn by_label(key: &str, value: &str, replaced: bool) -> IsolatedBy {
    IsolatedBy::Label { key: key.to_owned(), value: value.to_owned(), replaced }
}

#[test]
fn a_pod_with_our_gate_is_isolated_by_it() {
    let replica_set = controller("ReplicaSet", json!({"matchLabels": {"app": "a"}}));
    let services = [service(json!({"app": "a"}))];
    assert_eq!(
        how_isolable(&pod(json!({"app": "a"}), Some("True")), &services, Some(&replica_set)),
        Ok(IsolatedBy::Gate)
    );
}

#[test]
fn a_label_that_only_services_need_comes_before_one_that_the_controller_needs_too() {
    let labels = json!({"app": "a", "serving": "yes"});
    let services = [service(json!({"app": "a", "serving": "yes"})), service(json!({"serving": "yes"}))];
    for kind in ["ReplicaSet", "StatefulSet"] {
        let owner = controller(kind, json!({"matchLabels": {"app": "a"}}));
        let found = how_isolable(&pod(labels.clone(), None), &services, Some(&owner));
        assert_eq!(found, Ok(by_label("serving", "yes", false)), "{kind}");
    }
}

#[test]
fn a_label_that_both_need_has_the_pod_replaced_but_never_in_a_stateful_set() {
    let services = [service(json!({"app": "a"}))];
    let find = |kind: &str| {
        how_isolable(
            &pod(json!({"app": "a"}), None),
            &services,
            Some(&controller(kind, json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}))),
        )
    };
    assert_eq!(find("ReplicaSet"), Ok(by_label("app", "a", true)));
    assert_eq!(find("StatefulSet"), Err(Reason::NotIsolable));
}

#[test]
fn a_pod_that_nobody_controls_loses_any_label() {
    let services = [service(json!({"app": "a"}))];
    assert_eq!(how_isolable(&pod(json!({"app": "a"}), None), &services, None), Ok(by_label("app", "a", false)));
}

#[test]
fn without_one_label_for_all_services_or_a_known_selector_a_pod_is_not_isolable() {
    let both = json!({"app": "a", "tier": "web"});
    let apart = [service(json!({"app": "a"})), service(json!({"tier": "web"}))];
    assert_eq!(how_isolable(&pod(both.clone(), None), &apart, None), Err(Reason::NotIsolable));
    let unknown = Controller { kind: "CloneSet".to_owned(), selector: None };
    assert_eq!(how_isolable(&pod(both.clone(), None), &apart[..1], Some(&unknown)), Err(Reason::NotIsolable));
    assert_eq!(how_isolable(&pod(both, None), &[], None), Err(Reason::NotIsolable), "no Service selects it");
}

#[test]
fn a_controller_keeps_a_pod_whose_label_it_does_not_need() {
    let labels = json!({"app": "a", "canary": "no"});
    let services = [service(json!({"canary": "no"}))];
    let tolerant = json!({"matchLabels": {"app": "a"}, "matchExpressions": [
        {"key": "canary", "operator": "NotIn", "values": ["yes"]}, {"key": "app", "operator": "Exists"}]});
    let found = how_isolable(&pod(labels, None), &services, Some(&controller("ReplicaSet", tolerant)));
    assert_eq!(found, Ok(by_label("canary", "no", false)));
}

#[test]
fn in_service_means_selected_and_not_gated() {
    let services = [service(json!({"app": "a"}))];
    let (a, b) = (json!({"app": "a"}), json!({"app": "b"}));
    assert!(is_in_service(&pod(a.clone(), None), &services));
    assert!(is_in_service(&pod(a.clone(), Some("True")), &services));
    assert!(!is_in_service(&pod(a.clone(), Some("False")), &services));
    assert!(!is_in_service(&pod(b, None), &services));
    let outside: Arc<Service> =
        Arc::new(serde_json::from_value(json!({"spec": {"type": "ExternalName", "selector": {"app": "a"}}})).unwrap());
    assert!(!is_in_service(&pod(a.clone(), None), &[outside, service(json!({}))]), "these select nothing");
}

#[test]
fn what_stands_is_told_by_exactly_the_recorded_key_and_value() {
    let by = by_label("app", "a", true);
    assert_eq!(standing(&pod(json!({}), None), &by), PodStanding::Isolated);
    assert_eq!(standing(&pod(json!({"app": "a"}), None), &by), PodStanding::Original);
    assert_eq!(standing(&pod(json!({"app": "b"}), None), &by), PodStanding::Foreign("b".to_owned()));
    assert_eq!(standing(&pod(json!({}), Some("False")), &IsolatedBy::Gate), PodStanding::Isolated);
    assert_eq!(standing(&pod(json!({}), Some("")), &IsolatedBy::Gate), PodStanding::Original);
}
