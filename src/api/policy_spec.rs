//! What both policy kinds share in their spec, and how it becomes a [`Draft`].
//!
//! Refuses to know what a value means: texts stay texts until `decide::validate` reads them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema;
use crate::model::policy::{self, Draft, DraftAction, DraftException, Enforcement, OnNoData, Origin, PolicyKey};

/// The object under governance, in the policy's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// Group and version of the target, such as `trade.io/v1`. The configuration lists the kinds that may be governed.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Kind of the target, such as `OrderService`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the target in the policy's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl From<&TargetRef> for policy::TargetRef {
    fn from(from: &TargetRef) -> Self {
        Self { api_version: from.api_version.clone(), kind: from.kind.clone(), name: from.name.clone() }
    }
}

impl From<&policy::TargetRef> for TargetRef {
    fn from(from: &policy::TargetRef) -> Self {
        Self { api_version: from.api_version.clone(), kind: from.kind.clone(), name: from.name.clone() }
    }
}

/// The fields that every policy has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyCore {
    /// The object that this policy governs.
    pub target_ref: TargetRef,
    /// True undoes every effect of this policy and stops judging it until it is false again.
    #[serde(default)]
    pub suspend: bool,
    /// enforce acts; dryRun computes and records what it would do; warn notifies only.
    #[serde(default)]
    #[schemars(schema_with = "schema::enforcement")]
    pub enforcement_action: Enforcement,
    /// How often the policy is judged; at least a second.
    #[serde(default = "ten_seconds")]
    #[schemars(schema_with = "schema::interval")]
    pub interval: String,
    /// The time span that one reading covers.
    #[serde(default = "one_minute")]
    #[schemars(schema_with = "schema::duration")]
    pub window: String,
    /// Samples older than this are no reading; after a longer gap without readings the policy is Blind.
    #[serde(default = "one_minute")]
    #[schemars(schema_with = "schema::duration")]
    pub stale_after: String,
    /// What the clock does when a working backend has no data: hold stands still, breach runs as if breached, recover
    /// as if ok. The verdict stays unknown. A failing backend always holds.
    #[serde(default)]
    #[schemars(schema_with = "schema::on_no_data")]
    pub on_no_data: OnNoData,
    /// A reading that rests on fewer requests is none. Not checked where no count is to be had.
    #[serde(default = "ten")]
    #[schemars(range(max = 1_000_000_000))]
    pub min_requests: u32,
    /// Where the readings come from; absent: the tenant's template, else the configuration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalSelection>,
    /// How the target's Pods are found, where the target does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadSelection>,
    /// Pods or time spans that are left out, each with reason and expiry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub exceptions: Vec<Exception>,
}

fn ten_seconds() -> String {
    "10s".to_owned()
}

fn one_minute() -> String {
    "1m".to_owned()
}

fn ten() -> u32 {
    10
}

/// Where readings come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = signal_rules()))]
pub struct SignalSelection {
    /// Name of a signal template, such as `istio`, `otel` or `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub template: Option<String>,
    /// PromQL of the policy's own in place of a template; it must answer with one series.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::query")]
    pub query: Option<String>,
    /// Unit of the query's answers (s, ms, …); absent: told by the metric's suffix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time_unit")]
    pub unit: Option<String>,
    /// Name of a backend of the configuration; absent: its default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub backend: Option<String>,
}

fn signal_rules() -> Value {
    json!([
        schema::rule("!(has(self.template) && has(self.query))", "expected template or query, not both"),
        schema::rule_at(
            ".unit",
            "!has(self.unit) || has(self.query)",
            "unit belongs to query; a template knows its own"
        ),
    ])
}

/// How the target's Pods are found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSelection {
    /// Selects the Pods in the policy's namespace.
    pub pod_selector: PodSelector,
}

/// Pods by label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelector {
    /// Every label must be there with this value.
    #[schemars(schema_with = "schema::match_labels")]
    pub match_labels: BTreeMap<String, String>,
}

/// Something left out, with reason and expiry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = exception_rules()))]
pub struct Exception {
    /// Pods that are never held responsible, and so never isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_names")]
    pub pods: Option<Vec<String>>,
    /// Start of a time span in which the policy does not move (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub from: Option<String>,
    /// End of that time span (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub until: Option<String>,
    /// Why, for the people who read it later.
    #[schemars(length(min = 1, max = 512))]
    pub reason: String,
    /// When the exception itself ends (RFC 3339).
    #[schemars(schema_with = "schema::time")]
    pub expires: String,
}

fn exception_rules() -> Value {
    json!([
        schema::rule(
            "has(self.pods) != (has(self.from) || has(self.until))",
            "expected pods, or a time span from and until"
        ),
        schema::rule("has(self.from) == has(self.until)", "expected from and until together"),
        schema::rule_at(
            ".until",
            "!has(self.from) || !has(self.until) || self.from < self.until",
            "expected a time after from",
        ),
    ])
}

/// What to do while the policy is Active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = action_rules()))]
pub struct Action {
    /// circuit-breaker: isolation, mode and, where there is a route, weights. isolate-pods: isolation of abnormal
    /// Pods. mode: the mode of the target. route-weight: weights of a VirtualService route. notify: an event.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::action_kind")]
    pub kind: String,
    /// What the action needs to know; which fields depends on its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ActionConfig>,
}

