//! The HTTP client of one Prometheus-like backend: one query in, its parsed answer or a typed failure out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::credentials;
use super::options::CheckedPrometheus;
use super::reply::{self, Answer, LABELS, Reply, Sample};
use super::stats::Counters;
use super::transport::{Request, Response, Transport, TransportError};
use crate::clock::Clock;
use crate::model::reading::NoReading;

/// A refused connection is tried again once; so is a 503 that is no time-out.
const ATTEMPTS: u32 = 2;
/// After so many refused connections in a row a round gives up on the backend.
const REFUSALS: u32 = 3;
/// The transport answers in time by itself; this much later the client stops waiting for it.
const GRACE: Duration = Duration::from_millis(500);

/// One backend.
pub(crate) struct Client {
    name: Arc<str>,
    options: CheckedPrometheus,
    transport: Arc<dyn Transport>,
    clock: Clock,
    permits: Semaphore,
    /// Policies' own queries leave one permit to the shared ones, so that slow ones blind nobody else.
    own_permits: Semaphore,
    jitter: Mutex<fastrand::Rng>,
    pub counters: Counters,
}

/// One query.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    pub lane: Lane,
    pub text: &'a str,
    /// The labels that samples are wanted with.
    pub labels: [&'a str; LABELS],
}

/// What the queries to one backend share within a round.
pub(crate) struct Round {
    /// The evaluation time of every query.
    pub at: DateTime<Utc>,
    /// Nothing is sent, and no answer awaited, after this: twice the time of one query, so that halves of a query
    /// that timed out still have theirs.
    deadline: Instant,
    headers: Result<HeaderMap, Failure>,
    refused: AtomicU32,
}

/// Whose query it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Shared,
    Own,
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub why: NoReading,
    /// Whether less of the same query might succeed.
    pub divisible: bool,
    /// For the log.
    pub detail: String,
}

impl Failure {
    fn new(why: NoReading, detail: impl Into<String>) -> Self {
        Self { why, divisible: false, detail: detail.into() }
    }

    fn divisible(why: NoReading, detail: impl Into<String>) -> Self {
        Self { why, divisible: true, detail: detail.into() }
    }
}

impl Client {
    pub(crate) fn new(
        name: Arc<str>,
        options: CheckedPrometheus,
        transport: Arc<dyn Transport>,
        clock: Clock,
        seed: u64,
    ) -> Self {
        let all = options.max_concurrent;
        Self {
            name,
            transport,
            clock,
            permits: Semaphore::new(all),
            own_permits: Semaphore::new(all.saturating_sub(1).max(1)),
            jitter: Mutex::new(fastrand::Rng::with_seed(seed)),
            counters: Counters::default(),
            options,
        }
    }

    /// Begins a round: reads the credentials anew and sets its end.
    pub(crate) async fn round(&self, at: DateTime<Utc>) -> Round {
        let headers = self.headers().await.map_err(|detail| Failure::new(NoReading::BackendError, detail));
        let deadline = Instant::now() + self.clock.real(self.options.timeout * 2);
        Round { at, deadline, headers, refused: AtomicU32::new(0) }
    }

