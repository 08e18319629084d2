//! The room as a whole against a Prometheus that is a function.

use std::fmt::Write as _;
use std::sync::PoisonError;

use async_trait::async_trait;
use chrono::TimeDelta;

use super::*;
use crate::model::policy::PolicyKind;

type Form = BTreeMap<String, String>;
type Case = Box<dyn Fn() -> Result<Response, TransportError> + Send + Sync>;
type Answer = dyn Fn(&Form) -> Result<Response, TransportError> + Send + Sync;

/// A server that is a function, and what it was asked.
pub(super) struct Fake {
    answer: Box<Answer>,
    pub(super) asked: Mutex<Vec<Form>>,
}

#[async_trait]
impl Transport for Fake {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let form: Form = url::form_urlencoded::parse(&request.body).into_owned().collect();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(form.clone());
        (self.answer)(&form)
    }
}

pub(super) fn ask(name: &str, pods: &[&str]) -> Ask {
    Ask {
        policy: PolicyKey { kind: PolicyKind::LatencyBudgetPolicy, namespace: "trading".into(), name: name.into() },
        namespace: "trading".into(),
        workload: Some(name.into()),
        service: name.into(),
        pods: pods.iter().map(|name| PodRef { name: (*name).into(), ip: None }).collect(),
        groups: BTreeMap::new(),
        quantiles: BTreeMap::from([("p99".into(), 0.99)]),
        queries: BTreeMap::new(),
        thresholds: BTreeMap::new(),
        template: None,
        backend: None,
        window: Duration::from_mins(1),
        stale_after: Duration::from_mins(1),
        min_requests: 10,
    }
}

fn own(text: &str) -> Ask {
    let mut ask = ask("own", &[]);
    ask.quantiles.clear();
    ask.queries = BTreeMap::from([("wait".into(), (text.into(), Unit::MILLISECONDS))]);
    ask
}

fn at() -> DateTime<Utc> {
    DateTime::<Utc>::UNIX_EPOCH + TimeDelta::milliseconds(1_700_000_000_500)
}

fn signals(answer: impl Fn(&Form) -> Result<Response, TransportError> + Send + Sync + 'static) -> (Signals, Arc<Fake>) {
    let options = "
defaultTemplate: plain
defaultBackend: main
backends:
  main: {kind: prometheus, url: 'http://main', maxBytes: 4000000}
  other: {kind: prometheus, url: 'http://other'}
";
    let options: Options = serde_saphyr::from_str(options).unwrap();
    let fake = Arc::new(Fake { answer: Box::new(answer), asked: Mutex::default() });
    (Signals::new(&options, fake.clone(), Clock::system()).unwrap(), fake)
}

#[allow(clippy::unnecessary_wraps, reason = "it is what a transport returns")]
fn ok(body: impl Into<String>) -> Result<Response, TransportError> {
    Ok(Response::json(200, body.into()))
}

/// A vector answer of `(labels, value)`.
fn vector(samples: &[(&str, String)]) -> String {
    let samples: Vec<_> = samples
        .iter()
        .map(|(labels, value)| format!("{{\"metric\":{{{labels}}},\"value\":[1700000000.5,\"{value}\"]}}"))
        .collect();
    format!("{{\"status\":\"success\",\"data\":{{\"resultType\":\"vector\",\"result\":[{}]}}}}", samples.join(","))
}

/// One Pod of each of `services` with a request a second at about `seconds`, as a real server would tell it.
fn healthy(form: &Form, services: &[&str], seconds: f64) -> String {
    let fresh = form["query"].starts_with("max by");
    let mut samples = Vec::new();
    let labels: Vec<_> = services
        .iter()
        .map(|name| format!("\"namespace\":\"trading\",\"service\":\"{name}\",\"pod\":\"{name}-1\""))
        .collect();
    let buckets: Vec<_> =
        ["0.1", "1", "+Inf"].iter().map(|le| (format!("\"le\":\"{le}\","), le.parse::<f64>().unwrap())).collect();
    let mut texts = Vec::new();
    for labels in &labels {
        if fresh {
            texts.push((labels.clone(), "1699999998.5".to_owned()));
        } else {
            texts.extend(
                buckets
                    .iter()
                    .map(|(le, edge)| (format!("{le}{labels}"), f64::from(u8::from(*edge >= seconds)).to_string())),
            );
        }
    }
    samples.extend(texts.iter().map(|(labels, value)| (labels.as_str(), value.clone())));
    vector(&samples)
}