/// The settings of an action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionConfig {
    /// circuit-breaker: how long it stays open at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub timeout: Option<String>,
    /// circuit-breaker: the mode while open, and the subset, else host, that the traffic goes to. `cache-only` or a mode
    /// of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub fallback: Option<String>,
    /// mode: the mode to set. `cache-only` or a mode of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub mode: Option<String>,
    /// circuit-breaker, isolate-pods: at most this share of the workload's Pods is isolated, rounded down; default 34.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub max_isolated_percent: Option<i32>,
    /// circuit-breaker, isolate-pods: at least this many Pods stay ready and in service; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub min_healthy: Option<i32>,
    /// circuit-breaker: how recovery begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open: Option<HalfOpen>,
    /// circuit-breaker, route-weight: name of the VirtualService in the policy's namespace; absent: found from the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub virtual_service: Option<String>,
    /// circuit-breaker, route-weight: name of the http route; absent: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub route: Option<String>,
    /// route-weight: subset, else host, of the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub destination: Option<String>,
    /// route-weight: share of the route's total that goes to the destination, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub weight: Option<i32>,
    /// notify: name of a sink of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::name")]
    pub sink: Option<String>,
}

/// How recovery begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HalfOpen {
    /// Share of the recorded weight that returns first as a probe, in percent; default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub initial_weight_percent: Option<i32>,
}

/// Which fields of `config` belong to which actions.
const FIELDS: [(&str, &[&str]); 11] = [
    ("timeout", &["circuit-breaker"]),
    ("fallback", &["circuit-breaker"]),
    ("mode", &["mode"]),
    ("maxIsolatedPercent", &["circuit-breaker", "isolate-pods"]),
    ("minHealthy", &["circuit-breaker", "isolate-pods"]),
    ("halfOpen", &["circuit-breaker"]),
    ("virtualService", &["circuit-breaker", "route-weight"]),
    ("route", &["circuit-breaker", "route-weight"]),
    ("destination", &["route-weight"]),
    ("weight", &["route-weight"]),
    ("sink", &["notify"]),
];

/// Which fields of `config` an action cannot do without.
const NEEDED: [(&str, &[&str]); 4] = [
    ("circuit-breaker", &["timeout", "fallback"]),
    ("mode", &["mode"]),
    ("route-weight", &["destination", "weight"]),
    ("notify", &["sink"]),
];

fn action_rules() -> Value {
    let needed = NEEDED.iter().flat_map(|(kind, fields)| {
        fields.iter().map(move |field| {
            schema::rule_at(
                &format!(".config.{field}"),
                &format!("self.type != '{kind}' || (has(self.config) && has(self.config.{field}))"),
                &format!("{kind} needs config.{field}"),
            )
        })
    });
    let fitting = FIELDS.iter().map(|(field, kinds)| {
        let is_kind = kinds.iter().map(|kind| format!("self.type == '{kind}'")).collect::<Vec<_>>().join(" || ");
        schema::rule_at(
            &format!(".config.{field}"),
            &format!("{is_kind} || !has(self.config) || !has(self.config.{field})"),
            &format!("belongs to {} only", kinds.join(" and ")),
        )
    });
    needed.chain(fitting).collect()
}

impl Action {
    fn draft(&self) -> DraftAction {
        let config = self.config.clone().unwrap_or_default();
        DraftAction {
            kind: self.kind.clone(),
            timeout: config.timeout,
            fallback: config.fallback,
            mode: config.mode,
            max_isolated_percent: config.max_isolated_percent.map(i64::from),
            min_healthy: config.min_healthy.map(i64::from),
            virtual_service: config.virtual_service,
            route: config.route,
            destination: config.destination,
            weight: config.weight.map(i64::from),
            sink: config.sink,
            probe_percent: config.half_open.and_then(|half| half.initial_weight_percent).map(i64::from),
        }
    }
}

/// Who a draft is of, and when it was last changed.
pub(super) struct Identity {
    pub(super) key: PolicyKey,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) changed_at: DateTime<Utc>,
}

impl PolicyCore {
    /// A draft with everything that the kinds share; signals, clocks and rule are the kind's.
    pub(super) fn draft(&self, identity: Identity, actions: &[Action]) -> Draft {
        let signal = self.signal.clone().unwrap_or_default();
        Draft {
            key: identity.key,
            uid: identity.uid,
            generation: identity.generation,
            changed_at: identity.changed_at,
            origin: Origin::default(),
            target_ref: (&self.target_ref).into(),
            suspend: self.suspend,
            enforcement: self.enforcement_action,
            interval: Some(self.interval.clone()),
            window: Some(self.window.clone()),
            stale_after: Some(self.stale_after.clone()),
            on_no_data: self.on_no_data,
            min_requests: Some(u64::from(self.min_requests)),
            duration: String::new(),
            recovery: None,
            signals: Vec::new(),
            signal_template: signal.template,
            backend: signal.backend,
            pod_selector: self.workload.as_ref().map(|workload| workload.pod_selector.match_labels.clone()),
            exceptions: self.exceptions.iter().map(Exception::draft).collect(),
            actions: actions.iter().map(Action::draft).collect(),
            rule: None,
        }
    }
}

impl Exception {
    fn draft(&self) -> DraftException {
        DraftException {
            pods: self.pods.clone().unwrap_or_default(),
            from: self.from.clone(),
            until: self.until.clone(),
            reason: self.reason.clone(),
            expires: self.expires.clone(),
        }
    }
}
