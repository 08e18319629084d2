//! Our answers beside those of a real Prometheus, on the same series at the same time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tradeguard::clock::Clock;
use tradeguard::model::policy::{PolicyKey, PolicyKind};
use tradeguard::model::quantity::Unit;
use tradeguard::model::reading::{NoReading, Observation, Reading};
use tradeguard::model::reason::Reason;
use tradeguard::signals::{Ask, Options, PodRef, ReqwestTransport, Signals};

use crate::support::parts::{Prometheus, ScrapeTarget, write_targets};
use crate::support::wait::wait_until;

const SOON: Duration = Duration::from_secs(30);
const EDGES_SECONDS: [(&str, f64); 5] = [("0.1", 40.0), ("0.5", 70.0), ("1", 93.0), ("2.5", 99.5), ("+Inf", 100.0)];
const EDGES_MILLIS: [(&str, f64); 5] = [("100", 40.0), ("500", 70.0), ("1000", 93.0), ("2500", 99.5), ("+Inf", 100.0)];

/// What a Pod shows after it has served for `seconds`: a hundred requests a second, spread over the buckets; the slow
/// one has more in the upper ones. `idle` never had a request.
fn exposition(seconds: f64, slow: bool) -> String {
    let mut text = String::new();
    let mut histogram = |name: &str, labels: &str, edges: &[(&str, f64)], speed: f64| {
        text += &format!("# TYPE {name} histogram\n");
        for (le, per_second) in edges {
            let share = if slow && *le != "+Inf" { 0.5 } else { 1.0 };
            let count = (seconds * per_second * share * speed).floor();
            text += &format!("{name}_bucket{{{labels},le=\"{le}\"}} {count}\n");
        }
        let all = (seconds * 100.0 * speed).floor();
        text += &format!("{name}_sum{{{labels}}} {all}\n{name}_count{{{labels}}} {all}\n");
    };
    histogram("http_request_duration_seconds", "service=\"orders\"", &EDGES_SECONDS, 1.0);
    histogram("http_server_request_duration_seconds", "service=\"idle\"", &EDGES_SECONDS, 0.0);
    let istio = "reporter=\"destination\",destination_workload_namespace=\"trading\",destination_workload=\"orders\"";
    histogram("istio_request_duration_milliseconds", istio, &EDGES_MILLIS, 1.0);
    text
}

/// A Pod at `address` (port 0: any), until the test ends.
async fn serve_pod(address: &str, slow: bool) -> SocketAddr {
    let started = Instant::now();
    let metrics = get(move || async move {
        ([("content-type", "text/plain; version=0.0.4")], exposition(started.elapsed().as_secs_f64(), slow))
    });
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/metrics", metrics)).await.unwrap() });
    address
}

