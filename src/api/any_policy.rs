//! Both policy kinds as one, for everything that does not care which it has.

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::Value;

use super::admission;
use super::marks;
use super::policy_spec::PolicyCore;
use super::policy_status::PolicyStatus;
use super::{GovernancePolicy, LatencyBudgetPolicy};
use crate::model::policy::{Draft, PolicyKey, PolicyKind};
use crate::model::problem::Problem;

/// A policy of any kind; cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyPolicy {
    /// Latency quantiles over a duration.
    LatencyBudget(Arc<LatencyBudgetPolicy>),
    /// Named signals and a rule of the tenant's own.
    Governance(Arc<GovernancePolicy>),
}

impl From<Arc<LatencyBudgetPolicy>> for AnyPolicy {
    fn from(policy: Arc<LatencyBudgetPolicy>) -> Self {
        Self::LatencyBudget(policy)
    }
}

impl From<Arc<GovernancePolicy>> for AnyPolicy {
    fn from(policy: Arc<GovernancePolicy>) -> Self {
        Self::Governance(policy)
    }
}

impl AnyPolicy {
    /// A policy from outside a cluster: checked as an API server checks it, defaults filled in.
    pub fn from_json(mut object: Value) -> Result<Self, Vec<Problem>> {
        admission::admit(&mut object)?;
        let unreadable = |error: serde_json::Error| vec![Problem::at("spec", error.to_string())];
        match object.get("kind").and_then(Value::as_str).and_then(PolicyKind::parse) {
            Some(PolicyKind::LatencyBudgetPolicy) => {
                serde_json::from_value(object).map(|policy| Self::LatencyBudget(Arc::new(policy))).map_err(unreadable)
            }
            Some(PolicyKind::GovernancePolicy) => {
                serde_json::from_value(object).map(|policy| Self::Governance(Arc::new(policy))).map_err(unreadable)
            }
            None => Err(vec![Problem::at("kind", "expected a policy: LatencyBudgetPolicy or GovernancePolicy")]),
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> PolicyKind {
        match self {
            Self::LatencyBudget(_) => PolicyKind::LatencyBudgetPolicy,
            Self::Governance(_) => PolicyKind::GovernancePolicy,
        }
    }

    /// Its metadata.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::LatencyBudget(policy) => &policy.metadata,
            Self::Governance(policy) => &policy.metadata,
        }
    }

    /// Kind, namespace and name.
    pub fn key(&self) -> PolicyKey {
        let metadata = self.metadata();
        PolicyKey {
            kind: self.kind(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    /// Its uid; empty for a policy from a file.
    pub fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    /// metadata.generation; 0 for a policy from a file.
    pub fn generation(&self) -> i64 {
        self.metadata().generation.unwrap_or_default()
    }

    /// Whether it is being deleted and waits for its finalizers.
    pub fn is_being_deleted(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// Whether our finalizer is on it.
    pub fn has_finalizer(&self) -> bool {
        match self {
            Self::LatencyBudget(policy) => policy.finalizers().iter().any(|name| name == marks::FINALIZER),
            Self::Governance(policy) => policy.finalizers().iter().any(|name| name == marks::FINALIZER),
        }
    }

    /// The fields that every policy has.
    pub fn core(&self) -> &PolicyCore {
        match self {
            Self::LatencyBudget(policy) => &policy.spec.core,
            Self::Governance(policy) => &policy.spec.core,
        }
    }

    /// Its status, empty if it has none yet.
    pub fn status(&self) -> PolicyStatus {
        match self {
            Self::LatencyBudget(policy) => policy.status.clone(),
            Self::Governance(policy) => policy.status.clone(),
        }
        .unwrap_or_default()
    }

    /// Its spec as JSON, as rules see it.
    pub fn spec_json(&self) -> Value {
        match self {
            Self::LatencyBudget(policy) => serde_json::to_value(&policy.spec),
            Self::Governance(policy) => serde_json::to_value(&policy.spec),
        }
        .expect("a spec is made of strings, numbers and maps with string keys")
    }

    /// The policy as written, for `decide::validate`; `now` bounds the time of its last change.
    pub fn draft(&self, now: DateTime<Utc>) -> Draft {
        let changed_at = changed_at(self.metadata(), now);
        match self {
            Self::LatencyBudget(policy) => policy.draft(changed_at),
            Self::Governance(policy) => policy.draft(changed_at),
        }
    }
}

/// When the spec of an object was last written by somebody else than us.
pub fn changed_at(metadata: &ObjectMeta, now: DateTime<Utc>) -> DateTime<Utc> {
    written_at(metadata, &["f:spec"], now)
}

/// When any of these top-level fields of an object was last written by somebody else than us: the newest time of its
/// managed fields that is not in the future, else its creation; the epoch for an object that never was in a cluster.
pub fn written_at(metadata: &ObjectMeta, fields: &[&str], now: DateTime<Utc>) -> DateTime<Utc> {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default().iter();
    let written = entries
        .filter(|entry| entry.manager.as_deref() != Some(marks::FIELD_MANAGER))
        .filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty())
        .filter(|entry| {
            entry.fields_v1.as_ref().is_some_and(|owned| fields.iter().any(|field| owned.0.get(*field).is_some()))
        })
        .filter_map(|entry| entry.time.as_ref().map(chrono_of))
        .filter(|time| *time <= now)
        .max();
    written.or_else(|| metadata.creation_timestamp.as_ref().map(chrono_of)).unwrap_or(DateTime::UNIX_EPOCH)
}

/// As Kubernetes writes times in status.
pub(crate) fn whole_seconds(time: DateTime<Utc>) -> DateTime<Utc> {
    time.trunc_subsecs(0)
}

/// Kubernetes types carry jiff; ours are chrono.
fn chrono_of(time: &Time) -> DateTime<Utc> {
    let nanos = u32::try_from(time.0.subsec_nanosecond()).unwrap_or_default();
    DateTime::from_timestamp(time.0.as_second(), nanos).unwrap_or(DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
