//! `GET /v1/state/{namespace}/{kind}/{name}[?apiVersion=][&revision=N&wait=30s]`: the mode that a service shall run in.
//!
//! A target that no policy governs runs in `normal`, `governed: false`: a service may come up before its policy, and a
//! long poll then waits for the policy. While the caches are being filled the answer is 503, since "normal" would be a
//! guess.
//!
//! `revision` tells states apart and has no order: it is derived from the state, so that every instance gives the same
//! state the same number and a client may move from one instance to another. With `wait` the answer comes as soon as the
//! state is another one than `revision` (or `If-None-Match`) names, or when the time is over.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::{ApiError, Surface};
use crate::model::policy::PolicyKey;
use crate::model::time;
use crate::model::view::{NORMAL, TargetKey, TargetView, View};

/// Longest wait; a longer one is cut to this.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Parameters {
    api_version: Option<String>,
    revision: Option<u64>,
    wait: Option<String>,
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    mode: String,
    since: Option<DateTime<Utc>>,
    governed: bool,
    policies: Vec<PolicyKey>,
    revision: u64,
    /// How old this knowledge is: 0 while the API server is in reach.
    age_seconds: f64,
}

pub(super) async fn get(
    State(surface): State<Surface>,
    Path((namespace, kind, name)): Path<(String, String, String)>,
    parameters: Result<Query<Parameters>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Query(parameters) = parameters
        .map_err(|rejection| ApiError::BadParameter { parameter: "query", message: rejection.body_text() })?;
    let wait = match parameters.wait.as_deref() {
        None | Some("0" | "0s") => Duration::ZERO,
        Some(text) => time::parse_duration(text).map_err(|error| ApiError::BadParameter {
            parameter: "wait",
            message: format!("{error}; expected {}", time::EXPECTED),
        })?,
    };
    let etag_known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).and_then(revision_of);
    let known = parameters.revision.or(etag_known);
    let deadline = Instant::now() + wait.min(LONGEST_WAIT);
    let mut views = surface.view.clone();
    loop {
        let view = Arc::clone(&views.borrow_and_update());
        let answer = answer(&view, &namespace, &kind, &name, parameters.api_version.as_deref(), surface.clock.now())?;
        let over = known != Some(answer.revision) || surface.stopping.is_cancelled();
        if over || !changed_before(deadline, &mut views, &surface).await {
            return Ok(respond(&answer, etag_known));
        }
    }
}

/// Waits for another view; false when the time is over or the engine stops.
async fn changed_before(
    deadline: Instant,
    views: &mut tokio::sync::watch::Receiver<Arc<View>>,
    surface: &Surface,
) -> bool {
    tokio::select! {
        changed = timeout_at(deadline, views.changed()) => matches!(changed, Ok(Ok(()))),
        () = surface.stopping.cancelled() => false,
    }
}

fn answer(
    view: &View,
    namespace: &str,
    kind: &str,
    name: &str,
    api_version: Option<&str>,
    now: DateTime<Utc>,
) -> Result<Answer, ApiError> {
    if !view.synced {
        return Err(ApiError::NotSynced);
    }
    let target = find(view, namespace, kind, name, api_version)?;
    let age = view.detached_since.map_or(Duration::ZERO, |since| time::elapsed(since, now));
    let (mode, since, policies) = match target {
        Some(target) => (target.mode.clone(), target.since, target.policies.clone()),
        None => (NORMAL.to_owned(), None, Vec::new()),
    };
    let governed = target.is_some();
    let revision = revision(&mode, since, governed, &policies);
    Ok(Answer { mode, since, governed, policies, revision, age_seconds: age.as_secs_f64() })
}

fn find<'a>(
    view: &'a View,
    namespace: &str,
    kind: &str,
    name: &str,
    api_version: Option<&str>,
) -> Result<Option<&'a TargetView>, ApiError> {
    let first = TargetKey {
        namespace: namespace.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        api_version: api_version.unwrap_or_default().to_owned(),
    };
    if api_version.is_some() {
        return Ok(view.targets.get(&first).map(AsRef::as_ref));
    }
    let same = |key: &TargetKey| key.namespace == first.namespace && key.kind == first.kind && key.name == first.name;
    let mut fitting = view.targets.range(first.clone()..).take_while(|(key, _)| same(key));
    let Some((key, target)) = fitting.next() else { return Ok(None) };
    let others: Vec<&str> = fitting.map(|(other, _)| other.api_version.as_str()).collect();
    if others.is_empty() {
        Ok(Some(target.as_ref()))
    } else {
        Err(ApiError::Ambiguous(format!("{}, {}", key.api_version, others.join(", "))))
    }
}

/// 52 bits, so that it survives programs that keep every number as a float.
fn revision(mode: &str, since: Option<DateTime<Utc>>, governed: bool, policies: &[PolicyKey]) -> u64 {
    let text = format!("{mode}\n{since:?}\n{governed}\n{policies:?}");
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) >> 12
}

/// The revision in an ETag of ours, weak or strong.
fn revision_of(etag: &str) -> Option<u64> {
    etag.trim().trim_start_matches("W/").trim_matches('"').parse().ok()
}

fn respond(answer: &Answer, etag_known: Option<u64>) -> Response {
    let headers = [(header::ETAG, format!("\"{}\"", answer.revision)), (header::CACHE_CONTROL, "no-cache".to_owned())];
    if etag_known == Some(answer.revision) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (headers, Json(answer)).into_response()
}
