//! `tradeguard demo`: the whole engine in a simulated world, in accelerated time, on the terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Error, Exit, Output, Result, Streams};
use crate::clock::Clock;
use crate::demo::fault::Fault;
use crate::demo::policy_files::PolicyFiles;
use crate::demo::run::{Run, SEED_POLICY};
use crate::demo::screen::{self, Frame};
use crate::demo::world::{NAMESPACE, SERVICE, World};
use crate::model::problem::Problem;
use crate::model::view::{NORMAL, View};
use crate::rego::Rule;
use crate::serve::{self, Health, Surface};

/// Show the engine at work on a simulated order service: no cluster, no Prometheus, nothing to set up.
///
/// Five Pods serve orders, two answer from their cache. One Pod, then the exchange behind all of them, becomes slow. The
/// policy notices, waits for its duration, isolates the slow Pod, moves traffic to the cache, and takes all of it back
/// when there is evidence of recovery. The simulation is a model: what the engine does changes what it measures.
///
/// Examples:
///
///     tradeguard demo
///     tradeguard demo --fault pod --speed 60
///     tradeguard demo --policies ./my-policies          # edits take effect while it runs
///     tradeguard demo --once --output json | jq .summary
///     tradeguard demo --listen 127.0.0.1:9650           # then: curl localhost:9650/v1/policies
///
/// With --once it ends when the story is over. Exit code: 0 the policy was activated, everything was applied and
/// everything restored; 1 anything else.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Simulated seconds in a real one.
    #[arg(long, default_value_t = 30.0, value_parser = speed)]
    speed: f64,
    /// What goes wrong.
    #[arg(long, value_enum, default_value_t)]
    fault: Fault,
    /// A folder with policies (*.yaml) in place of the built-in one, and optionally a latency_budget.rego in place of the
    /// shipped rule; edits take effect within a second.
    #[arg(long, value_name = "DIR")]
    policies: Option<PathBuf>,
    /// Serve the engine's HTTP surface at this address.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Run to the end of the story and stop.
    #[arg(long)]
    once: bool,
    /// How the result is printed; json needs --once.
    #[arg(long, value_enum, default_value_t, requires_if("json", "once"))]
    output: Output,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (0.1..=2_000.0).contains(&speed) => Ok(speed),
        _ => Err("expected a number from 0.1 to 2000".to_owned()),
    }
}

/// Simulated time after which a story is given up: more than ten times the seed's recovery beyond its fault.
const LIMIT: Duration = Duration::from_secs(40 * 60);

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("this machine gives no event loop: {error}")))?;
    runtime.block_on(play(args, streams))
}

async fn play(args: &Args, streams: &mut Streams<'_>) -> Result {
    let clock = Clock::scaled(Clock::system().now(), args.speed);
    let world = World::new(clock, 1);
    let state = std::env::temp_dir().join(format!("tradeguard-demo-{}", std::process::id()));
    let limit = if args.once { LIMIT } else { Duration::MAX };
    let started = Run::start(world.clone(), args.fault, Rule::shipped_latency_budget(), &state, limit).await;
    let mut run = started.map_err(|error| Error::Unreachable(format!("the demo did not start: {error:#}")))?;
    let stopping = CancellationToken::new();
    let serving = listen(args, &run, clock, &stopping).await?;
    let mut source = Source::new(args);
    source.sync(&run).await?;
    let told = tell(args, &mut run, &mut source, streams).await;
    stopping.cancel();
    if let Some(serving) = serving {
        // It only ends with the token; a failure to serve was told when it happened.
        let _ = serving.await;
    }
    let recorder = run.stop().await;
    // Only this demo's own events are in it.
    let _ = std::fs::remove_dir_all(&state);
    told?;
    let document = recorder.document();
    if args.output == Output::Json {
        let json = serde_json::to_string_pretty(&document).map_err(std::io::Error::from)?;
        writeln!(streams.out, "{json}")?;
    } else if args.once {
        writeln!(streams.out, "{}", in_words(&document.summary))?;
    }
    Ok(if document.is_success() || !args.once { Exit::Ok } else { Exit::No })
}

async fn listen(
    args: &Args,
    run: &Run,
    clock: Clock,
    stopping: &CancellationToken,
) -> Result<Option<tokio::task::JoinHandle<std::io::Result<()>>>> {
    let Some(address) = args.listen else { return Ok(None) };
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(|error| Error::Unreachable(format!("cannot listen at {address}: {error}")))?;
    let surface = Surface {
        view: run.engine.view.clone(),
        metrics: Arc::clone(&run.engine.metrics),
        clock,
        health: Health::default(),
        stopping: stopping.clone(),
    };
    Ok(Some(tokio::spawn(serve::serve(listener, surface))))
}

/// Where the demo's policies come from.
enum Source {
    Seed { applied: bool },
    Folder { files: PolicyFiles, problems: Vec<String> },
}

impl Source {
    fn new(args: &Args) -> Self {
        match &args.policies {
            None => Self::Seed { applied: false },
            Some(folder) => Self::Folder { files: PolicyFiles::new(folder), problems: Vec::new() },
        }
    }

