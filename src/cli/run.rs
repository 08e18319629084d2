//! `tradeguard run`: one instance of the engine. The wiring of production: every task is started, named and joined here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::config::Config;
use super::{Error, Exit, Result, Streams, cluster};
use crate::clock::Clock;
use crate::controller::{self, lease};
use crate::effects::notify::{Deliver, HttpOptions, HttpSink};
use crate::effects::outbox::{Limits, Outbox};
use crate::model::problem::Problem;
use crate::model::view::View;
use crate::rego::Rule;
use crate::serve::{self, Health, Surface};
use crate::signals::{ReqwestTransport, Signals};
use crate::sources::trial;
use crate::telemetry::logging::{self, Format};
use crate::telemetry::metrics::{BackendCounts, Metrics, SinkCounts};

/// How long tasks may take to stop before they are cut off; below the 30 seconds that a Pod is given.
const STOPPING: Duration = Duration::from_secs(20);

/// How often the number of waiting events is looked at.
const SAMPLING: Duration = Duration::from_secs(5);

/// Run one instance of the engine, in a cluster or beside it.
///
/// Every instance watches and serves; one at a time acts, by a Lease. It stops on SIGTERM or SIGINT: what is under way is
/// finished, effects stay as they are, the Lease is given up. Logs go to stderr, as JSON unless --log-format says text.
///
/// Exit code: 0 stopped as asked, 2 the configuration is wrong, 3 an address, directory or task failed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration; deploy/config.yaml shows every field.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The cluster; default: as kubectl finds it, else that of the Pod this runs in.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of this instance, unique among all; default: host name with a random suffix.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Address of the HTTP surface, instead of those in the configuration; may be given several times.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Where events wait for their sinks, instead of the configuration's stateDir.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How logs look: json or text.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    log_format: Format,
    /// What is logged, in the syntax of RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = logging::DEFAULT_FILTER)]
    log: String,
}

pub(super) fn run(args: Args, streams: &mut Streams<'_>) -> Result {
    let clock = Clock::system();
    let mut config = Config::load(&args.config)?;
    if !args.listen.is_empty() {
        config.listen.clone_from(&args.listen);
    }
    if let Some(dir) = &args.state_dir {
        config.state_dir.clone_from(dir);
    }
    logging::install(args.log_format, &args.log, clock).map_err(|error| Error::Usage(error.to_string()))?;
    // Whoever embeds us may have chosen one already; any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("this machine gives no event loop: {error}")))?;
    streams.out.flush()?;
    let ended = runtime.block_on(Box::pin(instance(args, config, clock)));
    // A task of the blocking pool that hangs must not hold the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn instance(args: Args, config: Config, clock: Clock) -> Result {
    let metrics = Arc::new(Metrics::new(config.metrics));
    let client = cluster::client(args.kubeconfig.as_deref(), Some(Arc::clone(&metrics))).await?;
    let transport = ReqwestTransport::new(&config.signals).map_err(|error| Error::Usage(cluster::words(&error)))?;
    let signals = Signals::new(&config.signals, Arc::new(transport), clock)
        .map_err(|error| Error::Usage(cluster::words(&error)))?;
    let (signals, outbox) = (Arc::new(signals), Arc::new(outbox(&config).await?));
    let listeners = listen(&config.listen).await?;
    let (view, seen) = watch::channel(Arc::new(View::default()));
    // Kept to the end: the rule in force outlives whoever could change it.
    let (_latency_rule, latency_rule) = watch::channel(Rule::shipped_latency_budget());
    count(&metrics, &seen, &signals, &outbox);

    let stop = CancellationToken::new();
    let mut tasks = Tasks::default();
    let surface = Surface {
        view: seen,
        metrics: Arc::clone(&metrics),
        clock,
        health: tasks.health.clone(),
        stopping: stop.clone(),
    };
    for listener in listeners {
        let surface = surface.clone();
        tasks
            .start("the HTTP surface", async move { serve::serve(listener, surface).await.map_err(|e| e.to_string()) });
    }
    let sending = (Arc::clone(&outbox), stop.clone());
    tasks.start("the outbox", async move {
        sending.0.run(clock, sending.1).await;
        Ok(())
    });
    let (measuring, measuring_stop) = (Arc::clone(&signals), stop.clone());
    tasks.start("scraping", async move {
        measuring.run(&measuring_stop).await;
        Ok(())
    });
    tasks.start("sampling", sample(Arc::clone(&metrics), Arc::clone(&outbox), clock, stop.clone()));
    let identity = args.identity.unwrap_or_else(identity);
    info!(identity, version = env!("CARGO_PKG_VERSION"), "an instance starts");
    let options = options(&config, identity);
    let parts = controller::Parts { client, options, clock, signals, outbox, metrics, view, latency_rule };
    let controlling = stop.clone();
    tasks.start("the controller", async move {
        controller::run(parts, controlling).await;
        Ok(())
    });
    tasks.until_stopped(&stop).await
}

