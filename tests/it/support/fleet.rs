//! Many policies of one shape: a cluster in memory with a target and Pods for each, a Prometheus in process that knows
//! them and others besides, and the engine of production on both. For tests that count, and for benches that measure.
//! Time is tokio's, which is to be paused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use parking_lot::Mutex;
use regex::Regex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tradeguard::api::crd;
use tradeguard::clock::Clock;
use tradeguard::controller::{self, lease};
use tradeguard::decide::{Budgets, Surroundings};
use tradeguard::effects::outbox::{self, Outbox};
use tradeguard::memkube::{MemKube, Options};
use tradeguard::model::phase::Phase;
use tradeguard::model::verdict::Outcome;
use tradeguard::model::view::View;
use tradeguard::rego::Rule;
use tradeguard::signals::{self, Request, Response, Signals, Transport, TransportError};
use tradeguard::telemetry::metrics::{self, Metrics};

/// Under which name the engine asks the API.
pub(crate) const ENGINE: &str = "engine";
/// The engine's namespace.
pub(crate) const OWN_NAMESPACE: &str = "tradeguard-system";
/// How many policies share a namespace.
pub(crate) const PER_NAMESPACE: usize = 100;
/// What policies are judged every.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);
/// Upper edges of the histogram, in seconds.
const EDGES: [&str; 12] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"];

const KINDS: &str = include_str!("order_service/kinds.yaml");
const BACKEND: &str = "prometheus";

/// How many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Policies, each with a target of its own.
    pub(crate) policies: usize,
    /// Pods of each target.
    pub(crate) pods: usize,
    /// Services that nobody governs, with as many Pods each, half of them in namespaces of their own.
    pub(crate) foreign: usize,
}

/// The cluster and its Prometheus.
pub(crate) struct Fleet {
    pub(crate) memkube: MemKube,
    pub(crate) clock: Clock,
    pub(crate) prometheus: Arc<Prometheus>,
    pub(crate) size: Size,
}

/// The namespace of a policy, its target and its Pods.
pub(crate) fn namespace(number: usize) -> String {
    format!("team-{:03}", number / PER_NAMESPACE)
}

/// The name of a policy and of its target.
pub(crate) fn name(number: usize) -> String {
    format!("service-{number:05}")
}

impl Fleet {
    /// Needs a tokio runtime.
    pub(crate) fn new(size: Size) -> Self {
        let start = DateTime::from_timestamp(1_800_000_000, 0).expect("is a time");
        let clock = Clock::scaled(start, 1.0);
        let memkube = MemKube::new(Options::new(clock));
        let load = |yaml: &str| memkube.load(yaml).expect("the fleet's objects are valid");
        for definition in crd::all() {
            assert_eq!(load(&crd::to_yaml(&definition)), 1);
        }
        load(KINDS);
        memkube.add_namespace(OWN_NAMESPACE);
        for number in 0..size.policies {
            if number % PER_NAMESPACE == 0 {
                memkube.add_namespace(&namespace(number));
            }
            load(&objects(number, size.pods));
        }
        Self { memkube, clock, prometheus: Arc::new(Prometheus::new(size)), size }
    }

    /// Starts the engine.
    pub(crate) async fn start(&self) -> Engine {
        let cancel = CancellationToken::new();
        let state = tempfile::tempdir().expect("a folder for events");
        let metrics = Arc::new(Metrics::new(metrics::Options::default()));
        let transport = Arc::clone(&self.prometheus) as Arc<dyn Transport>;
        let signals = Arc::new(Signals::new(&signal_options(), transport, self.clock).expect("the options are valid"));
        let outbox = Outbox::open(state.path(), outbox::Limits::default(), BTreeMap::new()).await;
        let (view, seen) = watch::channel(Arc::new(View::default()));
        let (rule, latency_rule) = watch::channel(Rule::shipped_latency_budget());
        let parts = controller::Parts {
            client: self.memkube.client(ENGINE),
            options: options(),
            clock: self.clock,
            signals: Arc::clone(&signals),
            outbox: Arc::new(outbox.expect("the folder is ours")),
            metrics: Arc::clone(&metrics),
            view,
            latency_rule,
        };
        let task = tokio::spawn(controller::run(parts, cancel.clone()));
        Engine { metrics, signals, view: seen, cancel, task, _rule: rule, _state: state }
    }

    /// Starts the engine and waits until every policy was judged and nothing is left to write. It returns between two
    /// ticks, so that whoever waits for whole intervals sees whole ticks.
    pub(crate) async fn start_and_settle(&self) -> Engine {
        let engine = self.start().await;
        tokio::time::sleep(INTERVAL / 2).await;
        for _ in 0..60 {
            tokio::time::sleep(INTERVAL).await;
            let writes = self.memkube.counts().by(ENGINE).of("latencybudgetpolicies.policy.trade.io").writes();
            tokio::time::sleep(INTERVAL).await;
            let after = self.memkube.counts().by(ENGINE).of("latencybudgetpolicies.policy.trade.io").writes();
            if engine.all_are(self.size.policies, Phase::Healthy, Outcome::Ok) && writes == after {
                return engine;
            }
        }
        let view = engine.view.borrow();
        panic!("not settled after twenty minutes: {:?}", view.policies.values().next());
    }
}

