//! `tradeguard explain`: why a policy is in its phase, from a running engine or from what stands in the cluster.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use kube::Api;
use serde_json::Value;

use super::{Error, Exit, Output, Result, Streams, cluster};
use crate::api::{AnyPolicy, GovernancePolicy, LatencyBudgetPolicy, PolicyStatus};
use crate::decide::Explanation;
use crate::model::phase::Phase;
use crate::model::policy::{PolicyKey, PolicyKind};
use crate::model::quantity::{Unit, show};

/// Why a policy is in its phase.
///
/// Asks a running engine, which knows live values: each reading against its threshold, the query as sent, the rule and
/// the line that fired, every check that had a say, who overrides the policy, what is held back and why, what would move
/// it next. An engine in a cluster is reached by `kubectl port-forward -n tradeguard-system POD 9651`.
///
/// With --kubeconfig it reads what stands in the policy's status instead, which also works while no engine runs.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The policy.
    #[arg(value_name = "NAMESPACE/NAME", value_parser = namespace_and_name)]
    policy: (String, String),
    /// Its kind.
    #[arg(long, default_value = "LatencyBudgetPolicy", value_parser = kind)]
    kind: PolicyKind,
    /// A running engine's address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9650", conflicts_with = "kubeconfig")]
    server: String,
    /// Read the policy's status in this cluster instead.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How the explanation is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

fn namespace_and_name(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

fn kind(text: &str) -> Result<PolicyKind, String> {
    PolicyKind::parse(text).ok_or_else(|| "expected LatencyBudgetPolicy or GovernancePolicy".to_owned())
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let (namespace, name) = args.policy.clone();
    let key = PolicyKey { kind: args.kind, namespace, name };
    let (json, text) = super::block_on(async {
        match &args.kubeconfig {
            None => from_engine(&args.server, &key).await,
            Some(path) => from_status(path, &key).await,
        }
    })?;
    match args.output {
        Output::Json => writeln!(streams.out, "{json:#}")?,
        Output::Text => write!(streams.out, "{text}")?,
    }
    Ok(Exit::Ok)
}

/// The explanation as JSON and as text.
async fn from_engine(server: &str, key: &PolicyKey) -> Result<(Value, String)> {
    let base = server.trim_end_matches('/');
    let url = format!("{base}/v1/explain/{}/{}/{}", key.kind, key.namespace, key.name);
    let url = reqwest::Url::parse(&url).map_err(|error| {
        Error::Usage(format!("--server: `{server}` is no URL ({error}); expected http://host:port"))
    })?;
    let away = |error: reqwest::Error| {
        let words = cluster::words(&error.without_url());
        Error::Unreachable(format!("the engine at {server}: {words}; --kubeconfig FILE reads the status instead"))
    };
    let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().map_err(away)?;
    let response = client.get(url).send().await.map_err(away)?;
    let status = response.status();
    let body = response.bytes().await.map_err(away)?;
    let body: Value = serde_json::from_slice(&body)
        .map_err(|_| Error::Unreachable(format!("what answers at {server} (HTTP {status}) is no engine")))?;
    if status.is_success() {
        let text = text_of(key, &body);
        return Ok((body, text));
    }
    let message = body["message"].as_str().unwrap_or("no reason given");
    Err(match status.as_u16() {
        400 | 404 => Error::Usage(message.to_owned()),
        code => Error::Unreachable(format!("the engine at {server} answers {code}: {message}")),
    })
}

/// An engine's answer for people: a whole explanation, or only the reason why there is none.
fn text_of(key: &PolicyKey, body: &Value) -> String {
    if let Ok(explanation) = serde_json::from_value::<Explanation>(body.clone()) {
        return explanation.to_string();
    }
    let reason = body["reason"].as_str().unwrap_or("unknown");
    let message = body["message"].as_str().map_or_else(String::new, |message| format!(": {message}"));
    format!("{} {key} is not judged ({reason}){message}\n", key.kind)
}

async fn from_status(path: &std::path::Path, key: &PolicyKey) -> Result<(Value, String)> {
    let client = cluster::client(Some(path), None).await?;
    let found = match key.kind {
        PolicyKind::LatencyBudgetPolicy => {
            let api = Api::<LatencyBudgetPolicy>::namespaced(client, &key.namespace);
            api.get_opt(&key.name).await.map(|found| found.map(|policy| AnyPolicy::from(std::sync::Arc::new(policy))))
        }
        PolicyKind::GovernancePolicy => {
            let api = Api::<GovernancePolicy>::namespaced(client, &key.namespace);
            api.get_opt(&key.name).await.map(|found| found.map(|policy| AnyPolicy::from(std::sync::Arc::new(policy))))
        }
    };
    let policy = found
        .map_err(|error| cluster::unreachable(&error))?
        .ok_or_else(|| Error::Usage(format!("there is no {} {key}", key.kind)))?;
    let status = policy.status();
    let json = serde_json::to_value(&status).expect("a status is plain data");
    Ok((json, status_text(key, policy.generation(), &status)))
}

/// What a status tells, for people.
fn status_text(key: &PolicyKey, generation: i64, status: &PolicyStatus) -> String {
    let mut text = String::new();
    let phase = status.phase.unwrap_or(Phase::Healthy);
    let stage = status.stage.map_or_else(String::new, |stage| format!(" ({stage:?})"));
    let since = status.since.map_or_else(String::new, |since| format!(" since {}", since.to_rfc3339()));
    let mut line = |words: String| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{words}");
    };
    match status.observed_generation {
        None => line(format!("{} {key} has no status yet: no engine has seen it", key.kind)),
        Some(seen) => {
            line(format!("{} {key} is {phase}{stage}{since}", key.kind));
            if seen != generation {
                line(format!("  the spec has changed since (generation {generation}, the status is of {seen})"));
            }
        }
    }
    for condition in &status.conditions {
        line(format!("  {} {:?} ({}): {}", condition.kind, condition.status, condition.reason, condition.message));
    }
    for signal in &status.signals {
        let unit = signal.unit.as_deref().and_then(Unit::parse);
        let shown = signal.value.map(|value| unit.map_or_else(|| value.to_string(), |unit| show(value, unit.base)));
        let value = shown.or_else(|| signal.reason.clone()).unwrap_or_default();
        let threshold = signal.threshold.as_ref().map_or_else(String::new, |written| format!(", threshold {written}"));
        line(format!("  {} {value}{threshold}", signal.name));
    }
    for query in &status.queries {
        line(format!("  query at {}: {}", query.backend, query.text));
    }
    if !status.suspects.is_empty() {
        line(format!("  suspects: {}", status.suspects.join(", ")));
    }
    for held in &status.held_back {
        line(format!("  held back: {}: {} ({})", held.slot, held.message, held.reason));
    }
    for change in &status.history {
        let stage = change.stage.map_or_else(String::new, |stage| format!(" ({stage:?})"));
        line(format!("  {} {} → {}{stage}: {}", change.time.to_rfc3339(), change.from, change.to, change.reason));
    }
    text
}

#[cfg(test)]
mod tests;
