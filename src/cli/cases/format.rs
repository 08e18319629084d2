//! How cases are written.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::readings::ReadingsFile;
use crate::model::reading::{GroupName, PodName};

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    /// A sentence.
    #[serde(rename = "name")]
    _name: String,
    /// Why the case is as it is, for readers.
    #[serde(default, rename = "note")]
    _note: Option<String>,
    /// The policy, as a custom resource.
    #[serde(default)]
    pub(super) policy: Option<Value>,
    /// Several policies, where one is not enough.
    #[serde(default)]
    pub(super) policies: Vec<PolicyFile>,
    /// The tenant of every policy that names none; absent: the built-in one.
    #[serde(default)]
    pub(super) tenant: Option<Value>,
    /// What the configuration says.
    #[serde(default)]
    pub(super) config: ConfigFile,
    /// What is known of the target, or of targets by name.
    #[serde(default)]
    pub(super) target: Option<Value>,
    /// Of targets by name, where policies have different ones.
    #[serde(default)]
    pub(super) targets: BTreeMap<String, Value>,
    /// What happens.
    #[serde(default)]
    pub(super) steps: Vec<Step>,
    /// Paths of the fields that are wrong: the policy is expected to be refused.
    #[serde(default)]
    pub(super) invalid: Option<Vec<String>>,
}

/// One of several policies.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PolicyFile {
    pub(super) policy: Value,
    #[serde(default)]
    pub(super) tenant: Option<Value>,
    /// When its spec was last written (RFC 3339).
    #[serde(default)]
    pub(super) changed_at: Option<String>,
}

/// What validation and planning know of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ConfigFile {
    pub(super) modes: Vec<String>,
    pub(super) sinks: Vec<String>,
    pub(super) backends: Option<Vec<String>>,
    pub(super) templates: Option<Vec<String>>,
    /// Absent: the kinds of the case's own policies.
    pub(super) target_kinds: Option<Vec<TargetKind>>,
    pub(super) budgets: BudgetsFile,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TargetKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct BudgetsFile {
    pub(super) effects_per_minute: Option<u32>,
    pub(super) lab_share_percent: Option<u8>,
    pub(super) max_isolated_percent: Option<u8>,
    pub(super) min_healthy: Option<usize>,
    pub(super) namespace_isolated_percent: Option<u8>,
    pub(super) cluster_isolated_percent: Option<u8>,
}

/// What is known of a target.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct TargetFile {
    /// The live object as rules see it.
    pub(super) object: Option<Value>,
    /// True where it does not exist.
    pub(super) gone: bool,
    pub(super) uid: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) workload: Option<WorkloadFile>,
    pub(super) pods: BTreeMap<PodName, PodFile>,
    pub(super) route: Option<OrReason<RouteFile>>,
    /// Routes of actions that name one, by the action's index.
    pub(super) action_routes: BTreeMap<String, OrReason<RouteFile>>,
}

/// A value, or the reason why there is none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OrReason<T> {
    Reason(String),
    Found(T),
}

/// The workload: its name, or the reason why there is none.
pub(super) type WorkloadFile = OrReason<WorkloadName>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WorkloadName {
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct PodFile {
    pub(super) not_ready: bool,
    pub(super) terminating: bool,
    /// Why it cannot be isolated.
    pub(super) not_isolable: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RouteFile {
    pub(super) virtual_service: String,
    #[serde(default)]
    pub(super) name: Option<String>,
    pub(super) destinations: Vec<DestinationFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DestinationFile {
    pub(super) host: String,
    #[serde(default)]
    pub(super) subset: Option<String>,
    #[serde(default)]
    pub(super) port: Option<u16>,
    #[serde(default)]
    pub(super) weight: Option<u32>,
    #[serde(default)]
    pub(super) pods: Vec<PodName>,
}

/// What happens at one time, and what is expected after the round there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Step {
    /// Since the case began: `0s`, `2m10s`.
    pub(super) at: String,
    /// Readings of the whole target from now on.
    pub(super) readings: Option<ReadingsFile>,
    /// Of single Pods from now on.
    pub(super) pods: Option<BTreeMap<PodName, ReadingsFile>>,
    /// Of groups from now on, such as are asked for.
    pub(super) groups: Option<BTreeMap<GroupName, ReadingsFile>>,
    /// Changes of the target (JSON merge patch).
    pub(super) target: Option<Value>,
    /// Changes of targets by name.
    pub(super) targets: BTreeMap<String, Value>,
    /// Changes of the policy (JSON merge patch).
    pub(super) edit: Option<Value>,
    /// The policy is deleted.
    pub(super) delete: bool,
    /// The engine is away from here to the next step.
    pub(super) down: bool,
    /// Slots (`isolation`, `mode`, `weights`) that somebody else keeps reverting.
    pub(super) contested: Vec<String>,
    /// `none`, `new` or `all`, from now on.
    pub(super) freeze: Option<String>,
    /// The same for single policies, by name.
    pub(super) of: BTreeMap<String, Moment>,
    /// What is expected of the only policy.
    pub(super) expect: Option<Expect>,
}

/// What happens to one of several policies.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Moment {
    pub(super) readings: Option<ReadingsFile>,
    pub(super) pods: Option<BTreeMap<PodName, ReadingsFile>>,
    pub(super) groups: Option<BTreeMap<GroupName, ReadingsFile>>,
    pub(super) edit: Option<Value>,
    pub(super) delete: bool,
    pub(super) expect: Option<Expect>,
}

/// What is expected; a field that is absent is not compared.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Expect {
    pub(super) phase: Option<String>,
    /// `Probe`, `Half`, `All` or `none`.
    pub(super) stage: Option<String>,
    /// `ok`, `breached`, `unknown` or `unknown NoData`.
    pub(super) verdict: Option<String>,
    /// The probe's, likewise; `none` where nothing has readings of its own.
    pub(super) probe: Option<String>,
    pub(super) severity: Option<String>,
    /// `above_threshold p99`, `pod_above_threshold p99 orders-a`.
    pub(super) reasons: Option<Vec<String>>,
    pub(super) suspects: Option<Vec<PodName>>,
    pub(super) returned: Option<Vec<PodName>>,
    /// Why the phase is left as it is, or `none`.
    pub(super) holds: Option<String>,
    /// Why the policy is blind, or `none`.
    pub(super) blind: Option<String>,
    /// Steps since the case's step before: their reasons.
    pub(super) transitions: Option<Vec<String>>,
    /// `isolation orders-a`, `mode cache-only`, `weights cache-only 100%`.
    pub(super) claims: Option<Vec<String>>,
    /// `isolation IsolationBudget`, or with the words after a colon.
    pub(super) held: Option<Vec<String>>,
    /// What stands after this round, by kind of slot; a slot that is absent here must hold nothing of the policy.
    pub(super) stands: Option<BTreeMap<String, Value>>,
    /// Kind of slot and name of the winner: `mode core-a`.
    pub(super) overridden: Option<String>,
    /// What the policy would have done: `mode cache-only`.
    pub(super) would_have: Option<Vec<String>>,
    /// Groups that are to be measured, with their Pods.
    pub(super) groups: Option<BTreeMap<GroupName, Vec<PodName>>>,
    /// Texts that the explanation holds.
    pub(super) explain: Option<Vec<String>>,
}
