//! What an engine must not do while nothing happens. Counts, never times.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::json;
use tradeguard::demo::instance::Measuring;
use tradeguard::memkube::{Access, Verb};
use tradeguard::signals::{Options, Request, Response, Transport, TransportError};

use super::scene::{POLICIES, Scene, breaker};

const LEASES: &str = "leases.coordination.k8s.io";

#[tokio::test(start_paused = true)]
async fn a_healthy_policy_writes_no_status_and_nothing_is_polled() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    for number in 0..5 {
        scene.apply(&breaker(&format!("orders-{number}"), "10m")).await;
    }
    scene
        .until("all are judged", 60, || {
            (0..5).all(|n| scene.condition(&format!("orders-{n}"), "Breached").starts_with("False"))
        })
        .await;
    scene.rest(30).await;
    let before = scene.counts();
    let judged = engine.policy("orders-0").and_then(|policy| policy.judged_at);
    scene.rest(600).await;
    assert_ne!(engine.policy("orders-0").and_then(|policy| policy.judged_at), judged, "it was judged all the while");
    let since = scene.counts().since(&before).by("a").only(|access| !access.resource.starts_with(LEASES));
    assert_eq!(since.of(POLICIES).writes(), 0, "no status");
    let asked: Vec<(&Access, u64)> = since.iter().filter(|(access, _)| access.verb != Verb::Watch).collect();
    assert!(asked.is_empty(), "nothing but watches and the Lease: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_active_policy_reads_nothing_while_nothing_changes() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30m")).await;
    scene.until_open("orders").await;
    scene.rest(30).await;
    let before = scene.counts();
    scene.rest(300).await;
    let since = scene.counts().since(&before).by("a").only(|access| !access.resource.starts_with(LEASES));
    assert_eq!(since.reads(), 0, "{since:?}");
    assert!(since.of(POLICIES).writes() <= 6, "its status once a minute: {since:?}");
    assert_eq!(since.writes(), since.of(POLICIES).writes(), "{since:?}");
}

/// A foreign change in the namespace makes the engine look again, from its caches.
#[tokio::test(start_paused = true)]
async fn a_change_nearby_makes_it_look_without_asking_the_server() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30m")).await;
    scene.until_open("orders").await;
    scene.rest(30).await;
    let before = scene.counts();
    for number in 0..10 {
        let metadata = json!({"name": "elsewhere", "namespace": "trading"});
        let spec = json!({"selector": {"app": "elsewhere"}, "ports": [{"port": 80 + number}]});
        scene.apply(&json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).await;
        scene.rest(2).await;
    }
    let since = scene.counts().since(&before).by("a").only(|access| !access.resource.starts_with(LEASES));
    assert_eq!(since.reads(), 0, "{since:?}");
}

/// Answers every query with an empty vector, and counts.
struct Empty(AtomicU64);

#[async_trait]
impl Transport for Empty {
    async fn send(&self, _: Request) -> Result<Response, TransportError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        Ok(Response { status: 200, content_type: Some("application/json".to_owned()), body: body.into() })
    }
}

/// The two queries of a shape, buckets and their age, whatever the number of policies.
#[tokio::test(start_paused = true)]
async fn policies_of_one_shape_share_their_queries() {
    let mut counted = BTreeMap::new();
    for policies in [1, 30] {
        let scene = Scene::open();
        let transport = Arc::new(Empty(AtomicU64::new(0)));
        let options: Options = serde_saphyr::from_str(
            "{defaultBackend: main, defaultTemplate: plain, backends: {main: {kind: prometheus, url: 'http://prometheus/'}}}",
        )
        .expect("are options");
        let measuring = Measuring { options, transport: Arc::clone(&transport) as Arc<dyn Transport> };
        let engine = scene.engine_measuring("a", measuring).await;
        scene.until("it acts", 60, || engine.acts()).await;
        for number in 0..policies {
            scene.apply(&breaker(&format!("orders-{number}"), "10m")).await;
        }
        scene.rest(20).await;
        let before = transport.0.load(Ordering::SeqCst);
        scene.rest(100).await;
        counted.insert(policies, transport.0.load(Ordering::SeqCst) - before);
    }
    assert!(counted[&1] >= 20, "every tick asks: {counted:?}");
    assert!(counted[&1] <= 42, "at most twice: {counted:?}");
    assert_eq!(counted[&1], counted[&30]);
}