/// A running engine.
pub(crate) struct Engine {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) view: watch::Receiver<Arc<View>>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    _rule: watch::Sender<Rule>,
    _state: tempfile::TempDir,
}

impl Engine {
    /// Whether there are so many policies, all in this phase and with this verdict.
    pub(crate) fn all_are(&self, count: usize, phase: Phase, outcome: Outcome) -> bool {
        let view = self.view.borrow();
        let fits = |policy: &tradeguard::model::view::PolicyView| {
            policy.phase == phase && policy.verdict.is_some_and(|(found, _)| found == outcome)
        };
        view.policies.len() == count && view.policies.values().all(|policy| fits(policy))
    }

    /// The value of a metric without or with labels, as it is written in a scrape.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {series} in\n{text}"))
    }

    pub(crate) async fn stop(self) {
        self.cancel.cancel();
        self.task.await.expect("the engine does not panic");
    }
}

fn objects(number: usize, pods: usize) -> String {
    let (namespace, name) = (namespace(number), name(number));
    let mut yaml = format!(
        "apiVersion: trade.io/v1\n\
         kind: OrderService\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{selector: {{app: {name}}}, exchange: XNAS}}\n\
         ---\n\
         apiVersion: policy.trade.io/v1alpha2\n\
         kind: LatencyBudgetPolicy\n\
         metadata: {{name: {name}, namespace: {namespace}}}\n\
         spec:\n\
         \x20 targetRef: {{apiVersion: trade.io/v1, kind: OrderService, name: {name}}}\n\
         \x20 thresholds: {{p99: 800ms, duration: 2m}}\n\
         \x20 actions: [{{type: circuit-breaker, config: {{timeout: 30s, fallback: cache-only}}}}]\n"
    );
    for pod in 0..pods {
        let _ = write!(
            yaml,
            "---\n\
             apiVersion: v1\n\
             kind: Pod\n\
             metadata: {{name: {name}-{pod}, namespace: {namespace}, labels: {{app: {name}}}}}\n\
             spec: {{containers: [{{name: main, image: orders}}]}}\n\
             status: {{phase: Running, podIP: 10.0.0.1, conditions: [{{type: ContainersReady, status: 'True'}}]}}\n"
        );
    }
    yaml
}

fn signal_options() -> signals::Options {
    let prometheus = signals::Prometheus { url: "http://prometheus".to_owned(), ..signals::Prometheus::default() };
    signals::Options {
        default_template: Some("plain".to_owned()),
        backends: BTreeMap::from([(BACKEND.to_owned(), signals::Backend::Prometheus(prometheus))]),
        ..signals::Options::default()
    }
}

fn options() -> controller::Options {
    let target_kinds = vec![("trade.io/v1".to_owned(), "OrderService".to_owned())];
    controller::Options {
        identity: ENGINE.to_owned(),
        namespace: OWN_NAMESPACE.to_owned(),
        lease: lease::Options {
            namespace: OWN_NAMESPACE.to_owned(),
            name: "tradeguard-actor".to_owned(),
            duration: Duration::from_secs(15),
        },
        surroundings: Arc::new(Surroundings {
            backends: BTreeSet::from([BACKEND.to_owned()]),
            templates: signals::built_in_templates().into_keys().collect(),
            target_kinds: target_kinds.iter().cloned().collect(),
            ..Surroundings::default()
        }),
        target_kinds,
        trial_program: None,
        state_dir: std::env::temp_dir(),
        git_credentials: std::collections::BTreeMap::new(),
        budgets: Budgets::default(),
        default_sinks: BTreeSet::new(),
        event_source: "/tradeguard/fleet".to_owned(),
        status_refresh: Duration::from_secs(60),
        seed: 1,
    }
}

/// A Prometheus that answers the two shared queries of the `plain` template, and honours their selection.
pub(crate) struct Prometheus {
    services: Vec<(String, String)>,
    pods: usize,
    /// Whether every reading moves from one interval to the next.
    varies: AtomicBool,
    /// Whether every service is far above its threshold.
    slow: AtomicBool,
    queries: AtomicU64,
    /// Answers that are the same each time, by query and by what they depend on; a benchmark measures the engine.
    rendered: Mutex<HashMap<(String, bool, bool), Bytes>>,
    /// Answers to queries for the age of samples, by query, but for the times in them.
    ages: Mutex<HashMap<String, Arc<str>>>,
}

