//! The HTTP surface: probes, metrics, and the state of targets and policies. Answers from the published
//! [`View`] alone; it refuses to know who fills it, and changes nothing.
//!
//! | path | for |
//! |---|---|
//! | `GET /livez` | the process runs |
//! | `GET /readyz` | the caches are filled and no task has died; says nothing of policies, backends or sources |
//! | `GET /metrics` | Prometheus |
//! | `GET /v1/state/{namespace}/{kind}/{name}` | the mode of a target, with long poll ([`state`]) |
//! | `GET /v1/policies[?namespace=]` | every policy as it stands ([`policies`]) |
//! | `GET /v1/explain/{kind}/{namespace}/{name}` | why a policy stands so |
//!
//! On a loopback address all of it is served. Elsewhere `/v1` wants TLS and a credential, which do not exist yet: there
//! [`Exposure::ProbesAndMetrics`] refuses it with 403.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::model::view::View;
use crate::telemetry::metrics::{self, Metrics};

pub use error::ApiError;
pub use health::Health;

mod error;
mod health;
mod policies;
mod state;
#[cfg(test)]
mod tests;

/// What the surface answers from. Cheap to clone.
#[derive(Clone)]
pub struct Surface {
    /// The newest view.
    pub view: watch::Receiver<Arc<View>>,
    /// What `/metrics` renders.
    pub metrics: Arc<Metrics>,
    /// Tells the age of what is shown.
    pub clock: Clock,
    /// What `/readyz` says beside the view.
    pub health: Health,
    /// Cancelled at shutdown: open long polls are answered at once.
    pub stopping: CancellationToken,
}

/// How much an address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// Everything.
    All,
    /// Probes and metrics.
    ProbesAndMetrics,
}

impl Exposure {
    /// Everything on loopback, probes and metrics elsewhere. The one place that decides it; nobody may override it.
    pub fn of(address: SocketAddr) -> Self {
        if address.ip().to_canonical().is_loopback() { Self::All } else { Self::ProbesAndMetrics }
    }
}

/// The routes of an address.
pub fn router(surface: Surface, exposure: Exposure) -> Router {
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(render_metrics));
    let router = match exposure {
        Exposure::All => router
            .route("/v1/state/{namespace}/{kind}/{name}", get(state::get))
            .route("/v1/policies", get(policies::list))
            .route("/v1/explain/{kind}/{namespace}/{name}", get(policies::explain)),
        Exposure::ProbesAndMetrics => router.route("/v1/{*rest}", any(async || ApiError::NotExposed)),
    };
    router
        .fallback(async || ApiError::NoSuchPath)
        .method_not_allowed_fallback(async || ApiError::MethodNotAllowed)
        .with_state(surface)
}

/// Serves until `surface.stopping` is cancelled; requests under way are finished.
pub async fn serve(listener: TcpListener, surface: Surface) -> std::io::Result<()> {
    let exposure = Exposure::of(listener.local_addr()?);
    let stopping = surface.stopping.clone();
    axum::serve(listener, router(surface, exposure)).with_graceful_shutdown(stopping.cancelled_owned()).await
}

async fn ready(State(surface): State<Surface>) -> Response {
    if let Some(why) = surface.health.unwell() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response();
    }
    if !surface.view.borrow().synced {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: the caches are being filled\n").into_response();
    }
    "ok\n".into_response()
}

async fn render_metrics(State(surface): State<Surface>) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], surface.metrics.render()).into_response()
}
