//! Creating and updating.

use serde_json::{Value, json};

use super::room::{GROUP, PATIENCE, Room, version, widget};

pub(super) async fn creating_twice_is_already_exists(room: Room) {
    room.make("a", json!({"size": 1})).await;
    let again = room.post(&room.widgets(), &widget("a", json!({}))).await;
    let message = format!("widgets.{GROUP} \"a\" already exists");
    assert_eq!(again.failure(), (409, "AlreadyExists", message.as_str()));
    assert_eq!(again.body["details"], json!({"name": "a", "group": GROUP, "kind": "widgets"}));
}

pub(super) async fn a_created_object_has_what_the_server_adds(room: Room) {
    let mut body = widget("a", json!({"size": 2}));
    body["metadata"]["labels"] = json!({});
    body["metadata"]["finalizers"] = json!([]);
    body["metadata"]["generation"] = json!(7);
    let answer = room.post(&room.widgets(), &body).await;
    assert_eq!(answer.code, 201);
    let made = answer.ok();
    let metadata = made["metadata"].as_object().unwrap();
    let keys: Vec<&str> = metadata.keys().map(String::as_str).collect();
    let mut wanted =
        ["creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "uid"];
    wanted.sort_unstable();
    let mut keys = keys.clone();
    keys.sort_unstable();
    assert_eq!(keys, wanted);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(made["metadata"]["creationTimestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(room.get(&room.path("a")).await.ok(), made);

    let mut with_version = widget("b", json!({}));
    with_version["metadata"]["resourceVersion"] = json!("5");
    let refused = room.post(&room.widgets(), &with_version).await;
    let message = "resourceVersion should not be set on objects to be created";
    assert!(refused.failure().2.contains(message), "{refused:?}");
}

pub(super) async fn generated_names_are_the_base_and_five_letters(room: Room) {
    let mut body = widget("", json!({}));
    body["metadata"] = json!({"generateName": "made-"});
    let made = room.post(&room.widgets(), &body).await.ok();
    let name = made["metadata"]["name"].as_str().unwrap();
    let suffix = name.strip_prefix("made-").unwrap();
    assert!(suffix.len() == 5 && suffix.chars().all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter)), "{name}");
    assert_eq!(made["metadata"]["generateName"], "made-");
    let other = room.post(&room.widgets(), &body).await.ok();
    assert_ne!(other["metadata"]["name"], made["metadata"]["name"]);
}

pub(super) async fn a_bad_or_missing_name_is_refused(room: Room) {
    let missing = room.post(&room.widgets(), &widget("", json!({}))).await;
    let wanted =
        format!("Widget.{GROUP} \"\" is invalid: metadata.name: Required value: name or generateName is required");
    assert_eq!(missing.failure(), (422, "Invalid", wanted.as_str()));
    let bad = room.post(&room.widgets(), &widget("Bad_Name", json!({}))).await;
    let (code, reason, message) = bad.failure();
    assert_eq!((code, reason), (422, "Invalid"));
    let head = format!(
        "Widget.{GROUP} \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123"
    );
    assert!(message.starts_with(&head), "{message}");
    assert_eq!(bad.body["details"]["kind"], "Widget");
    assert_eq!(bad.body["details"]["causes"][0]["field"], "metadata.name");
    assert_eq!(bad.body["details"]["causes"][0]["reason"], "FieldValueInvalid");
}

pub(super) async fn objects_need_their_namespace(room: Room) {
    let path = format!("/apis/{GROUP}/v1/namespaces/nowhere/widgets");
    let refused = room.post(&path, &widget("a", json!({}))).await;
    assert_eq!(refused.failure(), (404, "NotFound", "namespaces \"nowhere\" not found"));
    let mut elsewhere = widget("a", json!({}));
    elsewhere["metadata"]["namespace"] = json!("elsewhere");
    let refused = room.post(&room.widgets(), &elsewhere).await;
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    assert_eq!(refused.failure(), (400, "BadRequest", message));
    let missing = room.get(&room.path("none")).await;
    assert_eq!(missing.failure(), (404, "NotFound", format!("widgets.{GROUP} \"none\" not found").as_str()));
}

pub(super) async fn a_stale_version_conflicts(room: Room) {
    let old = room.make("a", json!({"size": 1})).await;
    let mut new = old.clone();
    new["spec"]["size"] = json!(2);
    let updated = room.put(&room.path("a"), &new).await.ok();
    assert!(version(&updated) > version(&old));
    let stale = room.put(&room.path("a"), &new).await;
    let message = format!(
        "Operation cannot be fulfilled on widgets.{GROUP} \"a\": the object has been modified; please apply your changes to the latest version and try again"
    );
    assert_eq!(stale.failure(), (409, "Conflict", message.as_str()));
    let mut other_uid = updated.clone();
    other_uid["metadata"]["uid"] = json!("00000000-0000-4000-8000-000000000000");
    let refused = room.put(&room.path("a"), &other_uid).await;
    assert_eq!((refused.failure().0, refused.failure().1), (409, "Conflict"), "{refused:?}");
}

pub(super) async fn an_update_of_a_custom_resource_needs_a_version(room: Room) {
    room.make("a", json!({"size": 1})).await;
    let refused = room.put(&room.path("a"), &widget("a", json!({"size": 2}))).await;
    let message = format!(
        "widgets.{GROUP} \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    assert_eq!(refused.failure(), (422, "Invalid", message.as_str()));

    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}});
    room.post(&room.core("configmaps"), &map).await.ok();
    let mut changed = map.clone();
    changed["data"]["a"] = json!("2");
    let updated = room.put(&room.core("configmaps/c"), &changed).await.ok();
    assert_eq!(updated["data"]["a"], "2");
    assert_eq!(updated["metadata"].get("generation"), None);
}

