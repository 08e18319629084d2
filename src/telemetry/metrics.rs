//! Every metric of the engine, with every name, in one registry of its own (no global one).
//!
//! Counters are incremented where things happen, or read at scrape from the room that counts ([`counts`]). Gauges of state (`tradeguard_policies` and the like) are computed at
//! scrape from the published view ([`state`]), so a series lives and dies with its policy. What cannot be measured is
//! left out, never exported with other semantics. docs/metrics.md is made from this file; a test keeps it equal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use tokio::time::Instant;

pub use counts::{BackendCounts, SinkCounts};
pub use labels::{EvaluationResult, ExecutionResult, ReconcileResult, Step, VerdictOrigin};
pub use record::Running;

mod counts;
mod labels;
mod record;
mod state;
#[cfg(test)]
mod tests;

/// The Content-Type of [`Metrics::render`]; Prometheus 3 refuses a scrape without one.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Seconds of a reconcile, as controller-runtime buckets them.
const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];
/// Seconds in a queue, as client-go buckets them.
const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1_000.0];
/// Seconds of a rule: tens of microseconds when all is well, up to its time limit.
const EVALUATION_BUCKETS: &[f64] =
    &[0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 0.5, 1.0];
/// Seconds of a step or a query.
const STEP_BUCKETS: &[f64] = &[0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// What is exported beyond the counters themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether `tradeguard_policy_*` state gauges, which carry the policy's name, are exported.
    pub policy_label: bool,
    /// At most this many series of state gauges with a policy's name; what is left out is counted.
    pub max_policy_series: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { policy_label: true, max_policy_series: 20_000 }
    }
}

/// Every metric. Shared behind an `Arc`; all methods are cheap and never fail.
pub struct Metrics {
    registry: Registry,
    catalogue: Vec<Described>,
    options: Options,
    tenants: Mutex<BTreeSet<String>>,
    controllers: Mutex<BTreeSet<&'static str>>,
    running: Mutex<BTreeMap<u64, (&'static str, Instant)>>,
    next_run: AtomicU64,

    reconciles: IntCounterVec,
    reconcile_errors: IntCounterVec,
    terminal_errors: IntCounterVec,
    reconcile_panics: IntCounterVec,
    reconcile_seconds: HistogramVec,
    active_workers: IntGaugeVec,
    work_seconds: HistogramVec,
    unfinished_seconds: GaugeVec,
    longest_running_seconds: GaugeVec,
    queue_depth: IntGaugeVec,
    queue_adds: IntCounterVec,
    queue_seconds: HistogramVec,
    queue_retries: IntCounterVec,
    leader: IntGaugeVec,
    rest_requests: IntCounterVec,
    watch_errors: IntCounter,

    build_info: IntGaugeVec,
    detached: IntGauge,
    evaluations: IntCounterVec,
    verdicts: IntCounterVec,
    evaluation_seconds: Histogram,
    last_evaluation: GaugeVec,
    executions: IntCounterVec,
    effects_started: IntCounterVec,
    effects_undone: IntCounterVec,
    step_seconds: HistogramVec,
    events_waiting: IntGaugeVec,
}

/// A metric as the catalogue shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Described {
    /// Its full name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels.
    pub labels: Vec<String>,
    /// What it says.
    pub help: String,
}

/// Registers metrics and remembers what it registered.
struct Registrar {
    registry: Registry,
    catalogue: Vec<Described>,
}

/// Names and labels are constants of this file, and a test registers them all.
const VALID: &str = "names and labels are valid and unique";

impl Registrar {
    fn keep<C: Collector + Clone + 'static>(&mut self, kind: &'static str, collector: C) -> C {
        for desc in collector.desc() {
            self.catalogue.push(Described {
                name: desc.fq_name.clone(),
                kind,
                labels: desc.variable_labels.clone(),
                help: desc.help.clone(),
            });
        }
        self.registry.register(Box::new(collector.clone())).expect(VALID);
        collector
    }

    fn counters(&mut self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.keep("counter", IntCounterVec::new(Opts::new(name, help), labels).expect(VALID))
    }

    fn int_gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.keep("gauge", IntGaugeVec::new(Opts::new(name, help), labels).expect(VALID))
    }

    fn gauges(&mut self, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
        self.keep("gauge", GaugeVec::new(Opts::new(name, help), labels).expect(VALID))
    }

    fn histograms(&mut self, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.keep("histogram", HistogramVec::new(opts, labels).expect(VALID))
    }
}

