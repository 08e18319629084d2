//! The server as a tower service: below `kube::Client::new`, or as axum's fallback.
//!
//! Refuses to know Kubernetes; it reads bodies, calls the server, and writes answers.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use serde_json::Value;
use tower::{BoxError, Service};

use crate::memkube::{
    server::{Reply, Server},
    status::Failure,
};

/// Bodies above this are refused, as by the real server.
const MAX_BODY: usize = 3 * 1024 * 1024;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A handle that answers requests under one client's name.
#[derive(Clone)]
pub struct MemKubeService {
    server: Arc<Server>,
    client: Arc<str>,
}

impl MemKubeService {
    pub(crate) fn new(server: Arc<Server>, client: &str) -> Self {
        Self { server, client: client.into() }
    }
}

impl std::fmt::Debug for MemKubeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemKubeService").field("client", &self.client).finish_non_exhaustive()
    }
}

impl<B> Service<Request<B>> for MemKubeService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (server, client) = (Arc::clone(&self.server), Arc::clone(&self.client));
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let answer = match Limited::new(body, MAX_BODY).collect().await {
                Ok(body) => server.answer(&client, &parts, &body.to_bytes()),
                Err(_) => Err(Failure::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")),
            };
            Ok(respond(answer))
        })
    }
}

fn respond(answer: Result<Reply, Failure>) -> Response<Body> {
    match answer {
        Ok(Reply::Json(code, value)) => json_response(code, &value),
        Ok(Reply::Text(text)) => response(200, "text/plain; charset=utf-8", full(Bytes::from_static(text.as_bytes()))),
        Ok(Reply::Stream(watch)) => {
            response(200, "application/json", StreamBody::new(watch.into_stream()).boxed_unsync())
        }
        Err(failure) => {
            let mut response = json_response(failure.code, &failure.to_status());
            if let Some(seconds) = failure.retry_after_seconds() {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            response
        }
    }
}

/// A complete JSON answer.
pub(crate) fn json_response(code: u16, value: &Value) -> Response<Body> {
    response(code, "application/json", full(Bytes::from(value.to_string())))
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}

fn response(code: u16, media_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