pub(super) async fn generation_moves_with_spec_only(room: Room) {
    let path = room.path("a");
    let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
    assert_eq!(generation(&room.make("a", json!({"size": 1})).await), 1);
    let labelled =
        room.merge(&path, &json!({"metadata": {"labels": {"x": "1"}, "annotations": {"y": "2"}}})).await.ok();
    assert_eq!(generation(&labelled), 1);
    let status = room.merge(&format!("{path}/status"), &json!({"status": {"phase": "On"}})).await.ok();
    assert_eq!(generation(&status), 1);
    let grown = room.merge(&path, &json!({"spec": {"size": 5}})).await.ok();
    assert_eq!(generation(&grown), 2);
    let held = room.merge(&path, &json!({"metadata": {"finalizers": ["tradeguard.io/x"]}})).await.ok();
    assert_eq!(generation(&held), 2);
    let scaled = room.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 3}})).await.ok();
    assert_eq!(scaled["spec"]["replicas"], 3);
    assert_eq!(generation(&room.get(&path).await.ok()), 3);
    let claimed = room.merge(&path, &json!({"metadata": {"generation": 17}})).await.ok();
    assert_eq!(generation(&claimed), 3);
    let deleting = room.delete(&path, &Value::Null).await.ok();
    assert_eq!(generation(&deleting), 4);
    room.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
}

pub(super) async fn status_is_apart_from_the_rest(room: Room) {
    let mut body = widget("a", json!({"size": 1}));
    body["status"] = json!({"phase": "Forged"});
    let made = room.post(&room.widgets(), &body).await.ok();
    assert_eq!(made.get("status"), None);

    let status = json!({"metadata": {"labels": {"sneaked": "in"}}, "spec": {"size": 9}, "status": {"phase": "On"}});
    let through_status = room.merge(&format!("{}/status", room.path("a")), &status).await.ok();
    assert_eq!(through_status["status"], json!({"phase": "On"}));
    assert_eq!(through_status["spec"], json!({"size": 1}));
    assert_eq!(through_status["metadata"].get("labels"), None);

    let main = room.merge(&room.path("a"), &json!({"spec": {"note": "n"}, "status": {"phase": "Forged"}})).await.ok();
    assert_eq!(main["status"], json!({"phase": "On"}));
    assert_eq!(main["spec"], json!({"size": 1, "note": "n"}));
    assert_eq!(room.get(&format!("{}/status", room.path("a"))).await.ok(), main);
}

