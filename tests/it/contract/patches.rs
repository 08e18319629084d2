//! JSON Patch and Merge Patch.

use serde_json::{Value, json};

use super::room::{GROUP, Room};

const REJECTED: &str = "the server rejected our request due to an error in our request";

pub(super) async fn a_failed_test_is_invalid(room: Room) {
    let made = room.make("a", json!({"size": 1})).await;
    let operations = json!([
        {"op": "test", "path": "/spec/size", "value": 2},
        {"op": "replace", "path": "/spec/size", "value": 3},
    ]);
    let refused = room.json_patch(&room.path("a"), &operations).await;
    assert_eq!(refused.failure(), (422, "Invalid", REJECTED));
    let missing = json!([{"op": "remove", "path": "/spec/note"}]);
    assert_eq!(room.json_patch(&room.path("a"), &missing).await.failure(), (422, "Invalid", REJECTED));
    assert_eq!(room.get(&room.path("a")).await.ok(), made);
}

pub(super) async fn null_tests_an_absent_key(room: Room) {
    room.make("a", json!({"size": 1})).await;
    let path = room.path("a");
    let operations = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["tradeguard.io/x"]},
    ]);
    let held = room.json_patch(&path, &operations).await.ok();
    assert_eq!(held["metadata"]["finalizers"], json!(["tradeguard.io/x"]));
    assert_eq!(room.json_patch(&path, &operations).await.failure().0, 422);
    let more = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": ["tradeguard.io/x"]},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "tradeguard.io/y"},
    ]);
    let two = room.json_patch(&path, &more).await.ok();
    assert_eq!(two["metadata"]["finalizers"], json!(["tradeguard.io/x", "tradeguard.io/y"]));
    let none =
        room.json_patch(&path, &json!([{"op": "replace", "path": "/metadata/finalizers", "value": []}])).await.ok();
    assert_eq!(none["metadata"].get("finalizers"), None);
}

pub(super) async fn malformed_patches_are_refused(room: Room) {
    room.make("a", json!({})).await;
    let path = room.path("a");
    let not_a_list = room.json_patch(&path, &json!({"op": "add"})).await;
    assert_eq!((not_a_list.failure().0, not_a_list.failure().1), (400, "BadRequest"), "{not_a_list:?}");
    let strategic = room.send(http::Method::PATCH, &path, "application/strategic-merge-patch+json", &json!({})).await;
    assert_eq!((strategic.failure().0, strategic.failure().1), (415, "UnsupportedMediaType"), "{strategic:?}");
    let many: Vec<Value> = vec![json!({"op": "test", "path": "/kind", "value": "Widget"}); 10_001];
    let too_many = room.json_patch(&path, &json!(many)).await;
    assert_eq!((too_many.failure().0, too_many.failure().1), (413, "RequestEntityTooLarge"), "{too_many:?}");
}

pub(super) async fn a_patch_that_names_a_version_is_guarded_by_it(room: Room) {
    let made = room.make("a", json!({"size": 1})).await;
    let path = room.path("a");
    room.merge(&path, &json!({"spec": {"size": 2}})).await.ok();
    let stale = json!({"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"size": 3}});
    let refused = room.merge(&path, &stale).await;
    assert_eq!((refused.failure().0, refused.failure().1), (409, "Conflict"), "{refused:?}");
    let replace = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/size", "value": 3},
    ]);
    assert_eq!(room.json_patch(&path, &replace).await.failure().0, 409);
    let fresh = room.get(&path).await.ok();
    let guarded = json!({"metadata": {"resourceVersion": fresh["metadata"]["resourceVersion"]}, "spec": {"size": 3}});
    assert_eq!(room.merge(&path, &guarded).await.ok()["spec"]["size"], 3);
}

pub(super) async fn null_in_a_merge_patch_removes(room: Room) {
    room.make("a", json!({"size": 4, "note": "n", "plain": ["x", "y"], "byName": {"k": "v", "l": "w"}})).await;
    let patch = json!({"spec": {"size": null, "note": null, "plain": ["z"], "byName": {"k": null}}});
    let patched = room.merge(&room.path("a"), &patch).await.ok();
    assert_eq!(patched["spec"], json!({"size": 1, "plain": ["z"], "byName": {"l": "w"}}));
}

pub(super) async fn identity_cannot_be_patched(room: Room) {
    let made = room.make("a", json!({})).await;
    let path = room.path("a");
    let renamed = room.merge(&path, &json!({"metadata": {"name": "b"}})).await;
    assert_eq!((renamed.failure().0, renamed.failure().1), (400, "BadRequest"), "{renamed:?}");
    let moved = room.merge(&path, &json!({"metadata": {"namespace": "elsewhere"}})).await;
    assert_eq!((moved.failure().0, moved.failure().1), (400, "BadRequest"), "{moved:?}");
    let reborn = room.merge(&path, &json!({"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}})).await;
    let (code, reason, message) = reborn.failure();
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(message.contains("metadata.uid: Invalid value") && message.contains("field is immutable"), "{message}");
    let created = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "uid": null, "generation": 9}});
    assert_eq!(room.merge(&path, &created).await.ok(), made);
    for (patch, field) in [
        (json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}), "metadata.deletionTimestamp"),
        (json!({"kind": "Gadget"}), "kind"),
        (json!({"apiVersion": format!("{GROUP}/v2")}), "apiVersion"),
        (json!({"metadata": {"labels": {"x": "no spaces"}}}), "metadata.labels"),
        (json!({"metadata": {"labels": {"x/y/z": "a"}}}), "metadata.labels"),
        (
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x"}]}}),
            "metadata.ownerReferences[0].uid",
        ),
    ] {
        let refused = room.merge(&path, &patch).await;
        assert_eq!((refused.failure().0, refused.failure().1), (422, "Invalid"), "{patch}: {refused:?}");
        assert_eq!(refused.body["details"]["causes"][0]["field"], field, "{patch}: {refused:?}");
    }
    let nameless = room.merge(&path, &json!({"metadata": {"name": null}})).await;
    let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!(nameless.failure(), (400, "BadRequest", message));
}

pub(super) async fn a_patch_of_what_is_missing_is_not_found(room: Room) {
    let missing = room.merge(&room.path("none"), &json!({"spec": {}})).await;
    assert_eq!(missing.failure(), (404, "NotFound", format!("widgets.{GROUP} \"none\" not found").as_str()));
    let status = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "status": {"phase": "On"}});
    let applied = room.apply(&format!("{}/status", room.path("none")), "m", &status).await;
    assert_eq!(applied.failure().0, 404);
}
