//! JSON Patch and Merge Patch.

use serde_json::{Value, json};

use super::room::{GROUP, Room};

const REJECTED: &str = "the server rejected our request due to an error in our request";

pub(super) async fn a_failed_test_is_invalid(room: Room) {
    let made = room.make("a", json!({"size": 1})).await;
    let patch = json!([
        {"op": "test", "path": "/spec/size", "value": 2},
        {"op": "replace", "path": "/spec/size", "value": 3},
    ]);
    let refused = room.json_patch(&room.path("a"), &patch).await;
    assert_eq!(refused.failure(), (422, "Invalid", REJECTED));
    let missing = json!([{"op": "remove", "path": "/spec/note"}]);
    assert_eq!(room.json_patch(&room.path("a"), &missing).await.failure(), (422, "Invalid", REJECTED));
    assert_eq!(room.get(&room.path("a")).await.ok(), made);
}

pub(super) async fn null_tests_an_absent_key(room: Room) {
    room.make("a", json!({"size": 1})).await;
    let path = room.path("a");
    let patch = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["tradeguard.io/x"]},
    ]);
    let held = room.json_patch(&path, &patch).await.ok();
    assert_eq!(held["metadata"]["finalizers"], json!(["tradeguard.io/x"]));
    assert_eq!(room.json_patch(&path, &patch).await.failure().0, 422);
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
    assert_eq!((reborn.failure().0, reborn.failure().1), (409, "Conflict"), "{reborn:?}");
    let times =
        json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}});
    assert_eq!(room.merge(&path, &times).await.ok(), made);
    let other_kind = room.merge(&path, &json!({"kind": "Gadget"})).await;
    assert_eq!((other_kind.failure().0, other_kind.failure().1), (400, "BadRequest"), "{other_kind:?}");
}

pub(super) async fn a_patch_of_what_is_missing_is_not_found(room: Room) {
    let missing = room.merge(&room.path("none"), &json!({"spec": {}})).await;
    assert_eq!(missing.failure(), (404, "NotFound", format!("widgets.{GROUP} \"none\" not found").as_str()));
    let status = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "status": {"phase": "On"}});
    let applied = room.apply(&format!("{}/status", room.path("none")), "m", &status).await;
    assert_eq!(applied.failure().0, 404);
}
