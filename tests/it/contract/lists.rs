//! Lists: selectors, pages, forms.

use serde_json::{Value, json};

use super::room::{GROUP, Room, version, widget};

async fn fill(room: &Room) {
    for (name, labels, note) in [
        ("a", json!({"app": "order", "tier": "1"}), "red"),
        ("b", json!({"app": "order"}), "blue"),
        ("c", json!({"app": "quote", "tier": "2"}), "red"),
        ("d", json!({}), "blue"),
    ] {
        let mut body = widget(name, json!({"note": note}));
        body["metadata"]["labels"] = labels;
        room.post(&room.widgets(), &body).await.ok();
    }
}

fn names(list: &Value) -> String {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

pub(super) async fn labels_select(room: Room) {
    fill(&room).await;
    for (selector, wanted) in [
        ("app=order", "a b"),
        ("app%3D%3Dorder,tier", "a"),
        ("app!=order", "c d"),
        ("app%20in%20(order,quote)", "a b c"),
        ("app%20notin%20(order)", "c d"),
        ("!tier", "b d"),
        ("tier,app=quote", "c"),
    ] {
        let list = room.get(&format!("{}?labelSelector={selector}", room.widgets())).await.ok();
        assert_eq!(names(&list), wanted, "{selector}");
    }
    let bad = room.get(&format!("{}?labelSelector=app%20in%20order", room.widgets())).await;
    assert_eq!((bad.failure().0, bad.failure().1), (400, "BadRequest"), "{bad:?}");
}

pub(super) async fn fields_select(room: Room) {
    fill(&room).await;
    for (selector, wanted) in [
        ("metadata.name=b", "b"),
        ("metadata.name!=b", "a c d"),
        ("spec.note=red", "a c"),
        ("spec.note=red,metadata.name=c", "c"),
    ] {
        let list = room.get(&format!("{}?fieldSelector={}", room.widgets(), selector.replace('=', "%3D"))).await.ok();
        assert_eq!(names(&list), wanted, "{selector}");
    }
    let refused = room.get(&format!("{}?fieldSelector=spec.size%3D1", room.widgets())).await;
    assert_eq!(refused.failure(), (400, "BadRequest", "field label not supported: spec.size"));
}

pub(super) async fn pages_are_of_one_version(room: Room) {
    fill(&room).await;
    let first = room.get(&format!("{}?&limit=2", room.widgets())).await.ok();
    assert_eq!(names(&first), "a b");
    assert_eq!(first["kind"], "WidgetList");
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    // What happens between two pages shows in neither.
    room.delete(&room.path("d"), &Value::Null).await.ok();
    room.make("bb", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = room.get(&format!("{}?limit=2&continue={token}", room.widgets())).await.ok();
    assert_eq!(names(&second), "c d");
    assert_eq!(second["metadata"]["continue"], "");
    assert_eq!(version(&second), version(&first));
    let now = room.get(&room.widgets()).await.ok();
    assert_eq!(names(&now), "a b bb c");
    let exact = format!("{}?resourceVersion={}&resourceVersionMatch=Exact", room.widgets(), version(&first));
    assert_eq!(names(&room.get(&exact).await.ok()), "a b c d");
    let bad = room.get(&format!("{}?limit=2&continue=nonsense", room.widgets())).await;
    assert_eq!((bad.failure().0, bad.failure().1), (400, "BadRequest"), "{bad:?}");
}

pub(super) async fn options_that_contradict_are_refused(room: Room) {
    let list = async |query: &str| room.get(&format!("{}?{query}", room.widgets())).await;
    let unversioned = list("resourceVersionMatch=Exact").await;
    assert_eq!((unversioned.failure().0, unversioned.failure().1), (422, "Invalid"), "{unversioned:?}");
    let zero = list("resourceVersion=0&resourceVersionMatch=Exact").await;
    assert_eq!(zero.failure().0, 422);
    let odd = list("resourceVersion=5&resourceVersionMatch=Odd").await;
    assert_eq!(odd.failure().0, 422);
    assert_eq!(list("resourceVersion=x").await.failure().0, 400);
    assert_eq!(list("resourceVersion=0").await.code, 200);
}

pub(super) async fn metadata_alone_can_be_asked_for(room: Room) {
    fill(&room).await;
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let object = room.get_as(&room.path("a"), one).await.ok();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    assert_eq!(object["metadata"]["labels"]["app"], "order");
    assert_eq!(object.get("spec"), None);
    let many = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = room.get_as(&room.widgets(), many).await.ok();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(names(&list), "a b c d");
    assert_eq!(list["items"][0].get("spec"), None);
    let unknown = room.get_as(&room.widgets(), "application/x-unheard-of").await;
    assert_eq!(unknown.code, 406, "{unknown:?}");
    let nowhere = room.get(&format!("/apis/{GROUP}/v1/namespaces/{}/gadgets", room.namespace)).await;
    assert_eq!(nowhere.code, 404);
}
