//! The custom resources of `policy.trade.io`: what people and the engine write into the cluster, and how it becomes
//! values of [`crate::model`].
//!
//! Owns the wire: field names, schemas, defaults, CEL rules, printer columns. A file per kind; a further version of a
//! kind is a file beside it. Refuses to know whether a policy makes sense in a cluster (that is `decide::validate`)
//! and how objects travel (`kube::Client` is not used here).
//!
//! Reading order: [`policy_spec`] (what both policy kinds share), [`latency_budget_policy`], [`governance_policy`],
//! [`any_policy`] (both as one), [`policy_status`], [`conditions`], [`tenant`], [`intervention`]; then [`crd`] (all
//! of them as definitions), [`admission`] (the same checks outside a server), [`documents`] (policies from files).

// clippy takes the type of one printer column for that of another.
#![allow(clippy::duplicated_attributes)]

pub mod admission;
pub mod any_policy;
pub mod conditions;
pub mod crd;
pub mod documents;
pub mod governance_policy;
pub mod intervention;
pub mod latency_budget_policy;
pub mod marks;
pub mod policy_source;
pub mod policy_spec;
pub mod policy_status;
mod schema;
pub mod tenant;

pub use any_policy::AnyPolicy;
pub use governance_policy::{GovernancePolicy, GovernancePolicySpec};
pub use intervention::{Intervention, InterventionSpec, InterventionStatus};
pub use latency_budget_policy::{LatencyBudgetPolicy, LatencyBudgetPolicySpec};
pub use policy_source::{PolicySource, PolicySourceSpec, PolicySourceStatus};
pub use policy_status::PolicyStatus;
pub use tenant::{Tenant, TenantSpec};

/// The API group of every kind.
pub const GROUP: &str = "policy.trade.io";

/// The version that is served and stored.
pub const VERSION: &str = "v1alpha2";

/// `policy.trade.io/v1alpha2`.
pub const API_VERSION: &str = "policy.trade.io/v1alpha2";
