//! Who owns policies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policy::{ActionKind, Enforcement};
use super::quantity::Percent;

/// The class of a tenant; core effects are never displaced by lab ones, compliance never acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Core trading.
    Core,
    /// The innovation lab, and whoever no Tenant matches.
    Lab,
    /// Audit: findings only.
    Compliance,
}

impl Class {
    /// As written in a Tenant.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Lab => "lab",
            Self::Compliance => "compliance",
        }
    }
}

/// A tenant as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Name of the Tenant object; `default` is built in.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// Higher wins within a class.
    pub priority: i32,
    /// Which namespaces are its own.
    pub namespaces: NamespaceSelector,
    /// What its policies may ask for; none: every action.
    pub allowed_actions: Option<Vec<ActionKind>>,
    /// Overrides the policies' own, if milder (enforce > warn > dryRun).
    pub enforcement: Enforcement,
    /// Its own limits, at most the engine's.
    pub budgets: TenantBudgets,
    /// Signal template for policies that name none.
    pub signal_template: Option<String>,
}

impl Tenant {
    /// The tenant of namespaces that no Tenant matches: lab, lowest priority.
    pub fn built_in() -> Self {
        Self {
            name: "default".to_owned(),
            class: Class::Lab,
            priority: i32::MIN,
            namespaces: NamespaceSelector::default(),
            allowed_actions: None,
            enforcement: Enforcement::Enforce,
            budgets: TenantBudgets::default(),
            signal_template: None,
        }
    }
}

/// Namespaces by label. An absent selector matches none, an empty one all (as in Kubernetes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSelector {
    /// Every label must be there with this value.
    pub match_labels: BTreeMap<String, String>,
    /// True where the object holds a selector at all.
    pub present: bool,
}

impl NamespaceSelector {
    /// Whether a namespace with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.present && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Limits of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantBudgets {
    /// At most this many new effects a minute.
    pub effects_per_minute: Option<u32>,
    /// At most this share of a workload's Pods isolated.
    pub max_isolated_percent: Option<Percent>,
}
