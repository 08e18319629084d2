use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    client::retry::RetryPolicy,
};
use serde_json::json;
use tower::{ServiceBuilder, retry::RetryLayer};

use super::*;
use crate::{
    clock::Clock,
    memkube::{MemKube, Options},
};

fn world() -> (MemKube, Faults, Api<ConfigMap>) {
    let memkube = MemKube::new(Options::new(Clock::scaled(DateTime::<Utc>::UNIX_EPOCH, 1.0)));
    let faults = Faults::default();
    let service = ServiceBuilder::new().layer(faults.clone()).service(memkube.service("test"));
    let maps = Api::namespaced(Client::new(service, "default"), "default");
    (memkube, faults, maps)
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_strikes_only_what_it_matches_and_only_as_often_as_asked() {
    let (_, faults, maps) = world();
    let creations =
        Matching { method: Some(Method::POST), resource: Some("configmaps".to_owned()), ..Matching::default() };
    faults.inject_times(creations, Fault::too_many_requests(3), 1);
    let refused = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert_eq!(code(&refused), Some(429));
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    let on_b = Matching { name: Some("b".to_owned()), ..Matching::default() };
    faults.inject(on_b, Fault::conflict());
    assert!(maps.get("a").await.is_ok());
    assert_eq!(code(&maps.get("b").await.unwrap_err()), Some(409));
    faults.clear();
    assert_eq!(code(&maps.get("b").await.unwrap_err()), Some(404));
}

#[tokio::test(start_paused = true)]
async fn a_delay_takes_its_time() {
    let (_, faults, maps) = world();
    faults.inject(Matching::default(), Fault::Delay(Duration::from_secs(7)));
    let before = tokio::time::Instant::now();
    maps.get_opt("a").await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_retries_gets_over_a_short_outage() {
    let (memkube, faults, _) = world();
    let retries = RetryLayer::new(RetryPolicy::server_retry());
    let service = ServiceBuilder::new().layer(retries).layer(faults.clone()).service(memkube.service("test"));
    let maps: Api<ConfigMap> = Api::namespaced(Client::new(service, "default"), "default");
    faults.inject_times(Matching::default(), Fault::unavailable(), 3);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_leaves_its_effect() {
    let (_, faults, maps) = world();
    faults.inject_times(Matching { writes: true, ..Matching::default() }, Fault::LoseAnswer, 1);
    assert!(maps.create(&PostParams::default(), &map("a")).await.is_err());
    assert!(maps.get("a").await.is_ok());
    faults.inject_times(Matching::default(), Fault::Unreachable, 1);
    assert!(maps.get("a").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_kill_strikes_at_the_chosen_write_and_stays() {
    for (lands, standing) in [(false, 1), (true, 2)] {
        let (memkube, faults, maps) = world();
        if lands {
            faults.kill_after_write(2);
        } else {
            faults.kill_before_write(2);
        }
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        // Reads and trial runs do not count.
        maps.get("a").await.unwrap();
        let trial = PostParams { dry_run: true, ..PostParams::default() };
        maps.create(&trial, &map("x")).await.unwrap();
        assert!(!faults.is_dead());
        assert!(maps.create(&PostParams::default(), &map("b")).await.is_err());
        assert!(faults.is_dead());
        assert!(maps.get("a").await.is_err());
        let outside: Api<ConfigMap> = Api::namespaced(memkube.client("outside"), "default");
        assert_eq!(outside.list(&ListParams::default()).await.unwrap().items.len(), standing);
        faults.clear();
        assert!(maps.get("a").await.is_ok());
        assert_eq!(faults.writes(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_ends_a_watch_and_a_new_one_goes_on() {
    let (_, faults, maps) = world();
    let start = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &start).await.unwrap().boxed();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    faults.cut_watches();
    assert!(events.try_next().await.unwrap().is_none());
    let patch = Patch::Merge(json!({"data": {"k": "v"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let mut again = maps.watch(&WatchParams::default(), &start).await.unwrap().boxed();
    assert!(matches!(again.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    assert!(matches!(again.try_next().await.unwrap(), Some(WatchEvent::Modified(_))));
}
