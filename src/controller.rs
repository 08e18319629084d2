//! The controller: what changed, what is due, who acts. Everything that waits for the cluster is started here.
//!
//! Reading order: [`engine`] (the loop), then its steps in the order of a round: `review` (object → what is in
//! force), `resolve` and `routes` (target → Pods and routes), `round` (measure and judge), `report` (status, which the
//! plan rests on), `act` and `slots` (plan → effects), `announce` (Events, CloudEvents), `publish` (the view). Around it: `watches`
//! and `cache` (what the cluster looks like), `lease` and `takeover` (who acts, and from where).
//!
//! Refuses to know how a verdict comes about (`decide`), how an effect is made (`effects`), who asks over HTTP.

mod act;
mod announce;
mod backoff;
mod cache;
mod candidate;
mod changes;
mod definitions;
mod engine;
mod fetching;
mod governed;
pub mod lease;
mod mirror;
mod options;
mod publish;
mod report;
mod resolve;
mod review;
mod revisions;
mod round;
mod routes;
mod selector_text;
mod slots;
mod source_status;
mod sourcing;
mod status;
mod takeover;
mod tenancy;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::clock::Clock;
use crate::effects::Effects;
use crate::effects::outbox::Outbox;
use crate::model::view::View;
use crate::rego::Rule;
use crate::signals::Signals;
use crate::telemetry::metrics::Metrics;

pub use lease::Role;
pub use options::{GitCredentials, Options};

/// How long one call to the API server may take.
const API_DEADLINE: Duration = Duration::from_secs(10);

/// What a controller is made of.
pub struct Parts {
    /// The way to the cluster.
    pub client: Client,
    /// What the configuration says.
    pub options: Options,
    /// Where time comes from.
    pub clock: Clock,
    /// Who measures.
    pub signals: Arc<Signals>,
    /// Where events wait.
    pub outbox: Arc<Outbox>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where the view goes.
    pub view: watch::Sender<Arc<View>>,
    /// The rule that judges latency budgets; a new value takes effect at once.
    pub latency_rule: watch::Receiver<Rule>,
}

/// Runs one instance until `cancel`; returns early only if one of its tasks ends, which is a defect.
pub async fn run(parts: Parts, cancel: CancellationToken) {
    let Parts { client, options, clock, signals, outbox, metrics, view, latency_rule } = parts;
    let caches = Arc::new(watches::Caches::new(&options.target_kinds));
    // Our own token, so that a task that ends ends the rest without ending whoever started us.
    let stop = cancel.child_token();
    let mut tasks = JoinSet::new();
    let watches = watches::Watches {
        client: client.clone(),
        caches: Arc::clone(&caches),
        clock,
        metrics: Arc::clone(&metrics),
        own_namespace: options.namespace.clone(),
        cancel: stop.clone(),
    };
    watches.start(&mut tasks);
    let campaign = lease::Campaign::new(client.clone(), options.lease.clone(), options.identity.clone(), clock);
    let role = campaign.role();
    // The Lease is given up last, when no write of ours is under way any more.
    let campaign_stop = CancellationToken::new();
    let mut campaigns = JoinSet::new();
    campaigns.spawn(campaign.run(campaign_stop.clone()));
    let effects = Arc::new(Effects::new(client.clone(), crate::api::marks::FIELD_MANAGER, API_DEADLINE));
    let random = fastrand::Rng::with_seed(options.seed);
    let parts = engine::Parts {
        client,
        options,
        clock,
        caches,
        signals,
        effects,
        outbox,
        metrics,
        view,
        role,
        random,
        latency_rule,
    };
    let mut loops = JoinSet::new();
    loops.spawn(engine::Engine::new(parts).run(stop.clone()));
    tokio::select! {
        () = cancel.cancelled() => {}
        Some(ended) = tasks.join_next() => {
            if !cancel.is_cancelled() {
                error!(?ended, "a watch ended by itself");
            }
        }
        Some(ended) = loops.join_next() => {
            if !cancel.is_cancelled() {
                error!(?ended, "the loop ended by itself");
            }
        }
    }
    stop.cancel();
    while loops.join_next().await.is_some() {}
    campaign_stop.cancel();
    while campaigns.join_next().await.is_some() {}
    tasks.shutdown().await;
}