fn reading(observation: &Observation, name: &str) -> Result<f64, NoReading> {
    observation.readings[name].as_ref().map(|reading| reading.value).map_err(|why| *why)
}

#[tokio::test]
async fn one_policy_is_measured_with_two_queries_of_one_time() {
    let (signals, fake) = signals(|form| ok(healthy(form, &["orders"], 0.5)));
    let observed = signals.observe(&[ask("orders", &["orders-1", "orders-2"])], at()).await;
    let [observation] = observed.as_slice() else { panic!() };
    let whole = observation.readings["p99"].as_ref().unwrap();
    assert!((whole.value - 0.991).abs() < 1e-9, "{whole:?}");
    assert_eq!((whole.age_seconds, whole.series, whole.requests), (2.0, 1, Some(60.0)));
    assert_eq!(observation.pods["orders-1"]["p99"].as_ref().unwrap().value, whole.value);
    assert_eq!(observation.pods["orders-2"]["p99"], Err(NoReading::NoData));
    let asked = fake.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|form| form["time"] == "1700000000.500" && form["timeout"] == "5000ms"));
    let selector = r#"http_request_duration_seconds_bucket{namespace="trading",service="orders"}"#;
    let text = format!("sum by (le, namespace, service, pod) (rate({selector}[1m]))");
    assert_eq!(asked[0]["query"], text);
    assert_eq!(observation.queries, [SentQuery { backend: "main".into(), text: text.into() }]);
}

