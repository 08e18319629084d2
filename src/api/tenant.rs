//! Tenant: who owns policies, with what standing and within what limits.

use std::collections::BTreeMap;

use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::schema;
use crate::model::policy::{ActionKind, Enforcement};
use crate::model::quantity::Percent;
use crate::model::tenant::{self as model, Class};

/// The spec of a Tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "policy.trade.io",
    version = "v1alpha2",
    kind = "Tenant",
    plural = "tenants",
    shortname = "tn",
    category = "policy",
    status = "TenantStatus",
    derive = "PartialEq",
    doc = "Owns the policies of the namespaces that it selects: their class, priority and limits.",
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.class"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.priority"),
    printcolumn(name = "Enforcement", type_ = "string", json_path = ".spec.enforcementAction"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TenantSpec {
    /// core goes before lab; compliance never acts, its policies give findings.
    #[schemars(schema_with = "schema::class")]
    pub class: Class,
    /// Within a class the higher priority wins.
    #[serde(default)]
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: i32,
    /// The namespaces whose policies belong to this tenant. Absent selects none, empty selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<NamespaceSelector>,
    /// The actions that its policies may ask for; absent: every action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::action_kinds")]
    pub allowed_actions: Option<Vec<ActionKind>>,
    /// Makes its policies milder than they say themselves: enforce changes nothing, warn only notifies, dryRun only
    /// records.
    #[serde(default)]
    #[schemars(schema_with = "schema::enforcement")]
    pub enforcement_action: Enforcement,
    /// Its limits, below those of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<Budgets>,
    /// Signal template for its policies that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub signal_template: Option<String>,
}

/// Namespaces by label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Every label must be there with this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::any_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// Limits of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budgets {
    /// At most this many new effects a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 10_000))]
    pub effects_per_minute: Option<u32>,
    /// At most this share of a workload's Pods isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_isolated_percent: Option<i32>,
}

/// The status of a Tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// The metadata.generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl Tenant {
    /// The tenant as decisions see it.
    pub fn to_model(&self) -> model::Tenant {
        let spec = &self.spec;
        let budgets = spec.budgets.clone().unwrap_or_default();
        model::Tenant {
            name: self.name_any(),
            class: spec.class,
            priority: spec.priority,
            namespaces: model::NamespaceSelector {
                match_labels: spec.namespace_selector.clone().unwrap_or_default().match_labels,
                present: spec.namespace_selector.is_some(),
            },
            allowed_actions: spec.allowed_actions.clone(),
            enforcement: spec.enforcement_action,
            budgets: model::TenantBudgets {
                effects_per_minute: budgets.effects_per_minute,
                // Out of range cannot be stored; if it is nevertheless, the limit is the tightest, not none.
                max_isolated_percent: budgets
                    .max_isolated_percent
                    .and_then(|percent| u8::try_from(percent).ok().and_then(Percent::new).or(Percent::new(0))),
            },
            signal_template: spec.signal_template.clone(),
        }
    }
}
