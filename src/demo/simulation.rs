//! The simulated order service: a model of cause and effect, not a script.
//!
//! Requests arrive at a rate, the route's weights split them over the subsets, each subset spreads its share over the
//! Pods that are in service, and each Pod answers with latencies that follow from what it does: answering from the
//! cache is quick, asking the exchange is slower, a Pod near its capacity queues, a fault adds to it. So isolation,
//! weights and mode change what is measured, and nothing else does.
//!
//! Counts are expected values (fractions of a request), so that a run is the same every time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Upper bounds of the histogram's buckets, in seconds.
pub const BUCKETS: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0];

/// How one Pod is built.
#[derive(Clone, Debug)]
pub struct PodModel {
    /// Requests a second at which it saturates when every one goes to the exchange.
    pub capacity: f64,
    /// True for a Pod that only ever answers from its cache.
    pub cache_only: bool,
}

/// What is wrong at the moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Seconds that single Pods add to each request that goes to the exchange.
    pub pods: BTreeMap<String, f64>,
    /// Seconds that the exchange itself adds to every request that goes there.
    pub exchange: f64,
}

/// How traffic reaches the Pods at the moment, as read from the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// For each destination of the route: its weight, and the Pods in service behind it.
    pub destinations: Vec<(f64, Vec<String>)>,
    /// Pods whose mode annotation says that they answer from the cache.
    pub cached: Vec<String>,
}

/// Counters of one Pod, as a Prometheus histogram holds them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Observations up to each bound, not cumulated; the last entry is what lies above all bounds.
    counts: [f64; BUCKETS.len() + 1],
    sum: f64,
}

/// The service.
#[derive(Clone, Debug)]
pub struct Simulation {
    pods: BTreeMap<String, PodModel>,
    counters: BTreeMap<String, Histogram>,
    /// Requests a second that arrive in all.
    pub load: f64,
}

/// One kind of answer a Pod gives: what share of its requests, with what median in seconds.
struct Answer {
    share: f64,
    median: f64,
}

/// Width of the log-normal distribution of latencies around their median.
const SPREAD: f64 = 0.35;

/// Median seconds of an answer from the cache, and of one that goes to the exchange.
const CACHED: f64 = 0.02;
const EXCHANGE: f64 = 0.14;

/// In cache-only mode a primary Pod still sends this share to the exchange (orders that the cache cannot answer).
const UNCACHEABLE: f64 = 0.02;

/// A cached answer costs this part of a Pod's capacity that one from the exchange costs.
const CACHED_COST: f64 = 0.1;

impl Simulation {
    /// A service of these Pods under this load.
    pub fn new(pods: BTreeMap<String, PodModel>, load: f64) -> Self {
        let counters = pods.keys().map(|name| (name.clone(), Histogram::default())).collect();
        Self { pods, counters, load }
    }

    /// Lets `seconds` pass.
    pub fn advance(&mut self, seconds: f64, traffic: &Traffic, faults: &Faults) {
        let rates = self.rates(traffic);
        for (name, rate) in rates {
            let Some(model) = self.pods.get(&name) else { continue };
            let cached = model.cache_only || traffic.cached.contains(&name);
            let answers = answers(model, cached, rate, faults.exchange + faults.pods.get(&name).unwrap_or(&0.0));
            let counter = self.counters.entry(name).or_default();
            for answer in answers {
                counter.observe(rate * seconds * answer.share, answer.median);
            }
        }
    }

    /// Requests a second by Pod.
    pub fn rates(&self, traffic: &Traffic) -> BTreeMap<String, f64> {
        let total: f64 = traffic.destinations.iter().map(|(weight, _)| weight).sum();
        let mut rates: BTreeMap<String, f64> = BTreeMap::new();
        for (weight, pods) in &traffic.destinations {
            if total <= 0.0 || pods.is_empty() {
                continue;
            }
            let each = self.load * weight / total / pods.len() as f64;
            for pod in pods {
                *rates.entry(pod.clone()).or_default() += each;
            }
        }
        rates
    }

    /// What a Pod's `/metrics` answers; none if there is no such Pod.
    pub fn metrics(&self, pod: &str) -> Option<String> {
        let histogram = self.counters.get(pod)?;
        let name = "http_request_duration_seconds";
        let mut text = format!("# HELP {name} Latency of orders.\n# TYPE {name} histogram\n");
        let mut cumulated = 0.0;
        for (bound, count) in BUCKETS.iter().zip(histogram.counts) {
            cumulated += count;
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {cumulated}");
        }
        cumulated += histogram.counts[BUCKETS.len()];
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {cumulated}");
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {cumulated}", histogram.sum);
        Some(text)
    }

    /// A Pod starts with its counters at zero.
    pub fn add(&mut self, name: &str, model: PodModel) {
        self.pods.insert(name.to_owned(), model);
        self.counters.insert(name.to_owned(), Histogram::default());
    }

