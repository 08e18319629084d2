//! PolicySource: where a tenant's policies come from, which revision of them is in force, and what was refused.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::conditions::Condition;
use super::schema;

/// How many past revisions of a part status remembers.
pub const HISTORY: usize = 10;

/// The spec of a PolicySource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "policy.trade.io",
    version = "v1alpha2",
    kind = "PolicySource",
    plural = "policysources",
    shortname = "psrc",
    category = "policy",
    status = "PolicySourceStatus",
    derive = "PartialEq",
    doc = "Where a tenant's policies come from: ConfigMaps that a team edits, or a branch of a Git repository. Says which revision is in force and why a newer one is not.",
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Policies", type_ = "integer", json_path = ".status.policies"),
    printcolumn(name = "Unprocessed", type_ = "integer", json_path = ".status.unprocessed"),
    printcolumn(name = "Active", type_ = "string", json_path = ".status.active.revision"),
    printcolumn(name = "Rejected", type_ = "string", json_path = ".status.rejected.revision"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Why", type_ = "string", json_path = ".status.rejected.message", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct PolicySourceSpec {
    /// The Tenant that owns what comes from here.
    #[schemars(schema_with = "schema::name")]
    pub tenant: String,
    /// Policies in ConfigMaps of the tenant's namespaces. Each ConfigMap is a snapshot of its own and defines policies for
    /// its own namespace only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// Policies in a branch of a Git repository. A commit is a snapshot as a whole; each policy names its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// A revision that a person takes though it does not descend from the one in force, or removes most of its policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Accept>,
    /// Revisions that a person holds in place of the newest ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub pins: Vec<Pin>,
}

/// Which ConfigMaps belong to a source: those with the label `policy.trade.io/source` that names it, in namespaces of its
/// tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Labels that they must carry beside `policy.trade.io/source`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::any_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// A branch of a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// Where it is: `https://…`, or `http://…` and `file://…` on the engine's own machine; without a user or password in it.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The branch.
    #[schemars(length(min = 1, max = 255))]
    pub branch: String,
    /// The folder that holds the policies; absent: all of the repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub path: String,
    /// Name of credentials in the engine's configuration (`gitCredentials`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub credentials: Option<String>,
    /// How often it is looked at.
    #[serde(default = "git_interval")]
    #[schemars(schema_with = "schema::duration")]
    pub interval: String,
    /// Takes a head that does not descend from the commit in force, as after a force-push, without asking.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_rewrite: bool,
}

fn git_interval() -> String {
    "30s".to_owned()
}

/// What a person takes upon themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accept {
    /// The revision, in full.
    #[schemars(length(min = 1, max = 128))]
    pub revision: String,
    /// Why, for whoever reads it later.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
}

/// A revision held by a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The part of the source: `namespace/name` of a ConfigMap; `git` for a repository.
    #[schemars(length(max = 512))]
    pub part: String,
    /// The revision to hold; one that the history of the part lists.
    #[schemars(length(min = 1, max = 128))]
    pub revision: String,
    /// Why, for whoever reads it later.
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    /// When it ends and the newest revision comes into force; absent: when somebody removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub until: Option<DateTime<Utc>>,
}

/// The status of a PolicySource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySourceStatus {
    /// The metadata.generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many policies are in force from here.
    #[serde(default)]
    pub policies: u32,
    /// How many policies are not in force as their newest text has them.
    #[serde(default)]
    pub unprocessed: u32,
    /// The revision that came into force last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Active>,
    /// The newest revision that was refused and still stands there to be put right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// Each part by itself, at most 64, those with something wrong first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartStatus>,
    /// Accepted and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// One ConfigMap, or the repository, and what is in force of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartStatus {
    /// `namespace/name` of a ConfigMap, or `git`.
    pub part: String,
    /// What is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<Active>,
    /// What was refused, while nothing newer has come into force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// Policies that another source or hand holds under the same name: `kind namespace/name: holder`, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<String>,
    /// Revisions that were in force and can be rolled back to, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<String>,
}

/// A revision in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Active {
    /// What it is called: the first digits of the digest of its content, or the commit.
    pub revision: String,
    /// When it came into force.
    #[schemars(schema_with = "schema::time")]
    pub since: DateTime<Utc>,
    /// How many policies it holds.
    pub policies: u32,
}

/// A revision that was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rejected {
    /// What it is called.
    pub revision: String,
    /// When it was refused.
    #[schemars(schema_with = "schema::time")]
    pub at: DateTime<Utc>,
    /// Why, as one word of a closed list.
    pub reason: String,
    /// Where, with file, line and column, and what is expected.
    pub message: String,
    /// How many policies it would have brought, as far as that can be told.
    #[serde(default)]
    pub policies: u32,
}

fn spec_rules() -> Value {
    json!([schema::rule("has(self.configMap) != has(self.git)", "expected one source: configMap or git")])
}