#[tokio::test]
async fn every_failure_of_a_backend_is_its_own_reason() {
    let html = || Response { status: 200, content_type: Some("text/html".into()), body: "<html>Sign in</html>".into() };
    let error = |status: u16, kind: &str| {
        Ok(Response::json(status, format!("{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":\"x\"}}")))
    };
    let cases: Vec<(&str, Case, NoReading)> = vec![
        ("html", Box::new(move || Ok(html())), NoReading::BadAnswer),
        (
            "cut",
            Box::new(|| ok(r#"{"status":"success","data":{"resultType":"vector","result":[{"#)),
            NoReading::BadAnswer,
        ),
        (
            "scalar",
            Box::new(|| ok(r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#)),
            NoReading::BadAnswer,
        ),
        ("empty", Box::new(|| ok(vector(&[]))), NoReading::NoData),
        ("400", Box::new(move || error(400, "bad_data")), NoReading::QueryError),
        ("422", Box::new(move || error(422, "execution")), NoReading::QueryError),
        ("401", Box::new(|| Ok(Response::json(401, ""))), NoReading::BackendError),
        ("500", Box::new(move || error(500, "internal")), NoReading::BackendError),
        ("503", Box::new(|| Ok(Response::json(503, "unavailable"))), NoReading::BackendError),
        ("503 timeout", Box::new(move || error(503, "timeout")), NoReading::Timeout),
        ("refused", Box::new(|| Err(TransportError::Connect("refused".into()))), NoReading::BackendError),
        ("slow", Box::new(|| Err(TransportError::Timeout(Duration::from_secs(5)))), NoReading::Timeout),
        ("large", Box::new(|| Err(TransportError::TooLarge { limit: 1 })), NoReading::BadAnswer),
        ("larger than allowed", Box::new(|| ok(" ".repeat(4_000_001))), NoReading::BadAnswer),
        ("broken", Box::new(|| Err(TransportError::Broken("reset".into()))), NoReading::BadAnswer),
        (
            "partial",
            Box::new(|| {
                ok(r#"{"status":"success","data":{"resultType":"vector","result":[]},"warnings":["store is away"]}"#)
            }),
            NoReading::Partial,
        ),
    ];
    for (name, answer, why) in cases {
        let (signals, _) = signals(move |_| answer());
        let asks = [ask("orders", &["orders-1"]), own("wait_milliseconds")];
        let observed = signals.observe(&asks, at()).await;
        assert_eq!(reading(&observed[0], "p99"), Err(why), "{name}");
        let own_why = if name == "scalar" { Ok(0.002) } else { Err(why) };
        if name == "scalar" {
            // The freshness query of the fake answers 2 seconds after the epoch.
            assert_eq!(reading(&observed[1], "wait"), Err(NoReading::Stale), "{own_why:?}");
        } else {
            assert_eq!(reading(&observed[1], "wait"), own_why, "{name}");
        }
        assert!(signals.stats()["main"].queries() > 0);
    }
}

#[tokio::test]
async fn own_queries_answer_with_one_number_in_base_units() {
    let fresh = |form: &Form| form["query"].contains("timestamp(");
    for (body, expected) in [
        (vector(&[("\"a\":\"b\"", "250".into())]), Ok(0.25)),
        (vector(&[("", "NaN".into())]), Err(NoReading::NaN)),
        (vector(&[("", "+Inf".into())]), Err(NoReading::Inf)),
        (vector(&[("", "-Inf".into())]), Err(NoReading::Inf)),
        (vector(&[]), Err(NoReading::NoData)),
        (vector(&[("\"a\":\"1\"", "1".into()), ("\"a\":\"2\"", "2".into())]), Err(NoReading::Several)),
        (r#"{"status":"success","data":{"resultType":"scalar","result":[1,"250"]}}"#.into(), Ok(0.25)),
        (r#"{"status":"success","data":{"resultType":"string","result":[1,"250"]}}"#.into(), Err(NoReading::BadAnswer)),
        (
            r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2"]]}]}}"#.into(),
            Err(NoReading::BadAnswer),
        ),
    ] {
        let (signals, _) =
            signals(
                move |form| {
                    if fresh(form) { ok(vector(&[("", "1699999990.5".into())])) } else { ok(body.clone()) }
                },
            );
        let observed = signals.observe(&[own("wait_milliseconds")], at()).await;
        assert_eq!(reading(&observed[0], "wait"), expected);
        assert_eq!(&*observed[0].queries[0].text, "wait_milliseconds");
    }
}

#[tokio::test]
async fn an_own_query_is_no_fresher_than_its_samples() {
    for (newest, expected) in [
        (Some("1699999940.5"), Ok(0.25)),
        (Some("1699999940.4"), Err(NoReading::Stale)),
        (None, Err(NoReading::NoData)),
    ] {
        let (signals, _) = signals(move |form| {
            let fresh: Vec<_> = newest.iter().map(|newest| ("", (*newest).to_owned())).collect();
            if form["query"].contains("timestamp(") { ok(vector(&fresh)) } else { ok(vector(&[("", "250".into())])) }
        });
        let observed = signals.observe(&[own("sum(wait_milliseconds) or vector(0)")], at()).await;
        assert_eq!(reading(&observed[0], "wait"), expected);
    }
    let (signals, fake) = signals(|_| ok(vector(&[("", "250".into())])));
    signals.observe(&[own("vector(250)")], at()).await;
    assert_eq!(fake.asked.lock().unwrap().len(), 1, "a constant has no age");
}

#[tokio::test]
async fn a_text_that_is_not_promql_is_never_sent() {
    let (signals, fake) = signals(|_| ok(vector(&[])));
    let observed = signals.observe(&[own("sum(")], at()).await;
    assert_eq!(reading(&observed[0], "wait"), Err(NoReading::QueryError));
    assert!(fake.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_dead_backend_hides_no_other() {
    let (signals, _) = signals(|form| {
        // Both backends are this function; the window tells them apart.
        if form["query"].contains("[5m]") {
            Err(TransportError::Connect("refused".into()))
        } else {
            ok(healthy(form, &["orders"], 0.5))
        }
    });
    let good = ask("orders", &["orders-1"]);
    let mut dead = good.clone();
    (dead.window, dead.backend) = (Duration::from_mins(5), Some("other".into()));
    let observed = signals.observe(&[dead, good], at()).await;
    assert_eq!(reading(&observed[0], "p99"), Err(NoReading::BackendError));
    assert!(observed[1].readings["p99"].is_ok());
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_once() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let (signals, fake) = signals(move |form| {
        if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 1 {
            return Err(TransportError::Connect("refused".into()));
        }
        ok(healthy(form, &["orders"], 0.5))
    });
    let observed = signals.observe(&[ask("orders", &["orders-1"])], at()).await;
    assert!(observed[0].readings["p99"].is_ok());
    assert_eq!(fake.asked.lock().unwrap().len(), 3);
    assert_eq!(signals.stats()["main"].retries, 1);
}

#[tokio::test]
async fn a_bad_query_is_not_tried_again() {
    let (signals, fake) =
        signals(|_| Ok(Response::json(400, r#"{"status":"error","errorType":"bad_data","error":"x"}"#)));
    signals.observe(&[own("wait_milliseconds")], at()).await;
    assert_eq!(fake.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn one_bad_workload_does_not_blind_the_others_and_is_asked_apart_from_then_on() {
    let services: Vec<String> = (0..20).map(|index| format!("service-{index:02}")).collect();
    let names = services.clone();
    let (signals, fake) = signals(move |form| {
        if form["query"].contains("service-13") {
            return Ok(Response::json(422, r#"{"status":"error","errorType":"execution","error":"too many samples"}"#));
        }
        let asked: Vec<&str> = names.iter().map(String::as_str).filter(|name| form["query"].contains(name)).collect();
        ok(healthy(form, &asked, 0.5))
    });
    let asks: Vec<_> = services.iter().map(|name| ask(name, &[&format!("{name}-1")])).collect();
    for round in 0..2 {
        fake.asked.lock().unwrap().clear();
        let observed = signals.observe(&asks, at()).await;
        for (index, observation) in observed.iter().enumerate() {
            let expected = if index == 13 { Err(NoReading::QueryError) } else { Ok(()) };
            assert_eq!(reading(observation, "p99").map(|_| ()), expected, "service {index} in round {round}");
        }
        let asked = fake.asked.lock().unwrap().len();
        assert!(if round == 0 { asked <= 24 } else { asked == 4 }, "round {round}: {asked}");
    }
}

#[tokio::test]
async fn a_failing_backend_is_not_asked_for_every_workload() {
    let (signals, fake) =
        signals(|_| Ok(Response::json(422, r#"{"status":"error","errorType":"execution","error":"x"}"#)));
    let asks: Vec<_> = (0..200).map(|index| ask(&format!("service-{index}"), &["p"])).collect();
    let observed = signals.observe(&asks, at()).await;
    assert!(observed.iter().all(|observation| reading(observation, "p99") == Err(NoReading::QueryError)));
    assert!(fake.asked.lock().unwrap().len() <= 40);
}

#[tokio::test]
async fn ten_thousand_policies_of_one_shape_need_at_most_ten_queries() {
    let (signals, fake) = signals(|form| {
        let fresh = form["query"].starts_with("max by");
        let mut body = String::from(r#"{"status":"success","data":{"resultType":"vector","result":["#);
        let mut separator = "";
        for index in 0..10_000 {
            let (namespace, service) = (format!("team-{:03}", index % 100), format!("service-{index:05}"));
            if !form["query"].contains(&namespace) {
                continue;
            }
            let edges: &[&str] = if fresh { &[""] } else { &["\"le\":\"0.5\",", "\"le\":\"1\",", "\"le\":\"+Inf\","] };
            for edge in edges {
                let value = if fresh { "1700000000" } else { "1" };
                let _ = write!(
                    body,
                    "{separator}{{\"metric\":{{{edge}\"namespace\":\"{namespace}\",\"service\":\"{service}\",\
                     \"pod\":\"{service}-1\"}},\"value\":[1700000000,\"{value}\"]}}"
                );
                separator = ",";
            }
        }
        ok(body + "]}}")
    });
    let asks: Vec<_> = (0..10_000)
        .map(|index| {
            let name = format!("service-{index:05}");
            let mut ask = ask(&name, &[&format!("{name}-1")]);
            ask.namespace = format!("team-{:03}", index % 100);
            ask
        })
        .collect();
    let observed = signals.observe(&asks, at()).await;
    assert!(observed.iter().all(|observation| observation.readings["p99"].is_ok() && observation.pods.len() == 1));
    let stats = &signals.stats()["main"];
    assert!(stats.queries() <= 10 && stats.queries() == fake.asked.lock().unwrap().len() as u64, "{stats:?}");
    assert!(stats.bytes_sent < 10_000, "{stats:?}");
    assert!(stats.bytes_received < 10_000 * 4 * 140, "only what is governed was fetched: {stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_ends_with_the_round() {
    struct Hangs;
    #[async_trait]
    impl Transport for Hangs {
        async fn send(&self, _: Request) -> Result<Response, TransportError> {
            std::future::pending().await
        }
    }
    let options: Options = serde_saphyr::from_str("backends: {main: {kind: prometheus, url: 'http://main'}}").unwrap();
    let signals = Signals::new(&options, Arc::new(Hangs), Clock::system()).unwrap();
    let mut asks: Vec<_> = (0..50).map(|index| own(&format!("wait_milliseconds{{a=\"{index}\"}}"))).collect();
    asks.push(ask("orders", &["a"]));
    let started = tokio::time::Instant::now();
    let observed = signals.observe(&asks, at()).await;
    assert!(observed.iter().all(|one| one.readings.values().all(|signal| *signal == Err(NoReading::Timeout))));
    assert!(started.elapsed() < Duration::from_secs(11), "{:?}", started.elapsed());
}

#[test]
fn a_round_can_be_awaited_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let (signals, _) = signals(|_| ok(vector(&[])));
    let nothing: [Ask; 0] = [];
    is_send(&signals.observe(&nothing, at()));
}
