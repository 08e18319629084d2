use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{Exposure, Health, Surface, router};
use crate::clock::Clock;
use crate::model::phase::Phase;
use crate::model::policy::{PolicyKey, PolicyKind, TargetRef};
use crate::model::quantity::{BaseUnit, Threshold};
use crate::model::reading::{NoReading, Reading};
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::model::verdict::{Outcome, Severity};
use crate::model::view::{PolicyView, Processing, Role, SignalView, TargetKey, TargetView, View};
use crate::telemetry::metrics::{CONTENT_TYPE, Metrics, Options};

const STATE: &str = "/v1/state/trading/OrderService/core-trading";

fn epoch() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap()
}

/// A surface and the sender that feeds it; the clock stands at [`epoch`] plus what tokio's timer has run.
fn surface(view: View) -> (watch::Sender<Arc<View>>, Surface) {
    let (sender, receiver) = watch::channel(Arc::new(view));
    let surface = Surface {
        view: receiver,
        metrics: Arc::new(Metrics::new(Options::default())),
        clock: Clock::scaled(epoch(), 1.0),
        health: Health::default(),
        stopping: CancellationToken::new(),
    };
    (sender, surface)
}

fn policy_key() -> PolicyKey {
    PolicyKey { kind: PolicyKind::LatencyBudgetPolicy, namespace: "trading".into(), name: "order-processing".into() }
}

fn target(api_version: &str) -> TargetKey {
    let target =
        TargetRef { api_version: api_version.into(), kind: "OrderService".into(), name: "core-trading".into() };
    TargetKey::of("trading", &target)
}

fn in_mode(mode: &str) -> View {
    let state = TargetView { mode: mode.into(), since: Some(epoch()), policies: vec![policy_key()] };
    View {
        role: Role::Actor,
        synced: true,
        targets: Arc::new(BTreeMap::from([(target("trade.io/v1"), Arc::new(state))])),
        ..View::default()
    }
}

