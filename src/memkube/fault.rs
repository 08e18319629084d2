//! Faults on the way to a Kubernetes API: delays, refusals, lost answers, cut watches, and death at a chosen write.
//!
//! A tower layer of its own, so that it stands before memkube and before a real API server alike. It refuses to know what
//! the requests mean beyond verb and resource.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

use crate::memkube::{
    route::{Query, Route},
    status::Failure,
};

/// The body of an answer that came through the layer.
pub type FaultyBody = UnsyncBoxBody<Bytes, BoxError>;

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It arrives after this long.
    Delay(Duration),
    /// It never arrives; the server's answer is this failure, for example 429, 503 or 409.
    Refuse(Failure),
    /// It never arrives and the connection breaks.
    Unreachable,
    /// It arrives and takes effect, but the answer is lost.
    LoseAnswer,
}

impl Fault {
    /// 429, with the seconds of its `Retry-After`.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        Self::Refuse(Failure::new(429, "TooManyRequests", message).retry_after(retry_after))
    }

    /// 503.
    pub fn unavailable() -> Self {
        let message = "the server is currently unable to handle the request";
        Self::Refuse(Failure::new(503, "ServiceUnavailable", message))
    }

    /// 409, as if another writer had been faster.
    pub fn conflict() -> Self {
        let message = "the object has been modified; please apply your changes to the latest version and try again";
        Self::Refuse(Failure::new(409, "Conflict", message))
    }
}

/// Which requests a fault is for; the default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    /// Only requests that write.
    pub writes: bool,
    /// Only requests with this method, for example `PATCH`.
    pub method: Option<Method>,
    /// Only this plural, with `/subresource` where one is meant: `pods`, `orderservices/status`.
    pub resource: Option<String>,
    /// Only objects of this name.
    pub name: Option<String>,
}

/// Why a request found no server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection broke.
    #[error("connection refused by an injected fault")]
    Unreachable,
    /// The client was killed at a write; nothing of it reaches the server until it is revived.
    #[error("this client was killed by an injected fault")]
    Killed,
}

#[derive(Debug)]
struct Rule {
    matching: Matching,
    fault: Fault,
    /// How many more requests it strikes; endless if absent.
    left: Option<u32>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    writes: u64,
    kill: Option<Kill>,
    dead: bool,
}

#[derive(Clone, Copy, Debug)]
struct Kill {
    at_write: u64,
    /// Whether the fatal write still takes effect.
    lands: bool,
}

/// The switchboard of a client's faults, and the layer that carries them out. Clones share the state.
#[derive(Clone, Debug)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    cuts: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { state: Arc::default(), cuts: watch::Sender::new(0) }
    }
}

impl Faults {
    /// Strikes all matching requests until `clear`.
    pub fn inject(&self, matching: Matching, fault: Fault) {
        self.state().rules.push(Rule { matching, fault, left: None });
    }

    /// Strikes the next `times` matching requests.
    pub fn inject_times(&self, matching: Matching, fault: Fault, times: u32) {
        self.state().rules.push(Rule { matching, fault, left: Some(times) });
    }

    /// Ends all faults, and death.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.kill = None;
        state.dead = false;
    }

    /// Ends every open watch as a dropped connection does.
    pub fn cut_watches(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    /// Dies at the `n`-th write from now (1 is the next): it does not take effect, and nothing comes through any more.
    pub fn kill_before_write(&self, n: u64) {
        self.kill_at(n, false);
    }

    /// Dies after the `n`-th write from now: it takes effect, its answer is lost, and nothing comes through any more.
    pub fn kill_after_write(&self, n: u64) {
        self.kill_at(n, true);
    }

    fn kill_at(&self, n: u64, lands: bool) {
        let mut state = self.state();
        state.kill = Some(Kill { at_write: state.writes + n, lands });
    }

    /// Whether a kill has struck.
    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// How many writes were sent so far.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What strikes this request.
    fn verdict<B>(&self, request: &Request<B>) -> Result<Option<Fault>, Error> {
        let mut state = self.state();
        if state.dead {
            return Err(Error::Killed);
        }
        let traits = Traits::of(request);
        if traits.writes {
            state.writes += 1;
        }
        if let Some(kill) = state.kill.filter(|kill| traits.writes && state.writes >= kill.at_write) {
            state.dead = true;
            drop(state);
            self.cut_watches();
            return if kill.lands { Ok(Some(Fault::LoseAnswer)) } else { Err(Error::Killed) };
        }
        let Some(rule) = state.rules.iter_mut().find(|rule| rule.left != Some(0) && rule.matching.fits(&traits)) else {
            return Ok(None);
        };
        rule.left = rule.left.map(|left| left - 1);
        Ok(Some(rule.fault.clone()))
    }
}

/// What rules look at.
struct Traits {
    writes: bool,
    method: Method,
    resource: String,
    name: Option<String>,
}

impl Traits {
    fn of<B>(request: &Request<B>) -> Self {
        let dry = !Query::parse(request.uri().query()).text("dryRun").is_empty();
        let writes = !dry && !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let (resource, name) = match Route::parse(request.uri().path()) {
            Route::Objects(target) => {
                let subresource = target.subresource.map(|name| format!("/{name}")).unwrap_or_default();
                (target.plural + &subresource, target.name)
            }
            _ => (String::new(), None),
        };
        Self { writes, method: request.method().clone(), resource, name }
    }
}

impl Matching {
    fn fits(&self, traits: &Traits) -> bool {
        (!self.writes || traits.writes)
            && self.method.as_ref().is_none_or(|method| *method == traits.method)
            && self.resource.as_ref().is_none_or(|resource| *resource == traits.resource)
            && self.name.as_ref().is_none_or(|name| Some(name) == traits.name.as_ref())
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { inner, faults: self.clone() }
    }
}

/// A service behind faults.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

impl<S, A, B> Service<Request<A>> for Faulty<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    A: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<FaultyBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<FaultyBody>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let ready = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, ready);
        let faults = self.faults.clone();
        Box::pin(async move {
            let cuts = faults.cuts.subscribe();
            let fault = faults.verdict(&request)?;
            match fault {
                Some(Fault::Unreachable) => return Err(Error::Unreachable.into()),
                Some(Fault::Refuse(failure)) => return Ok(refusal(&failure)),
                Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
                Some(Fault::LoseAnswer) => {
                    inner.call(request).await.map_err(Into::into)?;
                    return Err(Error::Unreachable.into());
                }
                None => {}
            }
            let watches = Query::parse(request.uri().query()).flag("watch");
            let response = inner.call(request).await.map_err(Into::into)?;
            Ok(response
                .map(|body| if watches { until_cut(body, cuts) } else { body.map_err(Into::into).boxed_unsync() }))
        })
    }
}

fn refusal(failure: &Failure) -> Response<FaultyBody> {
    let body = Full::new(Bytes::from(failure.to_status().to_string())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(failure.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = failure.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A streaming body that ends when watches are cut.
fn until_cut<B>(body: B, mut cuts: watch::Receiver<u64>) -> FaultyBody
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let cut = async move {
        // An error means that the layer is gone, and nobody can cut any more.
        if cuts.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let frames = http_body_util::BodyStream::new(body).map(|frame| frame.map_err(Into::into));
    StreamBody::new(frames.take_until(Box::pin(cut))).boxed_unsync()
}

#[cfg(test)]
mod tests;
