//! What the SRE platform is told: CloudEvents 1.0 in structured JSON, and how one event reaches one sink.
//!
//! Refuses to know when something is worth telling, and keeps nothing: what is not acknowledged stays in the
//! [`outbox`](super::outbox).

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use crate::model::{policy::PolicyKey, reason::Reason};

/// `type` of an event about a policy that moved to another phase or stage.
pub const TRANSITION: &str = "io.trade.policy.transition";

/// `type` of an event about an effect that was made, undone, or could not be.
pub const EFFECT: &str = "io.trade.policy.effect";

/// The content type of a structured CloudEvent.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// A CloudEvents 1.0 event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloudEvent {
    /// Always `1.0`.
    pub specversion: String,
    /// The same for the same decision, however often it is told.
    pub id: String,
    /// Which engine says so, as a URI reference.
    pub source: String,
    /// [`TRANSITION`] or [`EFFECT`].
    #[serde(rename = "type")]
    pub kind: String,
    /// The policy: `namespace/name`.
    pub subject: String,
    /// When it happened (RFC 3339).
    pub time: String,
    /// Always `application/json`.
    pub datacontenttype: String,
    /// What happened.
    pub data: Value,
}

/// What happened to a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TransitionData {
    /// Kind of the policy.
    pub policy_kind: String,
    /// Its tenant.
    pub tenant: String,
    /// What it governs, `Kind/name`.
    pub target: String,
    /// Phase before.
    pub from: String,
    /// Phase after.
    pub to: String,
    /// How much is back, while Recovering.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Why, from the closed list.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// How bad.
    pub severity: String,
    /// The signal that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Its value, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// What it was held against, in `unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Base unit of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The revision of the policy.
    pub revision: String,
    /// The decision, as in status and logs.
    pub decision_id: String,
    /// The episode that this belongs to.
    pub episode: String,
}

/// What happened to an effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectData {
    /// Kind of the policy.
    pub policy_kind: String,
    /// Its tenant.
    pub tenant: String,
    /// The action that asked.
    pub action: String,
    /// `isolation`, `mode` or `weights`.
    pub slot: String,
    /// The slot in words.
    pub on: String,
    /// What became of it: `Applied`, `Restored`, `Contested`, ….
    pub outcome: String,
    /// Why, from the closed list.
    pub reason: String,
    /// The same in words.
    pub message: String,
    /// The record, `namespace/name`.
    pub intervention: String,
    /// The revision of the policy.
    pub revision: String,
    /// The decision, as in status and logs.
    pub decision_id: String,
    /// The episode that this belongs to.
    pub episode: String,
}

impl CloudEvent {
    /// A policy moved. `source` names the engine, `/tradeguard/<cluster or instance>`.
    pub fn transition(source: &str, policy: &PolicyKey, at: DateTime<Utc>, data: &TransitionData) -> Self {
        let stage = data.stage.as_deref().unwrap_or_default();
        let parts = [data.decision_id.as_str(), &data.from, &data.to, stage];
        Self::new(TRANSITION, source, policy, at, &parts, serde_json::json!(data))
    }

    /// An effect was made or undone.
    pub fn effect(source: &str, policy: &PolicyKey, at: DateTime<Utc>, data: &EffectData) -> Self {
        let parts = [data.decision_id.as_str(), &data.intervention, &data.outcome];
        Self::new(EFFECT, source, policy, at, &parts, serde_json::json!(data))
    }

    fn new(kind: &str, source: &str, policy: &PolicyKey, at: DateTime<Utc>, parts: &[&str], data: Value) -> Self {
        let subject = policy.to_string();
        let mut hash = Sha256::new();
        for part in [kind, source, policy.kind.as_str(), subject.as_str()].iter().chain(parts) {
            hash.update(part.as_bytes());
            // So that no two lists of parts run together into the same text.
            hash.update([0]);
        }
        let digest = hash.finalize();
        let id = digest.iter().take(16).fold(String::new(), |id, byte| id + &format!("{byte:02x}"));
        Self {
            specversion: "1.0".to_owned(),
            id,
            source: source.to_owned(),
            kind: kind.to_owned(),
            subject,
            time: at.to_rfc3339_opts(SecondsFormat::Millis, true),
            datacontenttype: "application/json".to_owned(),
            data,
        }
    }
}

/// Why an event was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// It may be taken later: no connection, no answer in time, a failing or refusing server.
    #[error("not delivered for now: {0}")]
    Later(String),
    /// This event will never be taken, as the sink says of itself (HTTP 400, 413, 415, 422).
    #[error("the sink refuses the event: HTTP {0}")]
    Never(u16),
}

impl Undelivered {
    /// For conditions and metric labels.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Later(_) => Reason::EffectFailed,
            Self::Never(_) => Reason::EffectRefused,
        }
    }
}

/// Where events go. HTTP in production, the process itself in the demo.
#[async_trait]
pub trait Deliver: Send + Sync {
    /// Hands over one event as JSON text; Ok means that it was acknowledged.
    async fn deliver(&self, event: &str) -> Result<(), Undelivered>;
}

/// A sink of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOptions {
    /// Where to.
    pub url: Url,
    /// How long one delivery may take.
    pub timeout: Duration,
    /// Sent along.
    pub headers: BTreeMap<String, String>,
    /// A file whose content is sent as bearer token; read each time, so that it may rotate.
    pub bearer_token_file: Option<PathBuf>,
}

/// An HTTP endpoint that takes structured CloudEvents.
#[derive(Clone, Debug)]
pub struct HttpSink {
    client: reqwest::Client,
    options: HttpOptions,
}

impl HttpSink {
    /// A sink that is reached by this client.
    pub fn new(client: reqwest::Client, options: HttpOptions) -> Self {
        Self { client, options }
    }
}

#[async_trait]
impl Deliver for HttpSink {
    async fn deliver(&self, event: &str) -> Result<(), Undelivered> {
        let options = &self.options;
        let mut request = self
            .client
            .post(options.url.clone())
            .timeout(options.timeout)
            .header(reqwest::header::CONTENT_TYPE, CONTENT_TYPE)
            .body(event.to_owned());
        for (name, value) in &options.headers {
            request = request.header(name, value);
        }
        if let Some(path) = &options.bearer_token_file {
            let token = tokio::fs::read_to_string(path).await.map_err(|error| {
                Undelivered::Later(format!("the token file {} cannot be read: {error}", path.display()))
            })?;
            request = request.bearer_auth(token.trim());
        }
        // The cause without the URL, which may carry a secret.
        let answer = request.send().await.map_err(|error| Undelivered::Later(innermost(&error.without_url())))?;
        match answer.status().as_u16() {
            200..=299 => Ok(()),
            code @ (400 | 413 | 415 | 422) => Err(Undelivered::Never(code)),
            // Also 401, 403, 404: rights and addresses get repaired, and the event is as good then.
            code => Err(Undelivered::Later(format!("HTTP {code}"))),
        }
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
