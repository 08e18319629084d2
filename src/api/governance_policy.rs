//! GovernancePolicy: the general kind, with named signals and a Rego rule of the tenant's own.

use chrono::{DateTime, Utc};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::policy_spec::{Action, Identity, PolicyCore};
use super::policy_status::PolicyStatus;
use super::schema;
use crate::model::policy::{Draft, DraftSignal, OwnRule, PolicyKey, PolicyKind};

/// The spec of a GovernancePolicy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "policy.trade.io",
    version = "v1alpha2",
    kind = "GovernancePolicy",
    plural = "governancepolicies",
    shortname = "gp",
    category = "policy",
    namespaced,
    status = "PolicyStatus",
    derive = "PartialEq",
    doc = "Judges named signals of a target by a Rego rule of the tenant's own, and acts (or only reports findings) while the rule says that it is breached.",
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.targetRef.name"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Observed", type_ = "string", json_path = ".status.observed"),
    printcolumn(name = "Rule", type_ = "string", json_path = ".spec.rule.entrypoint"),
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
pub struct GovernancePolicySpec {
    /// What every policy has.
    #[serde(flatten)]
    pub core: PolicyCore,
    /// What is measured; the rule sees each by its name.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub signals: Vec<NamedSignal>,
    /// For how long a breach must last, and how long each step of recovery must be ok.
    pub thresholds: Durations,
    /// The Rego that judges.
    pub rule: Rule,
    /// What to do while the policy is Active; absent: findings only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 8))]
    pub actions: Option<Vec<Action>>,
}

fn spec_rules() -> Value {
    json!([schema::rule_at(
        ".signal.query",
        "!has(self.signal) || !has(self.signal.query)",
        "queries of a GovernancePolicy stand in spec.signals",
    )])
}

/// One named signal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = signal_rules()))]
pub struct NamedSignal {
    /// Its name in the rule's input.
    #[schemars(schema_with = "schema::signal_name")]
    pub name: String,
    /// PromQL; it must answer with one series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::query")]
    pub query: Option<String>,
    /// A latency quantile of the signal template in place of a query, above 0 and below 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantile")]
    pub quantile: Option<f64>,
    /// Unit of the query's answers (s, ms, ratio, %, By, 1, …); absent: told by the metric's suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::unit")]
    pub unit: Option<String>,
    /// Threshold that the rule sees in base units, such as `800ms`, `5%` or `1000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::threshold")]
    pub threshold: Option<String>,
    /// True lets the rule say "not breached" while this signal has no reading.
    #[serde(default)]
    pub optional: bool,
}

fn quantile(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "number",
        "x-kubernetes-validations": [schema::rule("self > 0.0 && self < 1.0", "expected a quantile above 0 and below 1")],
    })
}

fn signal_rules() -> Value {
    json!([
        schema::rule("has(self.query) != has(self.quantile)", "expected query or quantile, and not both"),
        schema::rule_at(
            ".unit",
            "!has(self.unit) || has(self.query)",
            "unit belongs to query; a template knows its own"
        ),
    ])
}

/// The clocks of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Durations {
    /// How long a breach must last before anything is done.
    #[schemars(schema_with = "schema::duration")]
    pub duration: String,
    /// How long each step of recovery must be ok; absent: as long as duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub recovery: Option<String>,
}

/// A Rego rule of the tenant's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// Rego v1 source. It sees its own module and the shipped library.
    #[schemars(length(min = 1, max = 65_536))]
    pub module: String,
    /// The rule that answers, such as `data.lab.checkout.verdict`.
    #[schemars(schema_with = "schema::entrypoint")]
    pub entrypoint: String,
}

impl GovernancePolicy {
    /// The policy as written, for `decide::validate`. `changed_at` is when its spec was last changed
    /// ([`super::any_policy::changed_at`]).
    pub fn draft(&self, changed_at: DateTime<Utc>) -> Draft {
        let spec = &self.spec;
        let signals = spec.signals.iter().enumerate().map(|(index, signal)| DraftSignal {
            path: format!("spec.signals[{index}]"),
            name: signal.name.clone(),
            quantile: signal.quantile,
            query: signal.query.clone(),
            unit: signal.unit.clone(),
            threshold: signal.threshold.clone(),
            optional: signal.optional,
        });
        let identity = Identity {
            key: PolicyKey {
                kind: PolicyKind::GovernancePolicy,
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
            rule: Some(OwnRule { module: spec.rule.module.clone(), entrypoint: spec.rule.entrypoint.clone() }),
            ..spec.core.draft(identity, spec.actions.as_deref().unwrap_or_default())
        }
    }
}
