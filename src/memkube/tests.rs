//! What memkube does beyond the contract it shares with the real server: hooks, counters, garbage, compaction.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde::de::DeserializeOwned;

use super::*;

fn options() -> Options {
    let start: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    Options::new(Clock::scaled(start, 1.0))
}

fn api<K>(memkube: &MemKube) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(memkube.client("test"), "default")
}

#[allow(clippy::needless_pass_by_value)] // callers write the metadata in place
fn object<K: DeserializeOwned>(metadata: Value) -> K {
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_reflector_lists_again_after_compaction() {
    let memkube = MemKube::new(options());
    let maps: Api<ConfigMap> = api(&memkube);
    let faults = fault::Faults::default();
    let service = tower::ServiceBuilder::new().layer(faults.clone()).service(memkube.service("reflector"));
    let watched = Api::namespaced(kube::Client::new(service, "default"), "default");
    let feed = reflector::store::Writer::<ConfigMap>::default();
    let store = feed.as_reader();
    let events = watcher(watched, watcher::Config::default()).default_backoff().reflect(feed);
    let follower = tokio::spawn(events.for_each(|_| async {}));
    maps.create(&PostParams::default(), &object(json!({"name": "a"}))).await.unwrap();
    store.wait_until_ready().await.unwrap();

    // Cut off, it misses a change that history then forgets.
    let all = fault::Matching::default();
    faults.inject(all, fault::Fault::Unreachable);
    faults.cut_watches();
    maps.create(&PostParams::default(), &object(json!({"name": "b"}))).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    memkube.compact();
    let before = memkube.counts();
    faults.clear();
    let caught_up = async {
        while store.state().iter().map(|map| map.name_any()).collect::<Vec<_>>() != ["b"] {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(5), caught_up).await.unwrap();
    let since = memkube.counts().since(&before).by("reflector").of("configmaps");
    assert_eq!((since.reads(), since.watches()), (1, 2), "{since:?}");
    follower.abort();
}

#[tokio::test(start_paused = true)]
async fn admission_completes_and_refuses() {
    let admission: Admission = Arc::new(|request| {
        if request.kind != "ConfigMap" {
            return Ok(());
        }
        request.object["data"]["seen"] = format!("{:?}", request.operation).into();
        match request.object["data"].get("bad") {
            None => Ok(()),
            Some(value) => {
                let value = Some(value.clone());
                Err(vec![FieldError::new("data.bad", Cause::Forbidden, value, "must not be set")])
            }
        }
    });
    let memkube = MemKube::new(Options { admission: Some(admission), ..options() });
    let maps: Api<ConfigMap> = api(&memkube);
    let made = maps.create(&PostParams::default(), &object(json!({"name": "a"}))).await.unwrap();
    assert_eq!(made.data.unwrap()["seen"], "Create");
    let change = |data: Value| Patch::Merge(json!({"data": data}));
    let changed = maps.patch("a", &PatchParams::default(), &change(json!({"x": "1"}))).await.unwrap();
    assert_eq!(changed.data.unwrap()["seen"], "Update");
    let refused = maps.patch("a", &PatchParams::default(), &change(json!({"bad": "1"}))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 422);
    assert_eq!(status.message, "ConfigMap \"a\" is invalid: data.bad: Forbidden: must not be set");
    assert_eq!(status.details.unwrap().causes[0].field, "data.bad");
}

#[tokio::test(start_paused = true)]
async fn dependants_go_when_their_last_owner_is_gone() {
    let memkube = MemKube::new(options());
    let maps: Api<ConfigMap> = api(&memkube);
    let owner = async |name: &str| {
        let made = maps.create(&PostParams::default(), &object(json!({"name": name}))).await.unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.uid().unwrap()})
    };
    let (one, two) = (owner("one").await, owner("two").await);
    for (name, owners) in [("of-one", json!([one])), ("of-both", json!([one, two]))] {
        let body = object(json!({"name": name, "ownerReferences": owners}));
        maps.create(&PostParams::default(), &body).await.unwrap();
    }
    let names = async || {
        let list = maps.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(" ")
    };
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(names().await, "of-both two");
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    maps.patch("of-both", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": ["x.io/hold"]}})))
        .await
        .unwrap();
    maps.delete("two", &foreground).await.unwrap();
    let waiting = maps.get("two").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    maps.patch("of-both", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    assert_eq!(names().await, "");
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_forget_their_owner() {
    let memkube = MemKube::new(options());
    let maps: Api<ConfigMap> = api(&memkube);
    let owner = maps.create(&PostParams::default(), &object(json!({"name": "owner"}))).await.unwrap();
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid().unwrap()}]);
    maps.create(&PostParams::default(), &object(json!({"name": "child", "ownerReferences": reference}))).await.unwrap();
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    maps.delete("owner", &orphan).await.unwrap();
    assert!(maps.get_opt("owner").await.unwrap().is_none());
    assert!(maps.get("child").await.unwrap().owner_references().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_its_content_is_gone() {
    let memkube = MemKube::new(options());
    memkube.add_namespace("shop");
    let maps: Api<ConfigMap> = Api::namespaced(memkube.client("test"), "shop");
    let namespaces: Api<Namespace> = Api::all(memkube.client("test"));
    let held = object(json!({"name": "held", "finalizers": ["x.io/hold"]}));
    maps.create(&PostParams::default(), &held).await.unwrap();
    maps.create(&PostParams::default(), &object(json!({"name": "free"}))).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let terminating = namespaces.get("shop").await.unwrap();
    assert_eq!(terminating.status.unwrap().phase.as_deref(), Some("Terminating"));
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let refused = maps.create(&PostParams::default(), &object(json!({"name": "late"}))).await.unwrap_err();
    assert!(refused.to_string().contains("because it is being terminated"), "{refused}");
    maps.patch("held", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    assert!(namespaces.get_opt("shop").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn counters_tell_clients_verbs_and_resources_apart() {
    let memkube = MemKube::new(options());
    let maps: Api<ConfigMap> = api(&memkube);
    let pods: Api<Pod> = Api::namespaced(memkube.client("other"), "default");
    maps.create(&PostParams::default(), &object(json!({"name": "a"}))).await.unwrap();
    let before = memkube.counts();
    maps.get("a").await.unwrap();
    maps.list(&ListParams::default()).await.unwrap();
    pods.create(&PostParams::default(), &object(json!({"name": "p"}))).await.unwrap();
    pods.patch_status("p", &PatchParams::default(), &Patch::Merge(json!({"status": {"phase": "Running"}})))
        .await
        .unwrap();
    let since = memkube.counts().since(&before);
    assert_eq!((since.reads(), since.writes(), since.watches()), (2, 2, 0));
    assert_eq!(since.by("test").writes(), 0);
    assert_eq!(since.of("pods").writes(), 2);
    assert_eq!(since.only(|access| access.resource == "pods/status").total(), 1);
}

#[tokio::test(start_paused = true)]
async fn documents_load_with_their_status_and_replace_what_stands() {
    let memkube = MemKube::new(options());
    let yaml = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
# nothing here
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop}
spec: {nodeName: n1}
status: {phase: Running}
";
    assert_eq!(memkube.load(yaml).unwrap(), 2);
    assert_eq!(memkube.load(&yaml.replace("n1", "n2")).unwrap(), 2);
    let pods: Api<Pod> = Api::namespaced(memkube.client("test"), "shop");
    let pod = pods.get("p").await.unwrap();
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("n2"));
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
    for (text, wanted) in [
        ("kind: [", "the text is not YAML"),
        ("apiVersion: g/v1\nkind: Odd\nmetadata: {name: a}", "document 1: no kind \"Odd\" in \"g/v1\""),
        ("---\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: A}", "is invalid: metadata.name"),
    ] {
        let error = memkube.load(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_of_the_future_is_answered_with_a_timeout() {
    let memkube = MemKube::new(options());
    let maps: Api<ConfigMap> = api(&memkube);
    let future = (memkube.version() + 1).to_string();
    let refused = maps
        .list(&ListParams::default().at(&future).matching(kube::api::VersionMatch::NotOlderThan))
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, status.reason.as_str()), (504, "Timeout"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_gets_a_bookmark_a_minute_and_ends_in_time() {
    let memkube = MemKube::new(options());
    let request = http::Request::get(
        "/api/v1/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=0",
    );
    let response =
        tower::ServiceExt::oneshot(memkube.service("test"), request.body(String::new()).unwrap()).await.unwrap();
    let started = tokio::time::Instant::now();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert_eq!(started.elapsed().as_secs(), 150);
    let kinds: Vec<String> = std::str::from_utf8(&body)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["BOOKMARK", "BOOKMARK", "BOOKMARK"]);
}

#[tokio::test]
async fn the_listener_answers_on_loopback_until_stopped() {
    let memkube = MemKube::new(options());
    let listener = memkube.listen(0).await.unwrap();
    let address = listener.address().unwrap();
    assert!(address.ip().is_loopback());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(listener.serve(async { drop(stopped.await) }));
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    assert_eq!(namespaces.list(&ListParams::default()).await.unwrap().items.len(), 2);
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
