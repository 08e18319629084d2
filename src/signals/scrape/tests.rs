use async_trait::async_trait;

use super::*;
use crate::model::reading::Observation;
use crate::signals::tests::ask;
use crate::signals::{Options, PodRef, Signals};

type Case = Box<dyn Fn() -> Result<Response, TransportError> + Send + Sync>;
type Answer = dyn Fn(&str) -> Result<Response, TransportError> + Send + Sync;

struct Pods(Box<Answer>, Mutex<Vec<String>>);

#[async_trait]
impl Transport for Pods {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        assert_eq!(request.method, Method::GET);
        assert_eq!(request.headers[ACCEPT], FORMATS);
        self.1.lock().unwrap().push(request.url.clone());
        (self.0)(&request.url)
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is what a transport returns")]
fn text(body: String) -> Result<Response, TransportError> {
    Ok(Response { status: 200, content_type: Some("text/plain; version=0.0.4".into()), body: body.into() })
}

/// A service that had `requests` requests so far, all between 100 ms and 1 s.
fn exposition(requests: f64) -> String {
    format!(
        "# TYPE http_request_duration_seconds histogram\n\
         http_request_duration_seconds_bucket{{code=\"200\",le=\"0.1\"}} 0\n\
         http_request_duration_seconds_bucket{{code=\"200\",le=\"1\"}} {requests}\n\
         http_request_duration_seconds_bucket{{code=\"200\",le=\"+Inf\"}} {requests}\n\
         http_request_duration_seconds_sum{{code=\"200\"}} 12.5\n\
         http_request_duration_seconds_count{{code=\"200\"}} {requests}\n"
    )
}

fn ask_for(pods: &[(&str, &str)]) -> Ask {
    let mut ask = ask("orders", &[]);
    ask.pods = pods.iter().map(|(name, ip)| PodRef { name: (*name).into(), ip: Some((*ip).into()) }).collect();
    ask
}

fn signals(
    clock: Clock,
    answer: impl Fn(&str) -> Result<Response, TransportError> + Send + Sync + 'static,
) -> (Arc<Signals>, Arc<Pods>) {
    let options: Options = serde_saphyr::from_str(
        "{defaultTemplate: plain, backends: {pods: {kind: scrape, interval: 5s, maxSeries: 100}}}",
    )
    .unwrap();
    let pods = Arc::new(Pods(Box::new(answer), Mutex::default()));
    (Arc::new(Signals::new(&options, pods.clone(), clock).unwrap()), pods)
}

/// Asks, lets the scraper run for half a minute, and asks again.
async fn observe(
    ask: &Ask,
    answer: impl Fn(&str, Duration) -> Result<Response, TransportError> + Send + Sync + 'static,
) -> (Observation, Arc<Pods>) {
    let clock = Clock::scaled(DateTime::UNIX_EPOCH + TimeDelta::days(1), 1.0);
    let (signals, pods) = signals(clock, move |url| answer(url, clock.monotonic()));
    signals.observe(std::slice::from_ref(ask), clock.now()).await;
    let cancel = CancellationToken::new();
    let running = tokio::spawn({
        let (signals, cancel) = (signals.clone(), cancel.clone());
        async move { signals.run(&cancel).await }
    });
    clock.sleep(Duration::from_secs(31)).await;
    cancel.cancel();
    running.await.unwrap();
    (signals.observe(std::slice::from_ref(ask), clock.now()).await.remove(0), pods)
}

#[tokio::test(start_paused = true)]
async fn pods_are_scraped_on_the_interval_and_summed() {
    let ask = ask_for(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let (observation, pods) = observe(&ask, |_, since| text(exposition(1_000.0 + since.as_secs_f64()))).await;
    let whole = observation.readings["p99"].as_ref().unwrap();
    assert!((whole.value - 0.991).abs() < 1e-6, "{whole:?}");
    assert_eq!((whole.series, whole.requests.unwrap().round()), (2, 120.0));
    assert!((whole.age_seconds - 1.0).abs() < 0.1, "{whole:?}");
    assert!((observation.pods["a"]["p99"].as_ref().unwrap().value - 0.991).abs() < 1e-6);
    assert_eq!(&*observation.queries[0].text, "GET http://<pod>:8080/metrics http_request_duration_seconds_bucket");
    let urls = pods.1.lock().unwrap();
    assert_eq!(urls.len(), 14, "two Pods, seven scrapes");
    assert!(urls.iter().all(|url| url == "http://10.0.0.1:8080/metrics" || url == "http://10.0.0.2:8080/metrics"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fails_has_a_reason_and_the_others_are_read() {
    let ask = ask_for(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let html = || Ok(Response { status: 200, content_type: Some("text/html".into()), body: "<html>".into() });
    let cut = || text(exposition(1.0).trim_end().to_owned());
    let cases: Vec<(Case, NoReading)> = vec![
        (Box::new(html), NoReading::BadAnswer),
        (Box::new(cut), NoReading::BadAnswer),
        (Box::new(|| text("x 1\n".repeat(101))), NoReading::BadAnswer),
        (Box::new(|| Ok(Response::json(500, ""))), NoReading::BackendError),
        (Box::new(|| Err(TransportError::Connect("refused".into()))), NoReading::BackendError),
        (Box::new(|| Err(TransportError::Timeout(Duration::from_secs(3)))), NoReading::Timeout),
        (Box::new(|| text("up 1\n".into())), NoReading::NoData),
        (Box::new(|| text(exposition(1.0) + &exposition(1.0))), NoReading::IncompatibleBuckets),
    ];
    for (bad, why) in cases {
        let (observation, _) =
            observe(
                &ask,
                move |url, since| {
                    if url.contains("10.0.0.2") { bad() } else { text(exposition(since.as_secs_f64())) }
                },
            )
            .await;
        assert!(observation.pods["a"]["p99"].is_ok(), "{why:?}");
        assert_eq!(observation.pods["b"]["p99"], Err(why));
        assert!(observation.readings["p99"].is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn buckets_that_differ_between_pods_are_incompatible() {
    let ask = ask_for(&[("a", "10.0.0.1"), ("b", "10.0.0.2")]);
    let (observation, _) = observe(&ask, |url, since| {
        let body = exposition(since.as_secs_f64());
        text(if url.contains("10.0.0.2") { body.replace("0.1", "0.2") } else { body })
    })
    .await;
    assert_eq!(observation.readings["p99"], Err(NoReading::IncompatibleBuckets));
    assert!(observation.pods.values().all(|readings| readings["p99"].is_ok()));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_no_pods_is_never_asked() {
    let ask = ask_for(&[("a", "169.254.169.254"), ("b", "127.0.0.1")]);
    let (observation, pods) = observe(&ask, |_, _| text(exposition(1.0))).await;
    assert_eq!(observation.readings["p99"], Err(NoReading::NotMeasured));
    assert!(pods.1.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_silent_becomes_stale_by_its_own_reason() {
    let mut ask = ask_for(&[("a", "10.0.0.1")]);
    ask.stale_after = Duration::from_secs(10);
    let (observation, _) = observe(&ask, |_, since| {
        if since.as_secs() < 15 {
            text(exposition(since.as_secs_f64()))
        } else {
            Err(TransportError::Timeout(Duration::from_secs(3)))
        }
    })
    .await;
    assert_eq!(observation.readings["p99"], Err(NoReading::Timeout));
}

#[tokio::test(start_paused = true)]
async fn targets_that_nobody_asks_about_are_forgotten() {
    let clock = Clock::scaled(DateTime::UNIX_EPOCH + TimeDelta::days(1), 1.0);
    let (signals, pods) = signals(clock, |_| text(exposition(1.0)));
    signals.observe(&[ask_for(&[("a", "10.0.0.1")])], clock.now()).await;
    let cancel = CancellationToken::new();
    let running = signals.run(&cancel);
    tokio::select! {
        () = running => unreachable!("it runs until cancelled"),
        () = clock.sleep(Duration::from_mins(20)) => {}
    }
    assert_eq!(pods.1.lock().unwrap().len(), 121, "ten minutes of every five seconds");
}

#[tokio::test(start_paused = true)]
async fn own_queries_cannot_be_asked_of_pods() {
    let mut ask = ask_for(&[("a", "10.0.0.1")]);
    ask.queries.insert("wait".into(), ("wait_seconds".into(), crate::model::quantity::Unit::SECONDS));
    let (observation, _) = observe(&ask, |_, since| text(exposition(since.as_secs_f64()))).await;
    assert_eq!(observation.readings["wait"], Err(NoReading::NotMeasured));
    assert!(observation.readings["p99"].is_ok());
}