impl Prometheus {
    fn new(size: Size) -> Self {
        let governed = (0..size.policies).map(|number| (namespace(number), name(number)));
        let foreign = (0..size.foreign).map(|number| match number % 2 {
            0 => (format!("foreign-{:03}", number / PER_NAMESPACE), format!("foreign-{number:05}")),
            _ => (namespace(number % size.policies.max(1)), format!("foreign-{number:05}")),
        });
        Self {
            services: governed.chain(foreign).collect(),
            pods: size.pods,
            varies: AtomicBool::new(false),
            slow: AtomicBool::new(false),
            queries: AtomicU64::new(0),
            rendered: Mutex::default(),
            ages: Mutex::default(),
        }
    }

    /// From now on every reading moves at every interval, inside what is ok; or none does.
    pub(crate) fn vary(&self, varies: bool) {
        self.varies.store(varies, Ordering::Relaxed);
    }

    /// From now on every service is far above its threshold; or none is.
    pub(crate) fn slow_down(&self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
    }

    /// How many queries were answered.
    pub(crate) fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    fn answer(&self, query: &str, time: f64) -> Bytes {
        let odd = self.varies.load(Ordering::Relaxed) && (time / INTERVAL.as_secs_f64()).round() as u64 % 2 == 1;
        let slow = self.slow.load(Ordering::Relaxed);
        if query.starts_with("max by (namespace, service, pod) (timestamp(") {
            let of_no_time = || {
                self.vector(query, |labels, result| {
                    let _ = write!(result, r#"{{"metric":{{{labels}}},"value":[@asked@,"@sampled@"]}},"#);
                })
            };
            let text = self.ages.lock().entry(query.to_owned()).or_insert_with(|| of_no_time().into()).clone();
            // Samples are three seconds old, whenever one asks.
            let sampled = (time - 3.0).to_string();
            return text.replace("@sampled@", &sampled).replace("@asked@", &time.to_string()).into();
        }
        assert!(query.starts_with("sum by (le, namespace, service, pod) (rate("), "an unknown query: {query}");
        let key = (query.to_owned(), odd, slow);
        if let Some(known) = self.rendered.lock().get(&key) {
            return known.clone();
        }
        let mut number = 0_usize;
        let answer: Bytes = self
            .vector(query, |labels, result| {
                number += 1;
                for (index, edge) in EDGES.iter().enumerate() {
                    let rate = 20.0 * share_below(index, number, odd, slow);
                    let _ = write!(result, r#"{{"metric":{{"le":"{edge}",{labels}}},"value":[{time},"{rate}"]}},"#);
                }
            })
            .into();
        self.rendered.lock().insert(key, answer.clone());
        answer
    }

    /// An answer with what `write` makes of each Pod that the query selects.
    fn vector(&self, query: &str, mut write: impl FnMut(&str, &mut String)) -> String {
        let (namespaces, services) = (matcher(query, "namespace"), matcher(query, "service"));
        let mut result = String::from(r#"{"status":"success","data":{"resultType":"vector","result":["#);
        for (namespace, service) in &self.services {
            if namespaces.is_match(namespace) && services.is_match(service) {
                for pod in 0..self.pods {
                    let pod = format!(r#""namespace":"{namespace}","pod":"{service}-{pod}","service":"{service}""#);
                    write(&pod, &mut result);
                }
            }
        }
        let end = result.trim_end_matches(',').len();
        result.truncate(end);
        result.push_str("]}}");
        result
    }
}

/// The share of requests at or below the edge of this index. The P99 lies between 250 and 500 ms, where it differs from Pod
/// to Pod and, for each, from one variant to the other; of a slow service between 1 and 2.5 s.
fn share_below(index: usize, number: usize, odd: bool, slow: bool) -> f64 {
    let moving = 0.95 + ((number * 7 + usize::from(odd) * 113) % 300) as f64 / 1e4;
    match (index, slow) {
        (0..5, false) => 0.15 * (index + 1) as f64,
        (5, false) => moving,
        (0..8, true) => 0.1 * index as f64,
        _ => 1.0,
    }
}

/// What a query selects of a label; everything where it does not say.
fn matcher(query: &str, label: &str) -> Regex {
    let find = Regex::new(&format!(r#"[{{,]{label}(=~?)"((?:[^"\\]|\\.)*)""#)).expect("is an expression");
    let Some(found) = find.captures(query) else { return Regex::new("").expect("is an expression") };
    let text = found[2].replace(r"\\", r"\");
    let text = if &found[1] == "=" { regex::escape(&text) } else { text };
    Regex::new(&format!("^(?:{text})$")).expect("is an expression")
}

#[async_trait]
impl Transport for Prometheus {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.queries.fetch_add(1, Ordering::Relaxed);
        let field = |name: &str| {
            let mut form = url::form_urlencoded::parse(&request.body);
            form.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).expect("is in the form")
        };
        let time = field("time").parse().expect("is a time");
        Ok(Response::json(200, self.answer(&field("query"), time)))
    }
}