async fn get_with(surface: &Surface, exposure: Exposure, path: &str, etag: Option<&str>) -> Response {
    let mut request = Request::get(path);
    if let Some(etag) = etag {
        request = request.header("if-none-match", etag);
    }
    router(surface.clone(), exposure).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn get(surface: &Surface, path: &str) -> Response {
    get_with(surface, Exposure::All, path, None).await
}

async fn text_of(response: Response) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn json_of(response: Response) -> Value {
    serde_json::from_str(&text_of(response).await).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_target_in_fallback_says_since_when_and_by_whom() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    let response = get(&surface, STATE).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.headers().contains_key("etag"));
    let mut answer = json_of(response).await;
    assert!(answer["revision"].take().as_u64().unwrap() < 1 << 53);
    assert_eq!(
        answer,
        json!({
            "mode": "cache-only", "since": "2023-11-14T22:13:20Z", "governed": true, "revision": null,
            "ageSeconds": 0.0,
            "policies": [{"kind": "LatencyBudgetPolicy", "namespace": "trading", "name": "order-processing"}],
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_without_policy_is_normal_and_says_that_nobody_governs_it() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    let answer = json_of(get(&surface, "/v1/state/trading/OrderService/other").await).await;
    assert_eq!((&answer["mode"], &answer["governed"]), (&json!("normal"), &json!(false)));
}

#[tokio::test(start_paused = true)]
async fn before_the_caches_are_filled_nobody_is_told_normal() {
    let (_sender, surface) = surface(View::default());
    let response = get(&surface, STATE).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(get(&surface, "/readyz").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(get(&surface, "/livez").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_as_soon_as_the_mode_changes() {
    let (sender, surface) = surface(in_mode("normal"));
    let revision = json_of(get(&surface, STATE).await).await["revision"].clone();
    let poll = tokio::spawn({
        let surface = surface.clone();
        async move { json_of(get(&surface, &format!("{STATE}?revision={revision}&wait=30s")).await).await }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Another view with the same state does not end it.
    sender.send_replace(Arc::new(in_mode("normal")));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!poll.is_finished());
    sender.send_replace(Arc::new(in_mode("cache-only")));
    assert_eq!(poll.await.unwrap()["mode"], "cache-only");
    assert_eq!(surface.clock.now() - epoch(), TimeDelta::seconds(6));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_without_change_answers_the_same_when_its_time_is_over() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    let first = json_of(get(&surface, STATE).await).await;
    let second = json_of(get(&surface, &format!("{STATE}?revision={}&wait=30s", first["revision"])).await).await;
    assert_eq!(first, second);
    assert_eq!(surface.clock.now() - epoch(), TimeDelta::seconds(30));
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_with_an_old_revision_answers_at_once() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    let answer = json_of(get(&surface, &format!("{STATE}?revision=1&wait=30s")).await).await;
    assert_eq!(answer["mode"], "cache-only");
    assert_eq!(surface.clock.now(), epoch());
}

#[tokio::test(start_paused = true)]
async fn a_stopping_engine_answers_its_long_polls() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    let revision = json_of(get(&surface, STATE).await).await["revision"].clone();
    surface.stopping.cancel();
    get(&surface, &format!("{STATE}?revision={revision}&wait=30s")).await;
    assert_eq!(surface.clock.now(), epoch());
}

#[tokio::test(start_paused = true)]
async fn an_etag_that_still_fits_is_not_modified() {
    let (sender, surface) = surface(in_mode("cache-only"));
    let etag = get(&surface, STATE).await.headers()["etag"].to_str().unwrap().to_owned();
    let same = get_with(&surface, Exposure::All, STATE, Some(&etag)).await;
    assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
    sender.send_replace(Arc::new(in_mode("normal")));
    assert_eq!(get_with(&surface, Exposure::All, STATE, Some(&etag)).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_detached_instance_shows_the_age_of_what_it_says() {
    let view = View { detached_since: Some(epoch() - TimeDelta::seconds(90)), ..in_mode("cache-only") };
    let (_sender, surface) = surface(view);
    let answer = json_of(get(&surface, STATE).await).await;
    assert_eq!((&answer["mode"], &answer["ageSeconds"]), (&json!("cache-only"), &json!(90.0)));
    assert_eq!(get(&surface, "/readyz").await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_two_groups_wants_the_api_version() {
    let mut view = in_mode("cache-only");
    let other = TargetView { mode: "normal".into(), since: None, policies: Vec::new() };
    Arc::make_mut(&mut view.targets).insert(target("other.io/v1"), Arc::new(other));
    let (_sender, surface) = surface(view);
    let refused = get(&surface, STATE).await;
    assert_eq!(refused.status(), StatusCode::CONFLICT);
    assert!(text_of(refused).await.contains("trade.io/v1"));
    let answer = json_of(get(&surface, &format!("{STATE}?apiVersion=trade.io/v1")).await).await;
    assert_eq!(answer["mode"], "cache-only");
}

#[tokio::test(start_paused = true)]
async fn wrong_parameters_are_refused_by_name() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    for (query, named) in [("wait=30", "wait"), ("wait=1min", "wait"), ("revision=x", "revision"), ("vait=1s", "vait")]
    {
        let response = get(&surface, &format!("{STATE}?{query}")).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{query}");
        let text = text_of(response).await;
        assert!(text.contains(named), "{query}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_loopback_only_probes_and_metrics_are_served() {
    let (_sender, surface) = surface(in_mode("cache-only"));
    for path in [STATE, "/v1/policies", "/v1/explain/LatencyBudgetPolicy/trading/order-processing", "/v1/anything"] {
        let response = get_with(&surface, Exposure::ProbesAndMetrics, path, None).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
        assert_eq!(json_of(response).await["reason"], "NotExposed", "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        let response = get_with(&surface, Exposure::ProbesAndMetrics, path, None).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
    }
    for (address, exposure) in [
        ("127.0.0.1:80", Exposure::All),
        ("[::1]:80", Exposure::All),
        ("[::ffff:127.0.0.1]:80", Exposure::All),
        ("0.0.0.0:80", Exposure::ProbesAndMetrics),
        ("[::]:80", Exposure::ProbesAndMetrics),
        ("10.0.0.1:80", Exposure::ProbesAndMetrics),
    ] {
        assert_eq!(Exposure::of(address.parse().unwrap()), exposure, "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_type_that_prometheus_reads() {
    let (_sender, surface) = surface(View::default());
    let response = get(&surface, "/metrics").await;
    assert_eq!(response.headers()["content-type"], CONTENT_TYPE);
    assert!(text_of(response).await.contains("tradeguard_build_info"));
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_makes_the_instance_unready() {
    let (_sender, surface) = surface(in_mode("normal"));
    assert_eq!(get(&surface, "/readyz").await.status(), StatusCode::OK);
    surface.health.fail("the policy loop ended");
    surface.health.fail("and another");
    let response = get(&surface, "/readyz").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(text_of(response).await, "not ready: the policy loop ended\n");
}

fn with_policy() -> View {
    let reading = Reading { value: 1.2, unit: BaseUnit::Seconds, age_seconds: 3.0, series: 1, requests: Some(600.0) };
    let threshold = Threshold::latency("800ms").ok();
    let policy = PolicyView {
        tenant: Arc::new(Tenant { name: "core-trading".into(), ..Tenant::built_in() }),
        target: None,
        processing: Processing::Processed,
        reason: Reason::Accepted,
        phase: Phase::Active,
        stage: None,
        since: Some(epoch()),
        blind: None,
        verdict: Some((Outcome::Breached, Severity::Critical)),
        judged_at: Some(epoch()),
        signals: BTreeMap::from([
            ("p99".into(), SignalView { reading: Ok(reading), threshold }),
            ("p50".into(), SignalView { reading: Err(NoReading::NoData), threshold: None }),
        ]),
        suspects: vec!["pod-1".into()],
        explanation: crate::model::view::Explanation::new(|| json!({"phase": "Active"})),
    };
    View { policies: BTreeMap::from([(policy_key(), Arc::new(policy))]), ..in_mode("cache-only") }
}

#[tokio::test(start_paused = true)]
async fn policies_are_listed_with_live_values() {
    let (_sender, surface) = surface(with_policy());
    let list = json_of(get(&surface, "/v1/policies?namespace=trading").await).await;
    assert_eq!(list["role"], "actor");
    assert_eq!(
        list["items"][0],
        json!({
            "kind": "LatencyBudgetPolicy", "namespace": "trading", "name": "order-processing",
            "tenant": "core-trading", "target": null, "processing": "processed", "reason": "Accepted",
            "phase": "Active", "stage": null, "since": "2023-11-14T22:13:20Z", "blind": null,
            "verdict": "breached", "severity": "critical", "judgedAt": "2023-11-14T22:13:20Z",
            "signals": {
                "p50": {"reason": "NoData"},
                "p99": {
                    "value": 1.2, "unit": "s", "ageSeconds": 3.0, "series": 1, "requests": 600.0,
                    "threshold": 0.8, "thresholdWritten": "800ms",
                },
            },
            "suspects": ["pod-1"],
        })
    );
    let other = json_of(get(&surface, "/v1/policies?namespace=other").await).await;
    assert_eq!(other["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_explained_and_an_unknown_one_is_not_found() {
    let (_sender, surface) = surface(with_policy());
    let explained = get(&surface, "/v1/explain/LatencyBudgetPolicy/trading/order-processing").await;
    assert_eq!(json_of(explained).await, json!({"phase": "Active"}));
    let unknown = get(&surface, "/v1/explain/LatencyBudgetPolicy/trading/other").await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
    let no_kind = get(&surface, "/v1/explain/Deployment/trading/other").await;
    assert_eq!(no_kind.status(), StatusCode::BAD_REQUEST);
    assert_eq!(get(&surface, "/v2").await.status(), StatusCode::NOT_FOUND);
}
