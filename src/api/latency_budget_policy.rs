//! LatencyBudgetPolicy: latency quantiles of a target over a duration.

use chrono::{DateTime, Utc};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::policy_spec::{Action, Identity, PolicyCore};
use super::policy_status::PolicyStatus;
use super::schema;
use crate::model::policy::{Draft, DraftSignal, PolicyKey, PolicyKind};

/// The spec of a LatencyBudgetPolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "policy.trade.io",
    version = "v1alpha2",
    kind = "LatencyBudgetPolicy",
    plural = "latencybudgetpolicies",
    shortname = "lbp",
    category = "policy",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    doc = "Keeps latency quantiles of a target within a budget: measures them, acts when they are above their thresholds for a duration, and undoes it on evidence of recovery.",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Observed", type_ = "string", json_path = ".status.observed"),
    printcolumn(name = "P99", type_ = "string", json_path = ".spec.thresholds.p99"),
    printcolumn(name = "For", type_ = "string", json_path = ".spec.thresholds.duration"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.stage", priority = 1),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since", priority = 1),
    printcolumn(
        name = "Enforced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Enforced\")].reason",
        priority = 1
    )
)]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct LatencyBudgetPolicySpec {
    /// What every policy has.
    #[serde(flatten)]
    pub core: PolicyCore,
    /// The latencies that must be kept, and for how long a breach must last.
    pub thresholds: LatencyThresholds,
    /// What to do while the policy is Active.
    #[schemars(length(min = 1, max = 8))]
    pub actions: Vec<Action>,
}

/// Quantiles with their thresholds; at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = threshold_rules()))]
pub struct LatencyThresholds {
    /// Threshold of the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p50: Option<String>,
    /// Threshold of the quantile 0.75.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p75: Option<String>,
    /// Threshold of the quantile 0.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p90: Option<String>,
    /// Threshold of the quantile 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p95: Option<String>,
    /// Threshold of the quantile 0.99.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p99: Option<String>,
    /// Threshold of the quantile 0.999.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub p999: Option<String>,
    /// How long a breach must last before anything is done.
    #[schemars(schema_with = "schema::duration")]
    pub duration: String,
    /// How long each step of recovery must be ok; absent: as long as duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub recovery: Option<String>,
}

/// Names of the quantile fields, and the quantiles.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

fn threshold_rules() -> Value {
    let any = QUANTILES.map(|(name, _)| format!("has(self.{name})")).join(" || ");
    json!([schema::rule(&any, "expected at least one quantile: p50, p75, p90, p95, p99, p999")])
}

fn spec_rules() -> Value {
    let present = QUANTILES.map(|(name, _)| format!("has(self.thresholds.{name})")).join(", ");
    json!([schema::rule_at(
        ".signal.query",
        &format!("!has(self.signal) || !has(self.signal.query) || [{present}].filter(p, p).size() == 1"),
        "a query stands for one value: expected exactly one quantile in thresholds",
    )])
}

impl LatencyThresholds {
    fn written(&self) -> impl Iterator<Item = (&'static str, f64, &String)> {
        let fields = [&self.p50, &self.p75, &self.p90, &self.p95, &self.p99, &self.p999];
        QUANTILES.into_iter().zip(fields).filter_map(|((name, q), field)| Some((name, q, field.as_ref()?)))
    }
}

impl LatencyBudgetPolicy {
    /// The policy as written, for `decide::validate`. `changed_at` is when its spec was last changed
    /// ([`super::any_policy::changed_at`]).
    pub fn draft(&self, changed_at: DateTime<Utc>) -> Draft {
        let spec = &self.spec;
        let own = spec.core.signal.clone().unwrap_or_default();
        let signals = spec.thresholds.written().map(|(name, quantile, threshold)| DraftSignal {
            path: format!("spec.thresholds.{name}"),
            name: name.to_owned(),
            quantile: own.query.is_none().then_some(quantile),
            query: own.query.clone(),
            unit: own.unit.clone(),
            threshold: Some(threshold.clone()),
            optional: false,
        });
        let identity = Identity {
            key: PolicyKey {
                kind: PolicyKind::LatencyBudgetPolicy,
                namespace: self.namespace().unwrap_or_default(),
                name: self.name_any(),
            },
            uid: self.uid().unwrap_or_default(),
            generation: self.metadata.generation.unwrap_or_default(),
            changed_at,
        };
        Draft {
            duration: spec.thresholds.duration.clone(),
            recovery: spec.thresholds.recovery.clone(),
            signals: signals.collect(),
            ..spec.core.draft(identity, &spec.actions)
        }
    }
}
