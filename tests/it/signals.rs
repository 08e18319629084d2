//! The transport of production against servers that misbehave, over real sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::post;
use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tradeguard::clock::Clock;
use tradeguard::model::policy::{PolicyKey, PolicyKind};
use tradeguard::model::quantity::Unit;
use tradeguard::model::reading::NoReading;
use tradeguard::signals::{Ask, BackendStats, Options, ReqwestTransport, Signals};

type Answer = Arc<dyn Fn() -> Response<Body> + Send + Sync>;
type Seen = (HeaderMap, BTreeMap<String, String>);

/// A server of one route; what it was asked comes out of the channel. It ends with the test's runtime.
async fn serve(
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> (SocketAddr, mpsc::UnboundedReceiver<Seen>) {
    type Shared = (Answer, mpsc::UnboundedSender<Seen>);
    async fn handle(State((answer, seen)): State<Shared>, headers: HeaderMap, body: String) -> Response<Body> {
        let form = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let _ = seen.send((headers, form));
        answer()
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let router =
        Router::new().route("/prefix/api/v1/query", post(handle)).with_state((Arc::new(answer) as Answer, sender));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, receiver)
}

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(1_700_000_000)
}

fn ask() -> Ask {
    Ask {
        policy: PolicyKey { kind: PolicyKind::GovernancePolicy, namespace: "trading".into(), name: "wait".into() },
        namespace: "trading".into(),
        workload: None,
        service: "orders".into(),
        pods: Vec::new(),
        groups: BTreeMap::new(),
        quantiles: BTreeMap::new(),
        // A constant: one query, without a second one for its age.
        queries: BTreeMap::from([("wait".into(), ("vector(250)".into(), Unit::MILLISECONDS))]),
        thresholds: BTreeMap::new(),
        template: None,
        backend: None,
        window: Duration::from_mins(1),
        stale_after: Duration::from_mins(1),
        min_requests: 10,
    }
}

fn signals(address: SocketAddr, further: &str) -> Signals {
    let yaml = format!("backends: {{main: {{kind: prometheus, url: 'http://{address}/prefix/'{further}}}}}");
    let options: Options = serde_saphyr::from_str(&yaml).unwrap();
    let transport = Arc::new(ReqwestTransport::new(&options).unwrap());
    Signals::new(&options, transport, Clock::system()).unwrap()
}

async fn observe(address: SocketAddr, further: &str) -> (Result<f64, NoReading>, BackendStats) {
    let signals = signals(address, further);
    let observed = signals.observe(&[ask()], now()).await.remove(0);
    let reading = observed.readings["wait"].as_ref().map(|reading| reading.value).map_err(|why| *why);
    (reading, signals.stats()["main"].clone())
}

fn respond(status: u16, content_type: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).header(header::CONTENT_TYPE, content_type).body(body.into()).unwrap()
}

const GOOD: &str =
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1700000000,"250"]}]}}"#;

#[tokio::test]
async fn a_query_is_a_form_with_credentials_and_the_headers_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let (address, mut seen) = serve(|| respond(200, "application/json", GOOD)).await;
    let further = format!(
        ", headers: {{X-Scope-OrgID: trading}}, params: {{dedup: 'true'}}, bearerTokenFile: '{}', timeout: 2s",
        token.display()
    );
    let (reading, stats) = observe(address, &further).await;
    assert_eq!(reading, Ok(0.25));
    let (headers, form) = seen.recv().await.unwrap();
    assert_eq!(headers["x-scope-orgid"], "trading");
    assert_eq!(headers["authorization"], "Bearer s3cret");
    assert_eq!(headers["accept-encoding"], "gzip");
    assert_eq!(headers["content-type"], "application/x-www-form-urlencoded");
    let expected = [("dedup", "true"), ("query", "vector(250)"), ("time", "1700000000.000"), ("timeout", "2000ms")];
    assert_eq!(form, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!((stats.responses, stats.bytes_received), (1, GOOD.len() as u64));
}

