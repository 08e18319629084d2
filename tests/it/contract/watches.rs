//! Watches.

use std::pin::Pin;

use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, io::Lines};
use http::Request;
use serde_json::{Value, json};

use super::room::{PATIENCE, Room, version, widget};

struct Watch(Lines<Pin<Box<dyn AsyncBufRead + Send>>>);

impl Watch {
    async fn open(room: &Room, query: &str) -> Self {
        let request = Request::get(format!("{}?watch=true&{query}", room.widgets())).body(Vec::new()).unwrap();
        let stream: Pin<Box<dyn AsyncBufRead + Send>> = Box::pin(room.client.request_stream(request).await.unwrap());
        Self(stream.lines())
    }

    /// The next line; nothing once the stream has ended.
    async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("an event comes in time")?;
        Some(serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// The next event as `TYPE name`.
    async fn event(&mut self) -> String {
        let event = self.next().await.expect("the watch goes on");
        format!("{} {}", event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap_or("-"))
    }
}

pub(super) async fn a_watch_starts_after_its_version(room: Room) {
    let first = room.make("a", json!({"size": 1})).await;
    let second = room.merge(&room.path("a"), &json!({"spec": {"size": 2}})).await.ok();
    let mut watch = Watch::open(&room, &format!("resourceVersion={}", version(&first))).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"], second);
    // A write that changes nothing is no event.
    room.merge(&room.path("a"), &json!({"spec": {"size": 2}})).await.ok();
    room.make("b", json!({})).await;
    assert_eq!(watch.event().await, "ADDED b");
    room.delete(&room.path("b"), &Value::Null).await.ok();
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert!(version(&deleted["object"]) > version(&second));
    assert_eq!(deleted["object"]["spec"], json!({"size": 1}));
}

pub(super) async fn a_watch_without_a_version_starts_with_what_stands(room: Room) {
    room.make("a", json!({})).await;
    room.make("b", json!({})).await;
    for query in ["", "resourceVersion=0"] {
        let mut watch = Watch::open(&room, query).await;
        let mut seen = [watch.event().await, watch.event().await];
        seen.sort();
        assert_eq!(seen, ["ADDED a", "ADDED b"], "{query}");
        room.merge(&room.path("a"), &json!({"metadata": {"labels": {"q": format!("v{}", query.len())}}})).await.ok();
        assert_eq!(watch.event().await, "MODIFIED a", "{query}");
    }
}

pub(super) async fn selectors_make_comings_and_goings_of_changes(room: Room) {
    let list = room.get(&room.widgets()).await.ok();
    let mut watch = Watch::open(&room, &format!("labelSelector=app%3Dx&resourceVersion={}", version(&list))).await;
    room.make("a", json!({"size": 1})).await;
    let mut other = widget("b", json!({}));
    other["metadata"]["labels"] = json!({"app": "x"});
    room.post(&room.widgets(), &other).await.ok();
    assert_eq!(watch.event().await, "ADDED b");
    let label =
        async |value: Value| room.merge(&room.path("a"), &json!({"metadata": {"labels": {"app": value}}})).await.ok();
    label(json!("x")).await;
    assert_eq!(watch.event().await, "ADDED a");
    room.merge(&room.path("a"), &json!({"spec": {"size": 2}})).await.ok();
    assert_eq!(watch.event().await, "MODIFIED a");
    let gone = label(json!("y")).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"app": "x"}));
    assert_eq!(version(&event["object"]), version(&gone));
    room.delete(&room.path("a"), &Value::Null).await.ok();
    room.delete(&room.path("b"), &Value::Null).await.ok();
    assert_eq!(watch.event().await, "DELETED b");
}

pub(super) async fn a_streamed_list_ends_with_a_marked_bookmark(room: Room) {
    room.make("a", json!({})).await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&room, query).await;
    assert_eq!(watch.event().await, "ADDED a");
    let mark = watch.next().await.unwrap();
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(mark["object"]["kind"], "Widget");
    assert_eq!(mark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let listed = room.get(&room.path("a")).await.ok();
    assert!(version(&mark["object"]) >= version(&listed));
    room.make("b", json!({})).await;
    assert_eq!(watch.event().await, "ADDED b");
}

pub(super) async fn an_ancient_version_is_gone_in_the_stream(room: Room) {
    room.make("a", json!({})).await;
    let mut watch = Watch::open(&room, "resourceVersion=1").await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.starts_with("too old resource version: 1 ("), "{message}");
    assert_eq!(watch.next().await, None);
}

pub(super) async fn options_that_contradict_are_refused(room: Room) {
    let watch = async |query: &str| room.get(&format!("{}?watch=true&{query}", room.widgets())).await;
    let unstreamed = watch("resourceVersion=0&resourceVersionMatch=NotOlderThan").await;
    assert_eq!((unstreamed.failure().0, unstreamed.failure().1), (422, "Invalid"), "{unstreamed:?}");
    let unmatched = watch("sendInitialEvents=true").await;
    assert_eq!((unmatched.failure().0, unmatched.failure().1), (422, "Invalid"), "{unmatched:?}");
    let exact = watch("sendInitialEvents=true&resourceVersionMatch=Exact").await;
    assert_eq!(exact.failure().0, 422);
    let odd = watch("resourceVersion=x").await;
    assert!(odd.failure().2.contains("resourceVersion: Invalid value"), "{odd:?}");
}