    async fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = self.options.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let options = &self.options;
        if let Some(value) =
            credentials::authorization(options.bearer_token_file.as_ref(), options.basic.as_ref()).await?
        {
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Sends one query and parses its answer, handing samples of a vector to `sink`. After a failure, what the sink
    /// was given must be dropped.
    pub(crate) async fn query(
        &self,
        query: Query<'_>,
        round: &Round,
        sink: &mut (dyn FnMut(Sample<'_>) + Send),
    ) -> Result<Answer, Failure> {
        let answer = match self.fetch(query, round).await {
            Ok(body) => read(&body, query.labels, sink),
            Err(failure) => Err(failure),
        };
        self.counters.answered(answer.as_ref().map(|_| ()).map_err(|failure| failure.why));
        if let Err(failure) = &answer {
            tracing::warn!(backend = %self.name, reason = %failure.why.reason(), detail = %failure.detail, "query failed");
        }
        answer
    }

    async fn fetch(&self, query: Query<'_>, round: &Round) -> Result<Bytes, Failure> {
        let headers = round.headers.as_ref().map_err(Clone::clone)?;
        let wait = async {
            let own = match query.lane {
                Lane::Own => Some(self.own_permits.acquire().await),
                Lane::Shared => None,
            };
            (own, self.permits.acquire().await)
        };
        let too_late = Failure::new(NoReading::Timeout, "the round ended before the query could be sent");
        let _permits = tokio::time::timeout_at(round.deadline, wait).await.map_err(|_| too_late.clone())?;
        let body = self.form(query.text, round.at);
        for attempt in 1.. {
            if round.refused.load(Ordering::Relaxed) >= REFUSALS {
                return Err(Failure::new(NoReading::BackendError, "the backend refuses connections"));
            }
            let (failure, again) = match self.send(headers, &body, round.deadline).await {
                Ok(response) if response.status == 200 => {
                    round.refused.store(0, Ordering::Relaxed);
                    return Ok(response.body);
                }
                Ok(response) => {
                    let failure = refusal(&response);
                    let again = response.status == 503 && failure.why == NoReading::BackendError;
                    (failure, again)
                }
                Err(TransportError::Connect(detail)) => {
                    round.refused.fetch_add(1, Ordering::Relaxed);
                    (Failure::new(NoReading::BackendError, format!("cannot connect: {detail}")), true)
                }
                Err(error) => (broken(&error), false),
            };
            let pause = self.pause();
            if !again || attempt >= ATTEMPTS || Instant::now() + pause >= round.deadline {
                return Err(failure);
            }
            self.counters.retried();
            tokio::time::sleep(pause).await;
        }
        Err(too_late)
    }

    /// 50 to 250 ms of this clock, so that many clients do not come back at once.
    fn pause(&self) -> Duration {
        let jitter = self.jitter.lock().unwrap_or_else(PoisonError::into_inner).u64(0..=200);
        self.clock.real(Duration::from_millis(50 + jitter))
    }

    fn form(&self, text: &str, at: DateTime<Utc>) -> Bytes {
        let mut form = url::form_urlencoded::Serializer::new(String::with_capacity(text.len() + 128));
        let millis = at.timestamp_millis();
        form.append_pair("query", text)
            .append_pair("time", &format!("{}.{:03}", millis.div_euclid(1_000), millis.rem_euclid(1_000)))
            .append_pair("timeout", &format!("{}ms", self.options.timeout.as_millis().max(1)));
        for (name, value) in &self.options.params {
            form.append_pair(name, value);
        }
        form.finish().into()
    }

    async fn send(&self, headers: &HeaderMap, body: &Bytes, deadline: Instant) -> Result<Response, TransportError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = self.clock.real(self.options.timeout).min(left);
        let request = Request {
            backend: self.name.clone(),
            method: Method::POST,
            url: self.options.url.clone(),
            headers: headers.clone(),
            body: body.clone(),
            timeout,
            max_bytes: self.options.max_bytes,
        };
        let sent = tokio::time::timeout(timeout + GRACE, self.transport.send(request)).await;
        let response = sent.unwrap_or(Err(TransportError::Timeout(timeout)))?;
        self.counters.received(body.len(), response.body.len());
        // A transport may be a function that knows no limits.
        if response.body.len() > self.options.max_bytes {
            return Err(TransportError::TooLarge { limit: self.options.max_bytes });
        }
        Ok(response)
    }
}

/// A 200: an answer, an error all the same, or something that is no answer at all.
fn read(body: &[u8], labels: [&str; LABELS], sink: &mut (dyn FnMut(Sample<'_>) + Send)) -> Result<Answer, Failure> {
    match reply::parse(body, labels, sink) {
        Ok(Reply::Success(answer)) if answer.partial => {
            let detail = answer.warnings.join("; ");
            Err(Failure::new(NoReading::Partial, detail))
        }
        Ok(Reply::Success(answer)) => Ok(answer),
        Ok(Reply::Error { kind, message }) => Err(declared(&kind, message)),
        Err(error) => {
            Err(Failure::new(NoReading::BadAnswer, format!("the answer is not of the Prometheus API: {error}")))
        }
    }
}

/// The error that a body declares, by `errorType`.
fn declared(kind: &str, message: String) -> Failure {
    match kind {
        "bad_data" | "execution" => Failure::divisible(NoReading::QueryError, message),
        "timeout" => Failure::divisible(NoReading::Timeout, message),
        _ => Failure::new(NoReading::BackendError, message),
    }
}

/// A status other than 200. 400 and 422 are the query's fault, everything else the backend's (a 401 is our own
/// configuration's, but no policy's).
fn refusal(response: &Response) -> Failure {
    let reply = reply::parse(&response.body, [""; LABELS], &mut |_| ()).ok();
    let (kind, message) = match reply {
        Some(Reply::Error { kind, message }) => (kind, message),
        _ => (String::new(), String::new()),
    };
    let detail = format!("HTTP {} {message}", response.status);
    match response.status {
        400 | 422 => Failure::divisible(NoReading::QueryError, detail),
        503 if kind == "timeout" => Failure::divisible(NoReading::Timeout, detail),
        _ => Failure::new(NoReading::BackendError, detail),
    }
}

fn broken(error: &TransportError) -> Failure {
    let detail = error.to_string();
    match error {
        TransportError::Timeout(_) => Failure::divisible(NoReading::Timeout, detail),
        TransportError::TooLarge { .. } => Failure::divisible(NoReading::BadAnswer, detail),
        TransportError::Broken(_) => Failure::new(NoReading::BadAnswer, detail),
        TransportError::Connect(_) | TransportError::Invalid(_) => Failure::new(NoReading::BackendError, detail),
    }
}