/// What the controller is told of the configuration.
fn options(config: &Config, identity: String) -> controller::Options {
    let sinks = config.sinks.iter();
    controller::Options {
        identity,
        namespace: config.namespace.clone(),
        lease: lease::Options {
            namespace: config.namespace.clone(),
            name: config.lease_name.clone(),
            duration: config.lease_duration,
        },
        target_kinds: config.targets.iter().map(|target| (target.api_version.clone(), target.kind.clone())).collect(),
        surroundings: Arc::new(config.surroundings()),
        trial_program: trial::this_program(),
        state_dir: config.state_dir.clone(),
        git_credentials: config.git_credentials.clone(),
        budgets: config.budgets,
        default_sinks: sinks.filter(|(_, sink)| sink.all_events).map(|(name, _)| name.clone()).collect(),
        event_source: format!("/tradeguard/{}", config.cluster_name),
        status_refresh: Duration::from_mins(1),
        seed: fastrand::u64(..),
    }
}

/// Unique even where two processes share a host.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("tradeguard").to_owned();
    format!("{host}-{:08x}", fastrand::u32(..))
}

async fn outbox(config: &Config) -> Result<Outbox> {
    // As with metrics: a redirect could lead a token to where the configuration never said.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(5))
        .build()
        .map_err(|error| Error::Usage(format!("sinks: {}", cluster::words(&error))))?;
    let sink = |(name, sink): (&String, &super::config::Sink)| {
        let options = HttpOptions {
            url: sink.url.clone(),
            timeout: sink.timeout,
            headers: sink.headers.clone(),
            bearer_token_file: sink.bearer_token_file.clone(),
        };
        (name.clone(), Arc::new(HttpSink::new(client.clone(), options)) as Arc<dyn Deliver>)
    };
    let sinks = config.sinks.iter().map(sink).collect();
    Outbox::open(&config.state_dir.join("events"), Limits::default(), sinks)
        .await
        .map_err(|error| Problem::at("stateDir", cluster::words(&error)).into())
}

async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = TcpListener::bind(address).await;
        let listener = bound.map_err(|error| Error::Unreachable(format!("cannot listen on {address}: {error}")))?;
        // The address as bound: port 0 becomes a real one, for whoever starts us and reads our logs.
        let bound = listener.local_addr().map_or_else(|_| address.to_string(), |bound| bound.to_string());
        info!(address = bound, everything = serve::Exposure::of(*address) == serve::Exposure::All, "listening");
        listeners.push(listener);
    }
    Ok(listeners)
}

/// What is read at every scrape.
fn count(metrics: &Metrics, view: &watch::Receiver<Arc<View>>, signals: &Arc<Signals>, outbox: &Arc<Outbox>) {
    let view = view.clone();
    metrics.observe_view(move || Arc::clone(&view.borrow()));
    let signals = Arc::clone(signals);
    metrics.observe_backends(move || {
        let counts = |(backend, stats): (String, crate::signals::BackendStats)| BackendCounts {
            backend,
            outcomes: stats
                .outcomes
                .iter()
                .map(|(outcome, count)| (outcome.map_or("Answered", |why| why.reason().as_str()), *count))
                .collect(),
            retries: stats.retries,
            bytes_received: stats.bytes_received,
        };
        signals.stats().into_iter().map(counts).collect()
    });
    let outbox = Arc::clone(outbox);
    metrics.observe_sinks(move || {
        let losses = outbox.losses();
        let lost = |sink: &str| {
            losses.iter().filter(|(of, ..)| of == sink).map(|(_, loss, count)| (loss.as_str(), *count)).collect()
        };
        let counts = |(sink, delivered): (String, u64)| SinkCounts { lost: lost(&sink), sink, delivered };
        outbox.delivered().into_iter().map(counts).collect()
    });
}

async fn sample(
    metrics: Arc<Metrics>,
    outbox: Arc<Outbox>,
    clock: Clock,
    stop: CancellationToken,
) -> Result<(), String> {
    loop {
        for (sink, waiting) in outbox.waiting().await {
            metrics.events_waiting(&sink, waiting);
        }
        if stop.run_until_cancelled(clock.sleep(SAMPLING)).await.is_none() {
            return Ok(());
        }
    }
}

/// The tasks of this process by name. One that ends before it is told to takes the process with it: what is left would
/// look alive and do half of its work.
#[derive(Default)]
struct Tasks {
    running: JoinSet<(&'static str, Result<(), String>)>,
    health: Health,
}

impl Tasks {
    fn start(&mut self, name: &'static str, work: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.running.spawn(async move { (name, work.await) });
    }

    async fn until_stopped(mut self, stop: &CancellationToken) -> Result {
        let failed = tokio::select! {
            () = asked_to_stop() => {
                info!("stopping as asked");
                None
            }
            ended = self.running.join_next() => {
                let why = match ended {
                    Some(Ok((name, Ok(())))) => format!("{name} ended by itself"),
                    Some(Ok((name, Err(why)))) => format!("{name} ended: {why}"),
                    Some(Err(panicked)) => format!("a task failed: {panicked}"),
                    None => "no task was started".to_owned(),
                };
                error!(why, "an instance that is not whole stops");
                self.health.fail(&why);
                Some(why)
            }
        };
        stop.cancel();
        let rest = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOPPING, rest).await.is_err() {
            error!("tasks that did not stop in time are cut off");
        }
        match failed {
            None => Ok(Exit::Ok),
            Some(why) => Err(Error::Unreachable(why)),
        }
    }
}

#[cfg(unix)]
async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        // Without handlers the signals end the process by themselves.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn asked_to_stop() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
