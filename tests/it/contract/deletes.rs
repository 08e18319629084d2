//! Deleting.

use serde_json::{Value, json};

use super::room::{GROUP, PATIENCE, Room, definition, version, widget};

pub(super) async fn a_deletion_answers_with_a_status(room: Room) {
    let made = room.make("a", json!({})).await;
    let answer = room.delete(&room.path("a"), &Value::Null).await.ok();
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "a", "group": GROUP, "kind": "widgets", "uid": made["metadata"]["uid"]});
    assert_eq!(answer["details"], details);
    assert_eq!(room.get(&room.path("a")).await.code, 404);
    assert_eq!(room.delete(&room.path("a"), &Value::Null).await.failure().0, 404);
    let again = room.make("a", json!({})).await;
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
}

pub(super) async fn finalizers_hold_an_object_until_the_last_is_gone(room: Room) {
    let mut body = widget("a", json!({}));
    body["metadata"]["finalizers"] = json!(["tradeguard.io/x", "tradeguard.io/y"]);
    let made = room.post(&room.widgets(), &body).await.ok();
    let path = room.path("a");
    let deleting = room.delete(&path, &Value::Null).await.ok();
    assert_eq!(deleting["kind"], "Widget");
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(version(&deleting) > version(&made));
    assert_eq!(room.delete(&path, &Value::Null).await.ok(), deleting);
    let changed = room.merge(&path, &json!({"spec": {"size": 5}})).await.ok();
    assert_eq!(changed["spec"]["size"], 5);
    let one = room.merge(&path, &json!({"metadata": {"finalizers": ["tradeguard.io/y"]}})).await.ok();
    assert_eq!(one["metadata"]["finalizers"], json!(["tradeguard.io/y"]));
    let last = room.merge(&path, &json!({"metadata": {"finalizers": []}})).await.ok();
    assert_eq!(last["metadata"].get("finalizers"), None);
    assert_eq!(room.get(&path).await.code, 404);
}

pub(super) async fn no_finalizer_can_be_added_while_deleting(room: Room) {
    let mut body = widget("a", json!({}));
    body["metadata"]["finalizers"] = json!(["tradeguard.io/x"]);
    room.post(&room.widgets(), &body).await.ok();
    let path = room.path("a");
    room.delete(&path, &Value::Null).await.ok();
    let refused = room.merge(&path, &json!({"metadata": {"finalizers": ["tradeguard.io/x", "tradeguard.io/z"]}})).await;
    let (code, reason, message) = refused.failure();
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(
        message
            .contains("metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"),
        "{message}"
    );
    room.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
}

pub(super) async fn preconditions_guard_a_deletion(room: Room) {
    let made = room.make("a", json!({})).await;
    let path = room.path("a");
    let other_uid = json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    let refused = room.delete(&path, &other_uid).await;
    assert_eq!((refused.failure().0, refused.failure().1), (409, "Conflict"), "{refused:?}");
    room.merge(&path, &json!({"spec": {"size": 2}})).await.ok();
    let stale = json!({"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}});
    let refused = room.delete(&path, &stale).await;
    assert_eq!((refused.failure().0, refused.failure().1), (409, "Conflict"), "{refused:?}");
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"]}, "propagationPolicy": "Background"});
    room.delete(&path, &right).await.ok();
}

pub(super) async fn a_collection_is_deleted_by_selector(room: Room) {
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut body = widget(name, json!({}));
        body["metadata"]["labels"] = json!({"app": label});
        room.post(&room.widgets(), &body).await.ok();
    }
    let answer = room.delete(&format!("{}?labelSelector=app%3Dx", room.widgets()), &Value::Null).await.ok();
    assert_eq!(answer["kind"], "WidgetList");
    let left = room.get(&room.widgets()).await.ok();
    let names: Vec<&Value> = left["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, [&json!("c")]);
}

pub(super) async fn a_deleted_custom_resource_definition_takes_its_objects_along(room: Room) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut misnamed = definition("gadgets", "Gadget");
    misnamed["metadata"]["name"] = json!("gadgets.elsewhere");
    let wrong = room.post(definitions, &misnamed).await;
    let (code, reason, message) = wrong.failure();
    assert!(code == 422 && reason == "Invalid" && message.contains("metadata.name: Invalid value"), "{message}");

    let made = room.post(definitions, &definition("gadgets", "Gadget")).await.ok();
    assert_eq!(made["spec"]["names"]["singular"], "gadget");
    assert_eq!(made["spec"]["names"]["listKind"], "GadgetList");
    room.wait_established("gadgets").await;
    let path = format!("{definitions}/gadgets.{GROUP}");
    let standing = room.get(&path).await.ok();
    assert_eq!(standing["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(standing["status"]["acceptedNames"]["kind"], "Gadget");
    let collection = format!("/apis/{GROUP}/v1/namespaces/{}/gadgets", room.namespace);
    let gadget = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gadget", "metadata": {"name": "g"}});
    room.post(&collection, &gadget).await.ok();
    room.delete(&path, &Value::Null).await.ok();
    let gone = async {
        while room.get(&path).await.code != 404 || room.get(&collection).await.code != 404 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the definition goes with its objects");
}