#[tokio::test]
async fn statuses_and_bodies_that_are_no_answer_have_their_reasons() {
    let error = |kind: &str| format!(r#"{{"status":"error","errorType":"{kind}","error":"x"}}"#);
    for (status, content_type, body, why, requests) in [
        (400, "application/json", error("bad_data"), NoReading::QueryError, 1),
        (422, "application/json", error("execution"), NoReading::QueryError, 1),
        (500, "application/json", error("internal"), NoReading::BackendError, 1),
        (503, "application/json", error("timeout"), NoReading::Timeout, 1),
        (503, "text/html", "<html>no upstream</html>".into(), NoReading::BackendError, 2),
        (401, "text/plain", "Unauthorized".into(), NoReading::BackendError, 1),
        (404, "text/plain", "404 page not found".into(), NoReading::BackendError, 1),
        (200, "text/html", "<html>Sign in</html>".into(), NoReading::BadAnswer, 1),
        (200, "application/json", GOOD[..GOOD.len() - 20].into(), NoReading::BadAnswer, 1),
        (200, "application/json", String::new(), NoReading::BadAnswer, 1),
        (200, "application/json", error("bad_data"), NoReading::QueryError, 1),
    ] {
        let (address, _seen) = serve(move || respond(status, content_type, body.clone())).await;
        let (reading, stats) = observe(address, "").await;
        assert_eq!((reading, stats.responses), (Err(why), requests), "{status} {content_type}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_the_backends_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (reading, stats) = observe(address, "").await;
    assert_eq!((reading, stats.responses, stats.retries), (Err(NoReading::BackendError), 0, 1));
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_time_out() {
    let (address, _seen) = serve(|| {
        // The head comes at once, the body never.
        let never = Body::from_stream(futures::stream::pending::<Result<&'static str, std::io::Error>>());
        respond(200, "application/json", never)
    })
    .await;
    let (reading, stats) = observe(address, ", timeout: 200ms").await;
    assert_eq!((reading, stats.queries()), (Err(NoReading::Timeout), 1));
}

#[tokio::test]
async fn an_answer_longer_than_allowed_is_not_read_to_its_end() {
    let (address, _seen) = serve(|| {
        let endless = futures::stream::repeat("x".repeat(8 * 1024)).map(Ok::<_, std::io::Error>);
        respond(200, "application/json", Body::from_stream(endless))
    })
    .await;
    let (reading, stats) = observe(address, ", maxBytes: 100000").await;
    assert_eq!((reading, stats.bytes_received), (Err(NoReading::BadAnswer), 0));
}

#[tokio::test]
async fn a_compressed_answer_counts_by_its_decoded_length() {
    // About 1,200 bytes on the wire, 200,000 decoded.
    let compressed = gzip_after_spaces(GOOD);
    let (address, _seen) = serve(move || {
        let mut response = respond(200, "application/json", compressed.clone());
        response.headers_mut().insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        response
    })
    .await;
    assert_eq!(observe(address, ", maxBytes: 100000").await.0, Err(NoReading::BadAnswer));
    assert_eq!(observe(address, ", maxBytes: 300000").await.0, Ok(0.25));
}

/// 200,000 spaces and then `text` as gzip with fixed Huffman codes, the spaces as back-references of 258 bytes.
fn gzip_after_spaces(text: &str) -> Vec<u8> {
    struct Bits(Vec<u8>, u32);
    impl Bits {
        fn put(&mut self, value: u32, count: u32) {
            for shift in 0..count {
                if self.1 == 0 {
                    self.0.push(0);
                }
                *self.0.last_mut().unwrap() |= u8::try_from(value >> shift & 1).unwrap() << self.1;
                self.1 = (self.1 + 1) % 8;
            }
        }
        /// Huffman codes are written from their highest bit.
        fn code(&mut self, code: u32, count: u32) {
            self.put(code.reverse_bits() >> (32 - count), count);
        }
    }
    const REFERENCES: usize = 775;
    let mut bits = Bits(vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255], 0);
    bits.put(0b011, 3);
    bits.code(0x30 + u32::from(b' '), 8);
    for _ in 0..REFERENCES {
        bits.code(0b1100_0101, 8);
        bits.code(0, 5);
    }
    for byte in text.bytes() {
        bits.code(0x30 + u32::from(byte), 8);
    }
    bits.code(0, 7);
    let decoded = [" ".repeat(1 + REFERENCES * 258).as_bytes(), text.as_bytes()].concat();
    let crc = decoded.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    });
    bits.0.extend((!crc).to_le_bytes());
    bits.0.extend(u32::try_from(decoded.len()).unwrap().to_le_bytes());
    bits.0
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, mut seen) = serve(|| respond(200, "application/json", GOOD)).await;
    let (address, _seen) = serve(move || {
        let mut response = respond(307, "text/plain", "");
        let location = format!("http://{elsewhere}/prefix/api/v1/query");
        response.headers_mut().insert(header::LOCATION, location.parse().unwrap());
        response
    })
    .await;
    assert_eq!(observe(address, "").await.0, Err(NoReading::BackendError));
    assert!(seen.try_recv().is_err());
}

#[tokio::test]
async fn a_backend_without_its_token_is_not_asked_without_one() {
    let (address, mut seen) = serve(|| respond(StatusCode::OK.as_u16(), "application/json", GOOD)).await;
    let (reading, _) = observe(address, ", bearerTokenFile: /nowhere/token").await;
    assert_eq!(reading, Err(NoReading::BackendError));
    assert!(seen.try_recv().is_err());
}
