//! kube-runtime's own machinery at work: controllers, reflectors, discovery.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    discovery,
    runtime::{
        Controller, WatchStreamExt,
        controller::Action,
        events::{Event as Note, EventType, Recorder},
        finalizer::{Event, finalizer},
        reflector, watcher,
    },
};
use serde_json::{Value, json};

use super::room::{GROUP, PATIENCE, Room};

const WIDGETS: usize = 5;

struct Context {
    api: Api<DynamicObject>,
    runs: Mutex<BTreeMap<String, u32>>,
}

impl Context {
    fn runs(&self) -> Vec<u32> {
        self.runs.lock().unwrap().values().copied().collect()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Failed(String);

async fn reconcile(widget: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, Failed> {
    *context.runs.lock().unwrap().entry(widget.name_any()).or_default() += 1;
    let api = context.api.clone();
    let done = finalizer(&context.api, "tradeguard.io/contract", widget, async |event| match event {
        Event::Apply(widget) => {
            let status = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Widget", "status": {"phase": "Seen"}});
            let parameters = PatchParams::apply("contract").force();
            api.patch_status(&widget.name_any(), &parameters, &Patch::Apply(&status)).await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
        Event::Cleanup(_) => Ok(Action::await_change()),
    })
    .await;
    done.map_err(|error| Failed(error.to_string()))
}

pub(super) async fn a_controller_with_finalizers_comes_to_rest_after_three_reconciles(room: Room) {
    let (api, resource) = room.api();
    for index in 0..WIDGETS {
        room.make(&format!("w{index}"), json!({"size": index})).await;
    }
    let context = Arc::new(Context { api: api.clone(), runs: Mutex::default() });
    let controller = Controller::new_with(api.clone(), watcher::Config::default(), resource)
        .run(reconcile, |_, error, _| panic!("no reconcile fails: {error}"), Arc::clone(&context))
        .for_each(|_| async {});
    let controller = tokio::spawn(controller);

    let rest = async {
        // Adding the finalizer, writing status, and seeing that nothing is left to do.
        while context.runs() != [3; WIDGETS] {
            assert!(context.runs().iter().all(|runs| *runs <= 3), "{:?}", context.runs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.unwrap_or_else(|_| panic!("comes to rest: {:?}", context.runs()));
    // Whatever a needless write would set off would come now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(context.runs(), [3; WIDGETS]);

    for index in 0..WIDGETS {
        room.delete(&room.path(&format!("w{index}")), &Value::Null).await.ok();
    }
    let gone = async {
        while !api.list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the finalizers are lifted");
    controller.abort();
}

pub(super) async fn a_reflector_follows_what_happens(room: Room) {
    let (api, resource) = room.api();
    room.make("first", json!({"size": 1})).await;
    let feed = reflector::store::Writer::<DynamicObject>::new(resource);
    let store = feed.as_reader();
    let events = watcher(api, watcher::Config::default().streaming_lists()).default_backoff().reflect(feed);
    let follower = tokio::spawn(events.for_each(|_| async {}));
    store.wait_until_ready().await.unwrap();
    // A streamed list at "any" version may begin with what a cache knew a moment ago.
    until_names(&store, "first").await;
    room.make("second", json!({"size": 2})).await;
    room.delete(&room.path("first"), &Value::Null).await.ok();
    until_names(&store, "second").await;
    follower.abort();
}

async fn until_names(store: &reflector::Store<DynamicObject>, wanted: &str) {
    let reached = async {
        while names(store) != [wanted] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("the reflector follows: {:?}", names(store)));
}

fn names(store: &reflector::Store<DynamicObject>) -> Vec<String> {
    let mut names: Vec<String> = store.state().iter().map(|widget| widget.name_any()).collect();
    names.sort();
    names
}

pub(super) async fn a_recorder_counts_repetitions(room: Room) {
    let made = room.make("a", json!({})).await;
    let widget: DynamicObject = serde_json::from_value(made).unwrap();
    let reference = widget.object_ref(&room.api().1);
    let recorder = Recorder::new(room.client.clone(), "contract".into());
    let note = || Note {
        type_: EventType::Warning,
        reason: "Breached".to_owned(),
        note: Some("p99 is above its threshold".to_owned()),
        action: "Judge".to_owned(),
        secondary: None,
    };
    for _ in 0..3 {
        recorder.publish(&note(), &reference).await.unwrap();
    }
    let events = room.get(&room.core("events?fieldSelector=involvedObject.name%3Da")).await.ok();
    let events = events["items"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["message"], "p99 is above its threshold");
    assert_eq!(events[0]["series"]["count"], 3, "{events:?}");
}

pub(super) async fn discovery_finds_the_kind(room: Room) {
    let group = discovery::group(&room.client, GROUP).await.unwrap();
    let (resource, capabilities) = group.recommended_kind("Widget").unwrap();
    assert_eq!((resource.plural.as_str(), resource.version.as_str()), ("widgets", "v1"));
    assert_eq!(capabilities.scope, discovery::Scope::Namespaced);
    let subresources: Vec<&str> = capabilities.subresources.iter().map(|(one, _)| one.plural.as_str()).collect();
    assert!(subresources.contains(&"status") && subresources.contains(&"scale"), "{subresources:?}");
    let found =
        kube::discovery::pinned_kind(&room.client, &kube::core::GroupVersionKind::gvk("apps", "v1", "Deployment"))
            .await;
    assert_eq!(found.unwrap().0.plural, "deployments");
    assert!(room.client.apiserver_version().await.unwrap().git_version.starts_with("v1."));
}
