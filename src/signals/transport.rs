//! How HTTP requests leave this room, and in which ways that fails. Knows nothing of queries, Pods or policies.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method};

/// Sends requests: [`super::ReqwestTransport`] in production, a function in the demo, World tests and benches.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends one request and reads the whole answer, whatever its status. An implementation keeps to
    /// `request.timeout` and `request.max_bytes` (of the decoded body) and follows no redirect.
    async fn send(&self, request: Request) -> Result<Response, TransportError>;
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the backend whose TLS settings apply.
    pub backend: Arc<str>,
    /// GET for a scrape, POST for a query.
    pub method: Method,
    /// Absolute URL.
    pub url: String,
    /// Headers, `content-type` and `authorization` among them.
    pub headers: HeaderMap,
    /// The body; empty for a scrape.
    pub body: Bytes,
    /// Longest time from the first byte sent to the last one read.
    pub timeout: Duration,
    /// Longest body that is read.
    pub max_bytes: usize,
}

/// One answer, read whole.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`, if the answer had one.
    pub content_type: Option<String>,
    /// The decoded body.
    pub body: Bytes,
}

impl Response {
    /// A JSON answer, for transports that answer in process.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, content_type: Some("application/json".to_owned()), body: body.into() }
    }
}

/// Why there is no answer at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No whole answer within the request's time; the backend may be slow or away.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// No connection: refused, unknown host, bad certificate.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The body is longer than the request allows.
    #[error("the answer is longer than {limit} bytes")]
    TooLarge {
        /// The request's `max_bytes`.
        limit: usize,
    },
    /// The connection broke while the answer was read.
    #[error("the answer was cut off: {0}")]
    Broken(String),
    /// The request itself could not be made (a malformed URL or header).
    #[error("the request could not be made: {0}")]
    Invalid(String),
}