struct Scene {
    prometheus: Prometheus,
    signals: Arc<Signals>,
    pods: Vec<PodRef>,
    cancel: CancellationToken,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Scene {
    /// Two Pods, one of them slow, scraped by a Prometheus and by ourselves.
    async fn set() -> Self {
        let prometheus = Prometheus::start().await;
        let fast = serve_pod("127.0.0.2:0", false).await;
        let slow = serve_pod(&format!("127.0.0.3:{}", fast.port()), true).await;
        let pods: Vec<_> = [("fast", fast), ("slow", slow)]
            .map(|(name, address)| PodRef { name: name.into(), ip: Some(address.ip().to_string()) })
            .into();
        let targets = [("fast", fast), ("slow", slow)].map(|(pod, address)| ScrapeTarget {
            address,
            namespace: "trading".into(),
            pod: pod.into(),
        });
        write_targets(&prometheus.targets_file("trading"), &targets);
        let yaml = format!(
            "
defaultBackend: prometheus
defaultTemplate: plain
backends:
  prometheus: {{kind: prometheus, url: '{}'}}
  pods: {{kind: scrape, port: {}, interval: 1s, timeout: 900ms, allowLoopback: true}}
templates:
  idle:
    metric: http_server_request_duration_seconds
",
            prometheus.url(),
            fast.port()
        );
        let options: Options = serde_saphyr::from_str(&yaml).unwrap();
        let transport = Arc::new(ReqwestTransport::new(&options).unwrap());
        let signals = Arc::new(Signals::new(&options, transport, Clock::system()).unwrap());
        let cancel = CancellationToken::new();
        let running = (signals.clone(), cancel.clone());
        tokio::spawn(async move { running.0.run(&running.1).await });
        Self { prometheus, signals, pods, cancel }
    }

    fn ask(&self, template: &str) -> Ask {
        Ask {
            policy: PolicyKey { kind: PolicyKind::GovernancePolicy, namespace: "trading".into(), name: "p".into() },
            namespace: "trading".into(),
            workload: Some("orders".into()),
            service: if template == "idle" { "idle".into() } else { "orders".into() },
            pods: self.pods.clone(),
            groups: BTreeMap::from([("slow".into(), vec!["slow".into()])]),
            quantiles: BTreeMap::from([("p50".into(), 0.5), ("p99".into(), 0.99)]),
            queries: BTreeMap::new(),
            thresholds: BTreeMap::new(),
            template: Some(template.into()),
            backend: None,
            window: Duration::from_secs(10),
            stale_after: Duration::from_secs(10),
            min_requests: 10,
        }
    }

    async fn observe(&self, ask: &Ask) -> Observation {
        self.signals.observe(std::slice::from_ref(ask), Clock::system().now()).await.remove(0)
    }

    /// Observes until `name` has a reading of both Pods.
    async fn measured(&self, ask: &Ask, name: &str) -> Observation {
        wait_until("both Pods are measured", SOON, async || {
            let observation = self.observe(ask).await;
            let by_pod = observation.pods.values().filter(|readings| readings[name].is_ok()).count();
            if by_pod == 2 && observation.readings.values().all(Result::is_ok) {
                Ok(observation)
            } else {
                Err(format!("{observation:?}"))
            }
        })
        .await
    }
}

fn close(ours: &Reading, theirs: &Reading) -> bool {
    (ours.value - theirs.value).abs() <= theirs.value.abs() * 1e-9
}

#[tokio::test]
async fn our_quantiles_are_those_of_prometheus_in_seconds_and_milliseconds() {
    let scene = Scene::set().await;
    for (template, metric, labels, unit) in [
        ("plain", "http_request_duration_seconds", "service=\"orders\"", Unit::SECONDS),
        ("istio", "istio_request_duration_milliseconds", "destination_workload=\"orders\"", Unit::MILLISECONDS),
    ] {
        let mut ask = scene.ask(template);
        for (name, q) in ask.quantiles.clone() {
            let rates = format!("rate({metric}_bucket{{{labels}}}[10s])");
            let of = |pods: &str| format!("histogram_quantile({q}, sum by (le) ({}))", rates.replace('}', pods));
            ask.queries.insert(format!("{name}_whole"), (of("}"), unit));
            ask.queries.insert(format!("{name}_slow"), (of(",pod=\"slow\"}"), unit));
        }
        let observation = scene.measured(&ask, "p99").await;
        for name in ask.quantiles.keys() {
            let theirs = |of: &str| observation.readings[&format!("{name}_{of}")].clone().unwrap();
            let whole = observation.readings[name].clone().unwrap();
            assert!(close(&whole, &theirs("whole")), "{template} {name}: {observation:?}");
            let slow = observation.pods["slow"][name].clone().unwrap();
            assert!(close(&slow, &theirs("slow")), "{template} {name}: {observation:?}");
            assert_eq!(observation.groups["slow"][name], Ok(slow));
            assert!(whole.age_seconds < 5.0, "{whole:?}");
        }
        // Two Pods of a hundred requests a second, seen for ten seconds at most; a median below a second in any unit.
        let whole = observation.readings["p50"].as_ref().unwrap();
        let requests = whole.requests.unwrap();
        assert!((100.0..2_100.0).contains(&requests) && whole.value < 1.0, "{whole:?}");
    }
}

#[tokio::test]
async fn scraping_sees_what_prometheus_sees() {
    let scene = Scene::set().await;
    let mut ask = scene.ask("plain");
    ask.backend = Some("pods".into());
    // The two see the same once both have seen a whole window: a second of scrapes is too coarse to compare.
    wait_until("scrapes agree with Prometheus", SOON, async || {
        let through_prometheus = scene.measured(&scene.ask("plain"), "p99").await;
        let scraped = scene.measured(&ask, "p99").await;
        let agree = ["p50", "p99"].into_iter().all(|name| {
            let both = (&scraped.readings[name], &through_prometheus.readings[name]);
            matches!(both, (Ok(ours), Ok(theirs)) if (ours.value / theirs.value - 1.0).abs() < 0.05)
        });
        if agree { Ok(()) } else { Err(format!("{scraped:?} {through_prometheus:?}")) }
    })
    .await;
}

#[tokio::test]
async fn no_traffic_is_nan_and_what_prometheus_refuses_is_a_query_error() {
    let scene = Scene::set().await;
    let mut ask = scene.ask("idle");
    ask.thresholds.insert("p99".into(), 3.0);
    for (name, query) in [
        // Both pass admission; the server answers 400 (experimental) and 422 (many matches).
        ("refused", "sort_by_label(up, \"pod\")"),
        ("many", "sum(up * on (job) up)"),
        ("several", "up"),
        ("nothing", "sum(nowhere)"),
        ("infinite", "sum(up) / 0"),
        ("scalar", "scalar(sum(up))"),
    ] {
        ask.queries.insert(name.into(), (query.into(), Unit::SECONDS));
    }
    wait_until("every answer has its reason", SOON, async || {
        let observation = scene.observe(&ask).await;
        let found: BTreeMap<_, _> = observation
            .readings
            .iter()
            .map(|(name, signal)| (name.as_str(), signal.as_ref().map(|reading| reading.value).map_err(|why| *why)))
            .collect();
        let expected = BTreeMap::from([
            ("p50", Err(NoReading::NaN)),
            ("p99", Err(NoReading::NaN)),
            ("refused", Err(NoReading::QueryError)),
            ("many", Err(NoReading::QueryError)),
            ("several", Err(NoReading::Several)),
            ("nothing", Err(NoReading::NoData)),
            ("infinite", Err(NoReading::Inf)),
            ("scalar", Ok(2.0)),
        ]);
        let noted = observation.notes.contains(&Reason::ThresholdAboveBuckets);
        if found == expected && noted { Ok(()) } else { Err(format!("{observation:?}")) }
    })
    .await;
}

#[tokio::test]
async fn targets_that_are_gone_are_stale_at_once_and_then_no_data() {
    let scene = Scene::set().await;
    let ask = scene.ask("plain");
    scene.measured(&ask, "p99").await;
    write_targets(&scene.prometheus.targets_file("trading"), &[]);
    let mut reasons = Vec::new();
    wait_until("there is no data", SOON, async || {
        let signal = scene.observe(&ask).await.readings["p99"].clone();
        let reason = signal.err();
        if reasons.last() != Some(&reason) {
            reasons.push(reason);
        }
        if reason == Some(NoReading::NoData) { Ok(()) } else { Err(format!("{reasons:?}")) }
    })
    .await;
    assert_eq!(reasons, [None, Some(NoReading::Stale), Some(NoReading::NoData)]);
}

#[tokio::test]
async fn a_prometheus_that_is_killed_is_a_failing_backend_until_it_is_back() {
    let mut scene = Scene::set().await;
    let ask = scene.ask("plain");
    scene.measured(&ask, "p99").await;
    scene.prometheus.stop();
    assert_eq!(scene.observe(&ask).await.readings["p99"], Err(NoReading::BackendError));
    scene.prometheus.start_again().await;
    scene.measured(&ask, "p99").await;
}
