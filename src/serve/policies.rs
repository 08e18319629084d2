//! `GET /v1/policies` and `GET /v1/explain/{kind}/{namespace}/{name}`: policies as they stand, live values included.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ApiError, Surface};
use crate::model::phase::{Phase, Stage};
use crate::model::policy::{PolicyKey, PolicyKind, TargetRef};
use crate::model::reason::Reason;
use crate::model::verdict::Severity;
use crate::model::view::{PolicyView, Processing, Role, SignalView};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parameters {
    namespace: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    role: Role,
    detached_since: Option<DateTime<Utc>>,
    items: Vec<Item>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(flatten)]
    key: PolicyKey,
    tenant: String,
    target: Option<TargetRef>,
    processing: Processing,
    reason: &'static str,
    phase: Phase,
    stage: Option<Stage>,
    since: Option<DateTime<Utc>>,
    blind: Option<&'static str>,
    verdict: Option<&'static str>,
    severity: Option<Severity>,
    judged_at: Option<DateTime<Utc>>,
    signals: BTreeMap<String, SignalItem>,
    suspects: Vec<String>,
}

/// A value, or the reason why there is none; never both.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SignalItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold_written: Option<String>,
}

pub(super) async fn list(
    State(surface): State<Surface>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Result<Json<List>, ApiError> {
    let Query(Parameters { namespace }) = parameters
        .map_err(|rejection| ApiError::BadParameter { parameter: "query", message: rejection.body_text() })?;
    let view = surface.view.borrow().clone();
    let wanted = |key: &PolicyKey| namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace);
    let items = view.policies.iter().filter(|(key, _)| wanted(key)).map(|(key, policy)| item(key, policy)).collect();
    Ok(Json(List { role: view.role, detached_since: view.detached_since, items }))
}

pub(super) async fn explain(
    State(surface): State<Surface>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
) -> Result<Json<Value>, ApiError> {
    let view = surface.view.borrow().clone();
    let parsed = PolicyKind::parse(&kind).ok_or_else(|| ApiError::BadParameter {
        parameter: "kind",
        message: format!("`{kind}` is no kind of policy; expected LatencyBudgetPolicy or GovernancePolicy"),
    })?;
    let key = PolicyKey { kind: parsed, namespace, name };
    match view.policies.get(&key) {
        Some(policy) => Ok(Json(policy.explanation.to_json())),
        None if !view.synced => Err(ApiError::NotSynced),
        None => Err(ApiError::NotFound { kind, namespace: key.namespace, name: key.name }),
    }
}

fn item(key: &PolicyKey, policy: &PolicyView) -> Item {
    Item {
        key: key.clone(),
        tenant: policy.tenant.name.clone(),
        target: policy.target.as_deref().cloned(),
        processing: policy.processing,
        reason: policy.reason.as_str(),
        phase: policy.phase,
        stage: policy.stage,
        since: policy.since,
        blind: policy.blind.map(Reason::as_str),
        verdict: policy.verdict.map(|(outcome, _)| outcome.as_str()),
        severity: policy.verdict.map(|(_, severity)| severity),
        judged_at: policy.judged_at,
        signals: policy.signals.iter().map(|(name, signal)| (name.clone(), signal_item(signal))).collect(),
        suspects: policy.suspects.clone(),
    }
}

fn signal_item(signal: &SignalView) -> SignalItem {
    let reading = signal.reading.as_ref();
    SignalItem {
        value: reading.map(|reading| reading.value).ok(),
        unit: reading.map(|reading| reading.unit.symbol()).ok(),
        age_seconds: reading.map(|reading| reading.age_seconds).ok(),
        series: reading.map(|reading| reading.series).ok(),
        requests: reading.ok().and_then(|reading| reading.requests),
        reason: reading.err().map(|why| why.reason().as_str()),
        threshold: signal.threshold.as_ref().map(|threshold| threshold.value),
        threshold_written: signal.threshold.as_ref().map(|threshold| threshold.written.clone()),
    }
}