    async fn sync(&mut self, run: &Run) -> Result<()> {
        match self {
            Self::Seed { applied: true } => Ok(()),
            Self::Seed { applied } => {
                let seed = crate::api::documents::parse_document("the built-in policy", SEED_POLICY.as_bytes())?;
                let path = std::path::Path::new("the built-in policy");
                crate::demo::policy_files::apply(&run.world, path, &seed).await?;
                *applied = true;
                Ok(())
            }
            Self::Folder { files, problems } => {
                let found: Vec<Problem> = files.sync(&run.world, &run.engine.latency_rule).await;
                if !found.is_empty() {
                    *problems = found.iter().map(ToString::to_string).collect();
                }
                Ok(())
            }
        }
    }

    fn problems(&self) -> &[String] {
        match self {
            Self::Seed { .. } => &[],
            Self::Folder { problems, .. } => problems,
        }
    }
}

/// Goes through the story until it is over or the user has seen enough.
async fn tell(args: &Args, run: &mut Run, source: &mut Source, streams: &mut Streams<'_>) -> Result<()> {
    let mut teller = Teller::new(args);
    let mut looked = tokio::time::Instant::now();
    loop {
        let view = tokio::select! {
            view = run.go_on() => view,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        if looked.elapsed() >= Duration::from_millis(200) {
            looked = tokio::time::Instant::now();
            source.sync(run).await?;
        }
        teller.tell(run, &view, source.problems(), streams)?;
        if args.once && run.is_over() {
            return Ok(());
        }
    }
}

/// Redraws a terminal, or writes a line per change elsewhere.
struct Teller {
    speed: f64,
    fault: Fault,
    style: Telling,
}

enum Telling {
    Nothing,
    Frames { drawn: usize, last: Option<tokio::time::Instant> },
    Lines { events: usize, problems: Vec<String> },
}

impl Teller {
    fn new(args: &Args) -> Self {
        let style = if args.output == Output::Json {
            Telling::Nothing
        } else if std::io::stdout().is_terminal() {
            Telling::Frames { drawn: 0, last: None }
        } else {
            Telling::Lines { events: 0, problems: Vec::new() }
        };
        Self { speed: args.speed, fault: args.fault, style }
    }

    fn tell(&mut self, run: &Run, view: &View, problems: &[String], streams: &mut Streams<'_>) -> Result<()> {
        match &mut self.style {
            Telling::Nothing => {}
            Telling::Lines { events, problems: told } => {
                let all = run.world.events();
                for event in all.iter().skip(*events) {
                    let elapsed = run.recorder.elapsed().as_secs();
                    writeln!(streams.out, "t+{:02}:{:02}  {}", elapsed / 60, elapsed % 60, screen::sentence(event))?;
                }
                *events = all.len();
                if told.as_slice() != problems {
                    for problem in problems {
                        writeln!(streams.err, "{problem}")?;
                    }
                    *told = problems.to_vec();
                }
            }
            Telling::Frames { drawn, last } => {
                if last.is_some_and(|at| at.elapsed() < Duration::from_millis(100)) && !run.is_over() {
                    return Ok(());
                }
                *last = Some(tokio::time::Instant::now());
                let lines = frame(run, view, self.speed, self.fault, problems);
                let mut text = String::new();
                if *drawn > 0 {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "\x1b[{drawn}A\x1b[J");
                }
                *drawn = lines.len();
                text.push_str(&lines.join("\n"));
                text.push('\n');
                write!(streams.out, "{text}")?;
                streams.out.flush()?;
            }
        }
        Ok(())
    }
}

fn frame(run: &Run, view: &View, speed: f64, fault: Fault, problems: &[String]) -> Vec<String> {
    let traffic = run.world.traffic();
    let rates = run.world.rates();
    let events = run.world.events();
    let elapsed = run.recorder.elapsed();
    let mode = view.targets.values().next().map_or(NORMAL, |target| target.mode.as_str());
    let route = run.world.object("VirtualService", SERVICE);
    let destinations: Vec<String> = route
        .iter()
        .flat_map(|object| object["spec"]["http"][0]["route"].as_array().cloned().unwrap_or_default())
        .map(|entry| entry["destination"]["subset"].as_str().unwrap_or_default().to_owned())
        .collect();
    let policy = view.policies.iter().next().map(|(key, policy)| (format!("{NAMESPACE}/{}", key.name), &**policy));
    screen::draw(&Frame {
        elapsed,
        speed,
        policy,
        timeline: run.recorder.timeline(),
        traffic: &traffic,
        rates: &rates,
        destinations: &destinations,
        mode,
        fault: fault.in_words(elapsed),
        events: &events,
        problems,
    })
}

fn in_words(summary: &crate::demo::story::Summary) -> String {
    if !summary.activated {
        return "the policy was never activated".to_owned();
    }
    let seconds = |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |value| format!("{value:.0} s"));
    let restored =
        if summary.restored { "everything was restored" } else { "not everything was restored: the fault lasts" };
    format!(
        "active {} after the first breached reading, every effect stood {} later; {restored}",
        seconds(summary.breach_to_active_seconds),
        seconds(summary.active_to_applied_seconds),
    )
}
