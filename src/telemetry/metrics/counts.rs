//! Counters that other rooms keep, read at scrape: every combination of labels comes from them, zeros included.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts};

use super::{Described, VALID};

/// What one metrics backend was asked since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendCounts {
    /// Its name.
    pub backend: String,
    /// Queries or scrapes by outcome: `Answered`, or the reason why there was no reading.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Requests that were made a second time.
    pub retries: u64,
    /// Bytes of decoded answers.
    pub bytes_received: u64,
}

/// What became of one sink's events since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    /// Its name.
    pub sink: String,
    /// Acknowledged.
    pub delivered: u64,
    /// Lost, by reason.
    pub lost: Vec<(&'static str, u64)>,
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect(VALID)
}

fn backend_counters() -> Vec<IntCounterVec> {
    vec![
        counters(
            "tradeguard_metric_queries_total",
            "Queries to metrics backends and scrapes of Pods, by outcome: Answered, or why there was no reading.",
            &["backend", "outcome"],
        ),
        counters(
            "tradeguard_metric_query_retries_total",
            "Queries to metrics backends that were made a second time.",
            &["backend"],
        ),
        counters("tradeguard_metric_received_bytes_total", "Bytes of the answers of metrics backends.", &["backend"]),
    ]
}

fn sink_counters() -> Vec<IntCounterVec> {
    vec![
        counters("tradeguard_events_delivered_total", "Events that a sink has acknowledged.", &["sink"]),
        counters("tradeguard_events_lost_total", "Events that were lost, by reason.", &["sink", "reason"]),
    ]
}

/// These counters for the catalogue.
pub(super) fn catalogue() -> Vec<Described> {
    let described = |desc: &Desc| Described {
        name: desc.fq_name.clone(),
        kind: "counter",
        labels: desc.variable_labels.clone(),
        help: desc.help.clone(),
    };
    let all = backend_counters().into_iter().chain(sink_counters());
    all.flat_map(|counter| counter.desc().into_iter().map(described).collect::<Vec<_>>()).collect()
}

/// Fills fresh counters at each scrape.
pub(super) struct CountsCollector {
    shapes: Vec<IntCounterVec>,
    fill: Box<dyn Fn() -> Vec<IntCounterVec> + Send + Sync>,
}

impl CountsCollector {
    pub(super) fn backends(counts: Box<dyn Fn() -> Vec<BackendCounts> + Send + Sync>) -> Self {
        let fill = move || {
            let counters = backend_counters();
            let [queries, retries, bytes] = counters.as_slice() else { return counters };
            for of in counts() {
                for (outcome, count) in of.outcomes {
                    queries.with_label_values(&[of.backend.as_str(), outcome]).inc_by(count);
                }
                retries.with_label_values(&[of.backend.as_str()]).inc_by(of.retries);
                bytes.with_label_values(&[of.backend.as_str()]).inc_by(of.bytes_received);
            }
            counters
        };
        Self { shapes: backend_counters(), fill: Box::new(fill) }
    }

    pub(super) fn sinks(counts: Box<dyn Fn() -> Vec<SinkCounts> + Send + Sync>) -> Self {
        let fill = move || {
            let counters = sink_counters();
            let [delivered, lost] = counters.as_slice() else { return counters };
            for of in counts() {
                delivered.with_label_values(&[of.sink.as_str()]).inc_by(of.delivered);
                for (reason, count) in of.lost {
                    lost.with_label_values(&[of.sink.as_str(), reason]).inc_by(count);
                }
            }
            counters
        };
        Self { shapes: sink_counters(), fill: Box::new(fill) }
    }
}

impl Collector for CountsCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.shapes.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        (self.fill)().iter().flat_map(Collector::collect).collect()
    }
}
