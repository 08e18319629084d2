//! One Pod: answers orders after a while, and tells Prometheus how long it took.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use prometheus::{Histogram, HistogramOpts, Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// As an HTTP library would choose them; 800 ms is a bound, so that the seed's threshold is exact.
const BUCKETS: [f64; 9] = [0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2];

/// A Pod that serves. Dropped, it takes no more connections.
pub(super) struct Server {
    address: SocketAddr,
    durations: Histogram,
    task: JoinHandle<()>,
}

struct Handling {
    registry: Registry,
    durations: Histogram,
    latency: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl Server {
    /// A Pod of this service. `latency` is asked anew for each request.
    pub(super) async fn start(
        service: &str,
        address: SocketAddr,
        latency: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let options = HistogramOpts::new("http_request_duration_seconds", "How long requests took, in seconds.")
            .const_label("service", service)
            .const_label("method", "POST")
            .const_label("route", "/orders")
            .buckets(BUCKETS.to_vec());
        let durations = Histogram::with_opts(options).expect("the options are valid");
        let registry = Registry::new();
        registry.register(Box::new(durations.clone())).expect("it is the only one");
        let handling = Arc::new(Handling { registry, durations: durations.clone(), latency: Box::new(latency) });
        let router =
            Router::new().route("/orders", post(place_order)).route("/metrics", get(metrics)).with_state(handling);
        let listener = TcpListener::bind(address).await.expect("each Pod has an address of its own");
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves until it is aborted");
        });
        Self { address, durations, task }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The requests answered so far.
    pub(super) fn served(&self) -> u64 {
        self.durations.get_sample_count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn place_order(State(handling): State<Arc<Handling>>) -> &'static str {
    let started = Instant::now();
    sleep((handling.latency)()).await;
    handling.durations.observe(started.elapsed().as_secs_f64());
    "placed"
}

async fn metrics(State(handling): State<Arc<Handling>>) -> String {
    TextEncoder::new().encode_to_string(&handling.registry.gather()).expect("the registry holds valid metrics")
}
