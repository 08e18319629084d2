//! A controller in the simulated world: the production code, with the world's API, clock and metrics below it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::world::{OWN_NAMESPACE, World};
use crate::controller::{self, lease};
use crate::decide::{Budgets, Surroundings};
use crate::effects::outbox::{self, Outbox};
use crate::model::view::View;
use crate::rego::Rule;
use crate::signals::{self, Signals, Transport};
use crate::telemetry::metrics::{self, Metrics};

/// Name of the sink that every event goes to.
pub const SINK: &str = "sre-platform";

/// Name of the backend that reads the simulated Pods.
const BACKEND: &str = "pods";

/// One running engine.
pub struct Instance {
    /// What it shows.
    pub view: watch::Receiver<Arc<View>>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// Replaces the latency rule while it runs.
    pub latency_rule: watch::Sender<Rule>,
    cancel: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// How an instance is set up.
pub struct Settings<'a> {
    /// Its name among the instances.
    pub name: &'a str,
    /// Its way to the world's API.
    pub client: kube::Client,
    /// Where its events wait.
    pub state_dir: &'a Path,
    /// How long the Lease lasts.
    pub lease: Duration,
    /// The latency rule to begin with.
    pub latency_rule: Rule,
    /// How it measures.
    pub measuring: Measuring,
    /// `apiVersion` and kind of what policies may target beside the order service.
    pub further_kinds: &'a [(&'a str, &'a str)],
}

/// How an instance measures.
pub struct Measuring {
    /// As in the configuration.
    pub options: signals::Options,
    /// How requests travel.
    pub transport: Arc<dyn Transport>,
}

impl Measuring {
    /// Scrapes the simulated Pods of a world.
    pub fn of_pods(world: &World) -> Self {
        Self { options: scraping(), transport: world.transport() }
    }
}

impl Instance {
    /// Starts an engine in a world.
    pub async fn start(world: &World, settings: Settings<'_>) -> anyhow::Result<Self> {
        let cancel = CancellationToken::new();
        let metrics = Arc::new(Metrics::new(metrics::Options::default()));
        let Measuring { options: measuring, transport } = settings.measuring;
        let backends = measuring.backends.keys().cloned().collect();
        let signals = Arc::new(Signals::new(&measuring, transport, world.clock).context("the demo's signals")?);
        let sinks = BTreeMap::from([(SINK.to_owned(), world.sink())]);
        let outbox = Outbox::open(settings.state_dir, outbox::Limits::default(), sinks).await?;
        let outbox = Arc::new(outbox);
        let (view, seen) = watch::channel(Arc::new(View::default()));
        let (latency_rule, rule) = watch::channel(settings.latency_rule);
        let parts = controller::Parts {
            client: settings.client,
            options: options(settings.name, settings.lease, settings.state_dir, backends, settings.further_kinds),
            clock: world.clock,
            signals: Arc::clone(&signals),
            outbox: Arc::clone(&outbox),
            metrics: Arc::clone(&metrics),
            view,
            latency_rule: rule,
        };
        let (clock, stop) = (world.clock, cancel.clone());
        let tasks = vec![
            tokio::spawn(controller::run(parts, cancel.clone())),
            tokio::spawn({
                let stop = stop.clone();
                async move { outbox.run(clock, stop).await }
            }),
            tokio::spawn(async move { signals.run(&stop).await }),
        ];
        Ok(Self { view: seen, metrics, latency_rule, cancel, tasks })
    }

    /// Asks it to stop and waits: what stands, stands.
    pub async fn stop(self) {
        self.cancel.cancel();
        for task in self.tasks {
            // A task that panicked has said so already.
            let _ = task.await;
        }
    }

    /// Ends it at once, as a kill does: nothing is finished, the Lease is not given up.
    pub fn kill(self) {
        for task in self.tasks {
            task.abort();
        }
    }
}

fn scraping() -> signals::Options {
    let scrape = signals::Scrape { port: Some(8080), interval: Some("5s".into()), ..signals::Scrape::default() };
    signals::Options {
        default_backend: Some(BACKEND.to_owned()),
        default_template: Some("plain".to_owned()),
        backends: BTreeMap::from([(BACKEND.to_owned(), signals::Backend::Scrape(scrape))]),
        ..signals::Options::default()
    }
}

fn options(
    name: &str,
    lease: Duration,
    state_dir: &Path,
    backends: BTreeSet<String>,
    further_kinds: &[(&str, &str)],
) -> controller::Options {
    let kinds = [("trade.io/v1", "OrderService")].into_iter().chain(further_kinds.iter().copied());
    let target_kinds: Vec<_> = kinds.map(|(version, kind)| (version.to_owned(), kind.to_owned())).collect();
    controller::Options {
        identity: name.to_owned(),
        namespace: OWN_NAMESPACE.to_owned(),
        lease: lease::Options { namespace: OWN_NAMESPACE.into(), name: "tradeguard-actor".into(), duration: lease },
        surroundings: Arc::new(Surroundings {
            sinks: BTreeSet::from([SINK.to_owned()]),
            backends,
            templates: signals::built_in_templates().into_keys().collect(),
            target_kinds: target_kinds.iter().cloned().collect(),
            ..Surroundings::default()
        }),
        target_kinds,
        trial_program: None,
        state_dir: state_dir.to_owned(),
        git_credentials: BTreeMap::new(),
        budgets: Budgets::default(),
        default_sinks: BTreeSet::from([SINK.to_owned()]),
        event_source: "/tradeguard/demo".to_owned(),
        status_refresh: Duration::from_secs(60),
        seed: 1,
    }
}
