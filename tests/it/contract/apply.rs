//! Server-side apply and the ownership of fields.

use serde_json::{Value, json};

use super::room::{GROUP, Room, owners, version};

fn config(rest: Value) -> Value {
    let mut config = rest;
    config["apiVersion"] = json!(format!("{GROUP}/v1"));
    config["kind"] = json!("Widget");
    config["metadata"]["name"] = json!("a");
    config
}

fn owned_by(object: &Value, manager: &str) -> Vec<Value> {
    owners(object).into_iter().filter(|owner| owner.0 == manager).map(|owner| owner.3).collect()
}

pub(super) async fn an_applied_object_belongs_to_its_manager(room: Room) {
    let wanted = config(json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"size": 2, "tags": ["a", "b"], "plain": ["p"], "byName": {"k": "v"}, "free": {"in": {"deep": 1}}},
    }));
    let answer = room.apply(&room.path("a"), "one", &wanted).await;
    assert_eq!(answer.code, 201);
    let fields = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:size": {}, "f:plain": {}, "f:tags": {"v:\"a\"": {}, "v:\"b\"": {}}, "f:byName": {"f:k": {}},
            "f:free": {"f:in": {".": {}, "f:deep": {}}},
        },
    });
    assert_eq!(owners(&answer.ok()), [("one".to_owned(), "Apply".to_owned(), String::new(), fields)]);
}

pub(super) async fn what_is_no_longer_applied_goes(room: Room) {
    let path = room.path("a");
    let first =
        config(json!({"metadata": {"labels": {"x": "1", "y": "2"}}, "spec": {"note": "n", "tags": ["a", "b"]}}));
    room.apply(&path, "one", &first).await.ok();
    room.apply(&path, "two", &config(json!({"metadata": {"labels": {"y": "2"}}, "spec": {"tags": ["b", "c"]}})))
        .await
        .ok();
    let second = room.apply(&path, "one", &config(json!({"spec": {"size": 3}}))).await.ok();
    assert_eq!(second["metadata"]["labels"], json!({"y": "2"}));
    assert_eq!(second["spec"], json!({"size": 3, "tags": ["b", "c"]}));
    assert_eq!(owned_by(&second, "one"), [json!({"f:spec": {"f:size": {}}})]);
    let released = room.apply(&path, "one", &config(json!({}))).await.ok();
    assert_eq!(owned_by(&released, "one"), Vec::<Value>::new());
    assert_eq!(released["spec"], json!({"size": 1, "tags": ["b", "c"]}));
}

pub(super) async fn another_managers_field_conflicts_until_forced(room: Room) {
    let path = room.path("a");
    room.apply(&path, "one", &config(json!({"metadata": {"labels": {"x": "1"}}, "spec": {"note": "n"}}))).await.ok();
    let other = config(json!({"metadata": {"labels": {"x": "2"}}}));
    let refused = room.apply(&path, "two", &other).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\": .metadata.labels.x";
    assert_eq!(refused.failure(), (409, "Conflict", message));
    let cause =
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".metadata.labels.x"}]);
    assert_eq!(refused.body["details"]["causes"], cause);
    let forced = room.force(&path, "two", &other).await.ok();
    assert_eq!(forced["metadata"]["labels"], json!({"x": "2"}));
    assert_eq!(owned_by(&forced, "one"), [json!({"f:spec": {"f:note": {}}})]);
    assert_eq!(owned_by(&forced, "two"), [json!({"f:metadata": {"f:labels": {"f:x": {}}}})]);
    let both = config(json!({"metadata": {"labels": {"x": "3"}}, "spec": {"note": "m"}}));
    let several = room.apply(&path, "three", &both).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.note\nconflicts with \"two\":\n- .metadata.labels.x";
    assert_eq!(several.failure(), (409, "Conflict", message));
}

pub(super) async fn the_same_value_is_shared_without_conflict(room: Room) {
    let path = room.path("a");
    let same = config(json!({"spec": {"note": "n"}}));
    let first = room.apply(&path, "one", &same).await.ok();
    let shared = room.apply(&path, "two", &same).await.ok();
    assert!(version(&shared) > version(&first));
    assert_eq!(owners(&shared).len(), 2);
    let left = room.apply(&path, "one", &config(json!({}))).await.ok();
    assert_eq!(left["spec"]["note"], "n");
    let gone = room.apply(&path, "two", &config(json!({}))).await.ok();
    assert_eq!(gone["spec"].get("note"), None);
}

pub(super) async fn applying_the_same_again_changes_nothing(room: Room) {
    let path = room.path("a");
    let wanted = config(json!({"metadata": {"labels": {"x": "1"}}, "spec": {"size": 2}}));
    let first = room.apply(&path, "one", &wanted).await.ok();
    let again = room.apply(&path, "one", &wanted).await;
    assert_eq!(again.code, 200);
    assert_eq!(again.ok(), first);
    let status = config(json!({"status": {"phase": "On"}}));
    let path = format!("{path}/status");
    let first = room.force(&path, "one", &status).await.ok();
    assert_eq!(room.force(&path, "one", &status).await.ok(), first);
}