impl Metrics {
    /// All metrics, in a registry of their own.
    pub fn new(options: Options) -> Self {
        let mut r = Registrar { registry: Registry::new(), catalogue: Vec::new() };
        let queue = &["name", "controller"];
        let reconciles =
            r.counters("controller_runtime_reconcile_total", "Reconciles by result.", &["controller", "result"]);
        let mut metrics = Self {
            reconciles,
            reconcile_errors: r.counters(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed.",
                &["controller"],
            ),
            terminal_errors: r.counters(
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciles that failed and are not tried again before the object changes.",
                &["controller"],
            ),
            reconcile_panics: r.counters(
                "controller_runtime_reconcile_panics_total",
                "Reconciles that panicked; a defect of the engine.",
                &["controller"],
            ),
            reconcile_seconds: r.histograms(
                "controller_runtime_reconcile_time_seconds",
                "Duration of reconciles.",
                &["controller"],
                RECONCILE_BUCKETS,
            ),
            active_workers: r.int_gauges(
                "controller_runtime_active_workers",
                "Reconciles that run now.",
                &["controller"],
            ),
            work_seconds: r.histograms(
                "workqueue_work_duration_seconds",
                "How long it takes to work off one object.",
                queue,
                RECONCILE_BUCKETS,
            ),
            unfinished_seconds: r.gauges(
                "workqueue_unfinished_work_seconds",
                "How long the reconciles that run now have been running, in sum.",
                queue,
            ),
            longest_running_seconds: r.gauges(
                "workqueue_longest_running_processor_seconds",
                "How long the longest of the reconciles that run now has been running.",
                queue,
            ),
            queue_depth: r.int_gauges("workqueue_depth", "Changes that the loop has not looked at yet.", queue),
            queue_adds: r.counters(
                "workqueue_adds_total",
                "Changes that were queued; a second one of the same thing before the first was looked at adds nothing.",
                queue,
            ),
            queue_seconds: r.histograms(
                "workqueue_queue_duration_seconds",
                "How long a change waits until the loop looks at it.",
                queue,
                QUEUE_BUCKETS,
            ),
            queue_retries: r.counters(
                "workqueue_retries_total",
                "Objects that were queued again after a failure.",
                queue,
            ),
            leader: r.int_gauges(
                "leader_election_master_status",
                "1 on the instance that holds the lease, 0 on the others.",
                &["name"],
            ),
            rest_requests: r.counters(
                "rest_client_requests_total",
                "Requests to the API server by status code, method and host; code `error` had no answer.",
                &["code", "method", "host"],
            ),
            watch_errors: r.keep(
                "counter",
                IntCounter::new(
                    "tradeguard_watch_errors_total",
                    "Interruptions of watches of the API server; a watch resumes by itself.",
                )
                .expect(VALID),
            ),
            build_info: r.int_gauges("tradeguard_build_info", "1, with what was built.", &["version", "commit"]),
            detached: r.keep(
                "gauge",
                IntGauge::new("tradeguard_detached", "1 while the API server cannot be reached.").expect(VALID),
            ),
            evaluations: r.counters(
                "tradeguard_policy_evaluations_total",
                "Evaluations: hit is breached, miss is ok.",
                &["tenant", "policy_kind", "result"],
            ),
            verdicts: r.counters(
                "tradeguard_verdicts_total",
                "Verdicts by origin: evaluated by the rule, or reused since nothing it looks at had changed.",
                &["origin"],
            ),
            evaluation_seconds: r.keep(
                "histogram",
                Histogram::with_opts(
                    HistogramOpts::new(
                        "tradeguard_policy_evaluation_duration_seconds",
                        "Duration of one rule's evaluation.",
                    )
                    .buckets(EVALUATION_BUCKETS.to_vec()),
                )
                .expect(VALID),
            ),
            last_evaluation: r.gauges(
                "tradeguard_last_successful_evaluation_timestamp_seconds",
                "When a policy of the tenant was last evaluated to ok or breached.",
                &["tenant"],
            ),
            executions: r.counters(
                "tradeguard_policy_executions_total",
                "Effects asked for by actions, by what became of them.",
                &["tenant", "action", "result"],
            ),
            effects_started: r.counters(
                "tradeguard_effects_started_total",
                "New or grown effects; the budget per minute counts these.",
                &["slot"],
            ),
            effects_undone: r.counters("tradeguard_effects_undone_total", "Effects whose original is back.", &["slot"]),
            step_seconds: r.histograms(
                "tradeguard_reconcile_step_duration_seconds",
                "Duration of the steps of the policy loop.",
                &["step"],
                STEP_BUCKETS,
            ),
            events_waiting: r.int_gauges(
                "tradeguard_events_waiting",
                "Events on disk that no sink has acknowledged yet.",
                &["sink"],
            ),
            options,
            tenants: Mutex::default(),
            controllers: Mutex::default(),
            running: Mutex::default(),
            next_run: AtomicU64::new(0),
            catalogue: Vec::new(),
            registry: r.registry,
        };
        #[cfg(target_os = "linux")]
        {
            let process = prometheus::process_collector::ProcessCollector::for_self();
            metrics.registry.register(Box::new(process)).expect(VALID);
        }
        let commit = option_env!("TRADEGUARD_COMMIT").unwrap_or("unknown");
        metrics.build_info.with_label_values(&[env!("CARGO_PKG_VERSION"), commit]).set(1);
        for slot in ["isolation", "mode", "weights"] {
            metrics.effects_started.with_label_values(&[slot]);
            metrics.effects_undone.with_label_values(&[slot]);
        }
        for origin in VerdictOrigin::ALL {
            metrics.verdicts.with_label_values(&[origin.as_str()]);
        }
        for step in Step::ALL {
            metrics.step_seconds.with_label_values(&[step.as_str()]);
        }
        metrics.catalogue = r.catalogue;
        metrics.catalogue.extend(state::catalogue());
        metrics.catalogue.extend(counts::catalogue());
        metrics.catalogue.sort();
        metrics
    }

    /// Every metric that can be exported, in order of name (the `process_*` ones aside).
    pub fn catalogue(&self) -> &[Described] {
        &self.catalogue
    }
}