    /// A Pod is gone.
    pub fn remove(&mut self, name: &str) {
        self.pods.remove(name);
        self.counters.remove(name);
    }
}

fn answers(model: &PodModel, cached: bool, rate: f64, extra: f64) -> Vec<Answer> {
    let to_exchange = match (model.cache_only, cached) {
        (true, _) => 0.0,
        (false, true) => UNCACHEABLE,
        (false, false) => 1.0,
    };
    let cost = to_exchange + (1.0 - to_exchange) * CACHED_COST;
    // A Pod near its capacity queues: the classic 1 / (1 - utilisation), capped where a real one would shed load.
    let utilisation = (rate * cost / model.capacity).min(0.95);
    let queueing = 1.0 / (1.0 - utilisation);
    vec![
        Answer { share: 1.0 - to_exchange, median: CACHED * queueing },
        Answer { share: to_exchange, median: EXCHANGE * queueing + extra },
    ]
}

impl Histogram {
    fn observe(&mut self, count: f64, median: f64) {
        if count <= 0.0 {
            return;
        }
        let mut below = 0.0;
        for (slot, bound) in self.counts.iter_mut().zip(BUCKETS) {
            let up_to = normal((bound / median).ln() / SPREAD);
            *slot += count * (up_to - below);
            below = up_to;
        }
        self.counts[BUCKETS.len()] += count * (1.0 - below);
        self.sum += count * median * (SPREAD * SPREAD / 2.0).exp();
    }
}

/// The standard normal distribution function, by Abramowitz and Stegun 7.1.26 (error below 1.5e-7).
fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly =
        t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let erf = 1.0 - poly * (-z * z).exp();
    if x >= 0.0 { f64::midpoint(1.0, erf) } else { f64::midpoint(1.0, -erf) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> (Simulation, Traffic) {
        let primary = PodModel { capacity: 400.0, cache_only: false };
        let cache = PodModel { capacity: 120.0, cache_only: true };
        let pods = [("p1", &primary), ("p2", &primary), ("c1", &cache)];
        let pods = pods.into_iter().map(|(name, model)| (name.to_owned(), model.clone())).collect();
        let traffic = Traffic {
            destinations: vec![(100.0, vec!["p1".into(), "p2".into()]), (0.0, vec!["c1".into()])],
            cached: Vec::new(),
        };
        (Simulation::new(pods, 100.0), traffic)
    }

    /// The share of requests slower than 800 ms since the start.
    fn slow(simulation: &Simulation) -> f64 {
        let (mut all, mut slow) = (0.0, 0.0);
        for histogram in simulation.counters.values() {
            all += histogram.counts.iter().sum::<f64>();
            slow += histogram.counts[9..].iter().sum::<f64>();
        }
        slow / all
    }

    #[test]
    fn a_healthy_service_is_quick_and_a_slow_exchange_is_not() {
        let (mut simulation, traffic) = service();
        simulation.advance(60.0, &traffic, &Faults::default());
        assert!(slow(&simulation) < 0.005, "{}", slow(&simulation));
        let (mut simulation, traffic) = service();
        simulation.advance(60.0, &traffic, &Faults { exchange: 1.5, ..Faults::default() });
        assert!(slow(&simulation) > 0.9);
    }

    #[test]
    fn moving_the_weights_or_isolating_the_slow_pod_makes_it_quick_again() {
        let faults = Faults { pods: BTreeMap::from([("p2".to_owned(), 2.0)]), ..Faults::default() };
        let (mut simulation, mut traffic) = service();
        simulation.advance(60.0, &traffic, &faults);
        assert!(slow(&simulation) > 0.4);
        let (mut isolated, _) = service();
        traffic.destinations[0].1.retain(|pod| pod != "p2");
        isolated.advance(60.0, &traffic, &faults);
        assert!(slow(&isolated) < 0.2, "only queueing is left: {}", slow(&isolated));
        let (mut moved, _) = service();
        traffic.destinations[0].0 = 0.0;
        traffic.destinations[1].0 = 100.0;
        moved.advance(60.0, &traffic, &Faults { exchange: 3.0, ..Faults::default() });
        assert!(slow(&moved) < 0.001);
    }

    #[test]
    fn requests_are_neither_lost_nor_made() {
        let (mut simulation, traffic) = service();
        simulation.advance(10.0, &traffic, &Faults::default());
        let all: f64 = simulation.counters.values().map(|histogram| histogram.counts.iter().sum::<f64>()).sum();
        assert!((all - 1_000.0).abs() < 1e-6);
        assert!(simulation.metrics("p1").unwrap().contains("http_request_duration_seconds_bucket{le=\"+Inf\"} 500"));
    }
}