pub(super) async fn a_write_that_changes_nothing_keeps_the_version(room: Room) {
    let path = room.path("a");
    let made = room.make("a", json!({"size": 1})).await;
    let put = room.put(&path, &made).await.ok();
    assert_eq!(version(&put), version(&made));
    let merged = room.merge(&path, &json!({"spec": {"size": 1}})).await.ok();
    assert_eq!(version(&merged), version(&made));
    let tested = room.json_patch(&path, &json!([{"op": "test", "path": "/spec/size", "value": 1}])).await.ok();
    assert_eq!(tested, made);
    let emptied = room.merge(&path, &json!({"metadata": {"labels": {}}})).await.ok();
    assert_eq!(version(&emptied), version(&made));
}

pub(super) async fn undeclared_fields_are_pruned_and_defaults_filled_in(room: Room) {
    let spec = json!({"typo": 1, "free": {"any": {"thing": [1]}}, "byName": {"k": "v"}});
    let made = room.make("a", spec).await;
    assert_eq!(made["spec"], json!({"size": 1, "free": {"any": {"thing": [1]}}, "byName": {"k": "v"}}));
    let path = format!("{}/status", room.path("a"));
    let status = room.merge(&path, &json!({"status": {"phase": "On", "typo": true}})).await.ok();
    assert_eq!(status["status"], json!({"phase": "On"}));
}

pub(super) async fn a_dry_run_stores_nothing(room: Room) {
    let collection = format!("{}?dryRun=All", room.widgets());
    let tried = room.post(&collection, &widget("a", json!({}))).await;
    assert_eq!(tried.code, 201);
    assert_eq!(tried.body["metadata"].get("resourceVersion"), None);
    assert_eq!(room.get(&room.path("a")).await.code, 404);
    let made = room.make("a", json!({"size": 1})).await;
    let path = room.path("a");
    let patched = room.merge(&format!("{path}?dryRun=All"), &json!({"spec": {"size": 4}})).await.ok();
    assert_eq!(patched["spec"]["size"], 4);
    room.delete(&format!("{path}?dryRun=All"), &Value::Null).await.ok();
    assert_eq!(room.get(&path).await.ok(), made);
    let other = room.merge(&format!("{path}?dryRun=Some"), &json!({})).await;
    assert_eq!((other.failure().0, other.failure().1), (422, "Invalid"), "{other:?}");
}

pub(super) async fn scale_reads_and_sets_the_replicas(room: Room) {
    room.make("a", json!({"replicas": 2})).await;
    let status = json!({"status": {"replicas": 1, "selector": "app=x"}});
    room.merge(&format!("{}/status", room.path("a")), &status).await.ok();
    let path = format!("{}/scale", room.path("a"));
    let mut scale = room.get(&path).await.ok();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=x"}));
    scale["spec"]["replicas"] = json!(5);
    assert_eq!(room.put(&path, &scale).await.ok()["spec"], json!({"replicas": 5}));
    assert_eq!(room.put(&path, &scale).await.code, 409);
    assert_eq!(room.get(&room.path("a")).await.ok()["spec"]["replicas"], 5);
}

pub(super) async fn both_groups_show_the_same_events(room: Room) {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a.1"}, "type": "Normal",
        "regarding": {"kind": "Widget", "name": "a", "namespace": room.namespace}, "reason": "Seen", "action": "See",
        "note": "hello", "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
    });
    let collection = format!("/apis/events.k8s.io/v1/namespaces/{}/events", room.namespace);
    let made = room.post(&collection, &event).await.ok();
    assert_eq!(made["note"], "hello");
    let old = room.get(&room.core("events/a.1")).await.ok();
    assert_eq!((&old["apiVersion"], &old["message"]), (&json!("v1"), &json!("hello")));
    assert_eq!(old["involvedObject"]["name"], "a");
    assert_eq!(old["reportingComponent"], "c");
    let selected = room.get(&room.core("events?fieldSelector=involvedObject.name%3Da")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let none = room.get(&format!("{collection}?fieldSelector=regarding.name%3Db")).await.ok();
    assert_eq!(none["items"], json!([]));
    tokio::time::timeout(PATIENCE, room.delete(&room.core("events/a.1"), &Value::Null)).await.unwrap().ok();
}
