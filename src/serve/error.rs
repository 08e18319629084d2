//! Every refusal of the HTTP surface: one shape, `{"reason", "message"}`, one status each.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No such path; the caller must change it.
    #[error(
        "no such path; see /v1/state/{{namespace}}/{{kind}}/{{name}}, /v1/policies, /v1/explain/{{kind}}/{{namespace}}/{{name}}"
    )]
    NoSuchPath,
    /// Everything here is read with GET.
    #[error("only GET is served here")]
    MethodNotAllowed,
    /// A parameter is wrong; the caller must change it.
    #[error("{parameter}: {message}")]
    BadParameter {
        /// Its name.
        parameter: &'static str,
        /// What is wrong, and what is expected.
        message: String,
    },
    /// Nothing of that name.
    #[error("there is no {kind} {namespace}/{name}")]
    NotFound {
        /// The kind asked for.
        kind: String,
        /// The namespace asked for.
        namespace: String,
        /// The name asked for.
        name: String,
    },
    /// Several API groups have such a target; the caller must say which.
    #[error("several targets fit; add apiVersion=, one of {0}")]
    Ambiguous(String),
    /// The caches are not filled yet; the caller keeps what it knows and asks again.
    #[error("the caches are being filled; keep what you know and ask again")]
    NotSynced,
    /// Not on this address.
    #[error("this is served on loopback addresses only: elsewhere it wants TLS and a credential")]
    NotExposed,
}

impl ApiError {
    /// CamelCase, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoSuchPath => "NoSuchPath",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::BadParameter { .. } => "BadParameter",
            Self::NotFound { .. } => "NotFound",
            Self::Ambiguous(_) => "Ambiguous",
            Self::NotSynced => "NotSynced",
            Self::NotExposed => "NotExposed",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPath | Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BadParameter { .. } => StatusCode::BAD_REQUEST,
            Self::Ambiguous(_) => StatusCode::CONFLICT,
            Self::NotSynced => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotExposed => StatusCode::FORBIDDEN,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Json(json!({ "reason": self.reason(), "message": self.to_string() }));
        let mut response = (self.status(), body).into_response();
        if self == Self::NotSynced {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