pub(super) async fn conditions_are_owned_by_type(room: Room) {
    room.make("a", json!({})).await;
    let path = format!("{}/status", room.path("a"));
    let condition =
        |kind: &str, status: &str| config(json!({"status": {"conditions": [{"type": kind, "status": status}]}}));
    room.apply(&path, "one", &condition("Ready", "True")).await.ok();
    let both = room.apply(&path, "two", &condition("Blind", "False")).await.ok();
    let wanted = json!([{"type": "Ready", "status": "True"}, {"type": "Blind", "status": "False"}]);
    assert_eq!(both["status"]["conditions"], wanted);
    let fields =
        json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}, "f:type": {}}}}});
    assert_eq!(owned_by(&both, "one"), [fields]);
    let subresources: Vec<String> =
        owners(&both).into_iter().map(|owner| owner.2).filter(|one| !one.is_empty()).collect();
    assert_eq!(subresources, ["status", "status"]);
    let refused = room.apply(&path, "two", &condition("Ready", "False")).await;
    let message = "Apply failed with 1 conflict: conflict with \"one\" with subresource \"status\": .status.conditions[type=\"Ready\"].status";
    assert_eq!(refused.failure(), (409, "Conflict", message));
    let left = room.apply(&path, "two", &config(json!({"status": {}}))).await.ok();
    assert_eq!(left["status"]["conditions"], json!([{"type": "Ready", "status": "True"}]));
}

pub(super) async fn updates_own_what_they_change(room: Room) {
    let path = room.path("a");
    let body = super::room::widget("a", json!({"size": 2, "note": "n"}));
    let made = room.post(&format!("{}?fieldManager=maker", room.widgets()), &body).await.ok();
    let all = json!({"f:spec": {".": {}, "f:note": {}, "f:size": {}}});
    assert_eq!(owners(&made), [("maker".to_owned(), "Update".to_owned(), String::new(), all)]);
    let change = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {"size": 3}});
    let changed = room.merge(&format!("{path}?fieldManager=editor"), &change).await.ok();
    assert_eq!(owned_by(&changed, "maker"), [json!({"f:spec": {".": {}, "f:note": {}}})]);
    let edited = json!({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}, "f:spec": {"f:size": {}}});
    assert_eq!(owned_by(&changed, "editor"), [edited]);
    let refused = room.apply(&path, "one", &config(json!({"spec": {"size": 4}}))).await;
    let (code, _, message) = refused.failure();
    let head = format!("Apply failed with 1 conflict: conflict with \"editor\" using {GROUP}/v1: .spec.size");
    assert_eq!((code, message), (409, head.as_str()));
    let status =
        room.merge(&format!("{path}/status?fieldManager=editor"), &json!({"status": {"phase": "On"}})).await.ok();
    let apart =
        ("editor".to_owned(), "Update".to_owned(), "status".to_owned(), json!({"f:status": {".": {}, "f:phase": {}}}));
    assert!(owners(&status).contains(&apart), "{:?}", owners(&status));
}

pub(super) async fn a_json_patch_can_remove_one_owner(room: Room) {
    let path = room.path("a");
    room.apply(&path, "one", &config(json!({"spec": {"note": "n"}}))).await.ok();
    let two = room.apply(&path, "two", &config(json!({"metadata": {"labels": {"x": "1"}}}))).await.ok();
    let entries = two["metadata"]["managedFields"].as_array().unwrap();
    let index = entries.iter().position(|entry| entry["manager"] == "two").unwrap();
    let at = format!("/metadata/managedFields/{index}");
    let operations = json!([
        {"op": "test", "path": format!("{at}/manager"), "value": "two"},
        {"op": "remove", "path": at},
    ]);
    let freed = room.json_patch(&format!("{path}?fieldManager=remover"), &operations).await.ok();
    assert_eq!(freed["metadata"]["labels"], json!({"x": "1"}));
    assert_eq!(owners(&freed).into_iter().map(|owner| owner.0).collect::<Vec<_>>(), ["one"]);
    assert!(version(&freed) > version(&two));
    // The last entry goes only by a reset; afterwards nobody owns anything until the next apply.
    let reset =
        room.merge(&format!("{path}?fieldManager=remover"), &json!({"metadata": {"managedFields": [{}]}})).await.ok();
    assert_eq!(reset["metadata"].get("managedFields"), None);
    let labelled =
        room.merge(&format!("{path}?fieldManager=late"), &json!({"metadata": {"labels": {"y": "2"}}})).await.ok();
    assert_eq!(labelled["metadata"].get("managedFields"), None);
    let applied = room.apply(&path, "three", &config(json!({"metadata": {"labels": {"z": "3"}}}))).await.ok();
    let managers: Vec<String> = owners(&applied).into_iter().map(|owner| owner.0).collect();
    assert_eq!(managers, ["before-first-apply", "three"]);
    let before = json!({"f:metadata": {"f:labels": {".": {}, "f:x": {}, "f:y": {}}}, "f:spec": {".": {}, "f:note": {}, "f:size": {}}});
    assert_eq!(owned_by(&applied, "before-first-apply"), [before]);
}

pub(super) async fn an_apply_needs_a_manager_and_no_managed_fields(room: Room) {
    let path = room.path("a");
    let mut nameless = config(json!({}));
    nameless["metadata"] = json!({});
    let refused = room.apply(&path, "one", &nameless).await;
    let message = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!(refused.failure(), (400, "BadRequest", message));
    let nobody = room.send(http::Method::PATCH, &path, "application/apply-patch+yaml", &config(json!({}))).await;
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(nobody.failure(), (422, "Invalid", message));
    room.make("a", json!({})).await;
    let owned = config(json!({"metadata": {"managedFields": [{"manager": "m"}]}}));
    let refused = room.apply(&path, "one", &owned).await;
    assert_eq!(refused.failure(), (400, "BadRequest", "metadata.managedFields must be nil"));
    let version = json!({"apiVersion": format!("{GROUP}/v2"), "kind": "Widget"});
    let refused = room.apply(&path, "one", &version).await;
    assert_eq!((refused.failure().0, refused.failure().1), (400, "BadRequest"), "{refused:?}");
}
