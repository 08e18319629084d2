//! Built-in kinds, as far as the engine meets them.

use serde_json::{Value, json};

use super::room::{Room, owners, version};

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "readinessGates": [{"conditionType": "policy.trade.io/serving"}]},
        "status": {"phase": "Running"},
    })
}

pub(super) async fn pods_take_metadata_through_status(room: Room) {
    let made = room.post(&room.core("pods?fieldManager=maker"), &pod("p")).await.ok();
    assert_eq!(made["status"]["phase"], "Pending");
    assert_eq!(made["metadata"]["generation"], 1);
    let path = room.core("pods/p");
    let body =
        json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let running = room.merge(&format!("{path}/status"), &body).await.ok();
    assert_eq!(running["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(running["spec"].get("nodeName"), None);
    assert_eq!(running["status"]["phase"], "Running");

    let condition = |status: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "status": {"conditions": [{"type": "policy.trade.io/serving", "status": status}]}})
    };
    for status in ["True", "False"] {
        let gated = room.apply(&format!("{path}/status"), "engine", &condition(status)).await.ok();
        assert_eq!(gated["status"]["conditions"][0]["status"], status);
        assert_eq!(gated["status"]["phase"], "Running");
    }
    let label = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "isolated"}}});
    let refused = room.apply(&path, "engine", &label).await;
    let message = "Apply failed with 1 conflict: conflict with \"maker\" using v1: .metadata.labels.app";
    assert_eq!(refused.failure(), (409, "Conflict", message));
    let moved = room.merge(&path, &json!({"metadata": {"labels": {"app": "isolated"}}})).await.ok();
    assert_eq!(moved["metadata"]["generation"], 1);
}

pub(super) async fn a_deleted_pod_is_answered_with_its_last_state(room: Room) {
    let made = room.post(&room.core("pods"), &pod("p")).await.ok();
    let gone = room.delete(&room.core("pods/p"), &Value::Null).await.ok();
    assert_eq!(gone["kind"], "Pod");
    assert!(gone["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(gone["metadata"]["generation"], 2);
    assert!(version(&gone) > version(&made));
    assert_eq!(room.get(&room.core("pods/p")).await.code, 404);
}

pub(super) async fn deployments_count_generations_and_scale(room: Room) {
    let collection = format!("/apis/apps/v1/namespaces/{}/deployments", room.namespace);
    let path = format!("{collection}/d");
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "status": {"replicas": 9},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    });
    let made = room.post(&collection, &body).await.ok();
    assert_eq!(made["metadata"]["generation"], 1);
    assert_ne!(made["status"]["replicas"], 9);
    let status = json!({"metadata": {"labels": {"sneaked": "in"}}, "status": {"replicas": 2, "observedGeneration": 1}});
    let observed = room.merge(&format!("{path}/status"), &status).await.ok();
    assert_eq!((&observed["status"]["replicas"], observed["metadata"].get("labels")), (&json!(2), None));
    let scale = room.get(&format!("{path}/scale")).await.ok();
    assert_eq!(scale["status"], json!({"replicas": 2, "selector": "app=x"}));
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]);
    let scaled = room.json_patch(&format!("{path}/scale?fieldManager=scaler"), &operations).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(4)));
    let annotated =
        room.merge(&path, &json!({"metadata": {"annotations": {"policy.trade.io/mode": "cache-only"}}})).await.ok();
    // Deployments alone count changes of annotations.
    assert_eq!(annotated["metadata"]["generation"], 3);
    let labelled = room.merge(&path, &json!({"metadata": {"labels": {"x": "1"}}})).await.ok();
    assert_eq!(labelled["metadata"]["generation"], 3);
    let scaler = ("scaler".to_owned(), "Update".to_owned(), "scale".to_owned(), json!({"f:spec": {"f:replicas": {}}}));
    assert!(owners(&annotated).contains(&scaler), "{:?}", owners(&annotated));
    let answer = room.delete(&path, &json!({"propagationPolicy": "Background"})).await.ok();
    assert_eq!((&answer["kind"], &answer["details"]["kind"]), (&json!("Status"), &json!("deployments")));
}

pub(super) async fn leases_are_created_by_put_and_need_a_version(room: Room) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/l", room.namespace);
    let lease = |holder: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.123456Z"}})
    };
    let made = room.put(&format!("{path}?fieldManager=a"), &lease("a")).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    let fields = json!({"f:spec": {"f:holderIdentity": {}, "f:renewTime": {}}});
    assert_eq!(owners(&made), [("a".to_owned(), "Update".to_owned(), String::new(), fields)]);
    assert_eq!(made["metadata"].get("generation"), None);
    assert_eq!(room.put(&path, &lease("b")).await.failure().0, 422);
    let mut renewed = lease("a");
    renewed["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    renewed["spec"]["renewTime"] = json!("2026-01-01T00:00:05.000001Z");
    let after = room.put(&path, &renewed).await.ok();
    assert_eq!(after["spec"]["renewTime"], "2026-01-01T00:00:05.000001Z");
    assert_eq!(room.put(&path, &renewed).await.failure().0, 409);
    let mut taken = lease("b");
    taken["spec"].as_object_mut().unwrap().remove("renewTime");
    assert_eq!(room.apply(&path, "b", &taken).await.failure().0, 409);
}

pub(super) async fn a_service_selector_is_owned_as_a_whole(room: Room) {
    let service = |selector: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": selector, "ports": [{"port": 80, "protocol": "TCP"}]}})
    };
    let body = service(json!({"app": "x", "tier": "1"}));
    room.apply(&room.core("services/s"), "one", &body).await.ok();
    let refused = room.apply(&room.core("services/s"), "two", &service(json!({"app": "y"}))).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .spec.selector";
    assert_eq!(refused.failure(), (409, "Conflict", message));
    let forced = room.force(&room.core("services/s"), "two", &service(json!({"app": "y"}))).await.ok();
    assert_eq!(forced["spec"]["selector"], json!({"app": "y"}));
    assert_eq!(room.delete(&room.core("services/s"), &Value::Null).await.ok()["kind"], "Service");
}

pub(super) async fn config_maps_and_secrets_are_plain(room: Room) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    let made = room.post(&room.core("configmaps?fieldManager=m"), &map).await.ok();
    let fields = json!({"f:data": {".": {}, "f:a": {}}});
    assert_eq!(owners(&made), [("m".to_owned(), "Update".to_owned(), String::new(), fields)]);
    assert_eq!(room.get(&room.core("configmaps/c/status")).await.code, 404);
    let list = room.get(&room.core("configmaps?fieldSelector=metadata.name%3Dc")).await.ok();
    assert_eq!((&list["kind"], list["items"][0].get("kind")), (&json!("ConfigMapList"), None));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "MQ=="}});
    room.post(&room.core("secrets"), &secret).await.ok();
    let wrong = room.post(&room.core("configmaps"), &secret).await;
    assert_eq!((wrong.failure().0, wrong.failure().1), (400, "BadRequest"), "{wrong:?}");
}

pub(super) async fn a_namespace_is_labelled_with_its_name(room: Room) {
    let namespace = room.get(&format!("/api/v1/namespaces/{}", room.namespace)).await.ok();
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], room.namespace.as_str());
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
}
