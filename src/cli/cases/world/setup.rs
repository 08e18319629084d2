//! From a written case to the world at its beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeZone, Utc};
use serde_json::{Value, json};

use crate::api::{self, admission};
use crate::cli::policy_file;
use crate::decide::{self, Budgets, Entry, Plan, Surroundings};
use crate::model::effect::Records;
use crate::model::phase::State;
use crate::model::policy::IsolationLimits;
use crate::model::problem::Problem;
use crate::model::quantity::Percent;
use crate::model::tenant::Tenant;

use super::super::format::{BudgetsFile, Case, ConfigFile, PolicyFile};
use super::{Member, World};

/// Cases begin at a full hour, so that steps at multiples of the interval meet the rounds.
fn beginning() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).single().unwrap_or(DateTime::UNIX_EPOCH)
}

pub(super) fn world(case: &Case) -> Result<World, Vec<Problem>> {
    let start = beginning();
    let single = case.policy.iter().map(|policy| PolicyFile { policy: policy.clone(), tenant: None, changed_at: None });
    let policies: Vec<PolicyFile> = single.chain(case.policies.iter().cloned()).collect();
    if policies.is_empty() {
        return Err(vec![Problem::expected("policy", "is missing", "a policy, or `policies`")]);
    }
    let surroundings = Arc::new(surroundings(&case.config, &policies));
    let mut members = BTreeMap::new();
    for (index, file) in policies.iter().enumerate() {
        let tenant = match file.tenant.as_ref().or(case.tenant.as_ref()) {
            Some(written) => tenant(written)?,
            None => Tenant::built_in(),
        };
        let member = member(file, Arc::new(tenant), &surroundings, start)?;
        let name = member.entry.policy.key.name.clone();
        if members.insert(name.clone(), member).is_some() {
            return Err(vec![Problem::expected(
                format!("policies[{index}]"),
                format!("`{name}` is there twice"),
                "names that differ",
            )]);
        }
    }
    Ok(World {
        targets: targets(case, &members),
        members,
        surroundings,
        budgets: budgets(&case.config.budgets)?,
        records: Records::new(),
        contributors: BTreeMap::new(),
        plan: Plan::default(),
        start,
        now: start,
        is_down: false,
    })
}

fn member(
    file: &PolicyFile,
    tenant: Arc<Tenant>,
    surroundings: &Arc<Surroundings>,
    start: DateTime<Utc>,
) -> Result<Member, Vec<Problem>> {
    let changed_at = match &file.changed_at {
        None => None,
        Some(text) => Some(text.parse::<DateTime<Utc>>().map_err(|_| {
            vec![Problem::expected("policies[].changedAt", format!("`{text}` is no time"), "RFC 3339")]
        })?),
    };
    Ok(Member {
        entry: entry(&file.policy, &tenant, surroundings, changed_at, start)?,
        object: file.policy.clone(),
        tenant,
        changed_at,
        state: State::new(start),
        readings: None,
        pods: BTreeMap::new(),
        groups: BTreeMap::new(),
        due: start,
        round: None,
        moved: Vec::new(),
    })
}

/// The checks of the API server, then those of the engine.
pub(super) fn entry(
    object: &Value,
    tenant: &Arc<Tenant>,
    surroundings: &Arc<Surroundings>,
    changed_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Entry, Vec<Problem>> {
    let policy = policy_file::admitted(object.clone())?;
    let mut draft = policy.draft(now);
    draft.changed_at = changed_at.unwrap_or(draft.changed_at);
    decide::prepare(&draft, &policy.spec_json(), tenant, surroundings).map_err(|invalid| invalid.problems)
}

/// `{name: trading, class: core, priority: 10, …}`: a Tenant's spec with a name.
fn tenant(written: &Value) -> Result<Tenant, Vec<Problem>> {
    let mut spec = written.clone();
    let name = spec.as_object_mut().and_then(|fields| fields.remove("name"));
    let mut object = json!({
        "apiVersion": api::API_VERSION,
        "kind": "Tenant",
        "metadata": {"name": name.unwrap_or_else(|| "tenant".into())},
        "spec": spec,
    });
    admission::admit(&mut object)?;
    let tenant: api::Tenant =
        serde_json::from_value(object).map_err(|error| vec![Problem::at("tenant", error.to_string())])?;
    Ok(tenant.to_model())
}

fn surroundings(config: &ConfigFile, policies: &[PolicyFile]) -> Surroundings {
    let target_kinds: BTreeSet<(String, String)> = if let Some(listed) = &config.target_kinds {
        listed.iter().map(|kind| (kind.api_version.clone(), kind.kind.clone())).collect()
    } else {
        let text = |policy: &Value, field: &str| {
            let found = policy.pointer(&format!("/spec/targetRef/{field}")).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        policies.iter().map(|file| (text(&file.policy, "apiVersion"), text(&file.policy, "kind"))).collect()
    };
    let names = |listed: Option<&Vec<String>>, default: &[&str]| match listed {
        Some(listed) => listed.iter().cloned().collect(),
        None => default.iter().map(|name| (*name).to_owned()).collect(),
    };
    Surroundings {
        modes: config.modes.iter().cloned().collect(),
        sinks: config.sinks.iter().cloned().collect(),
        backends: names(config.backends.as_ref(), &["prometheus"]),
        templates: names(config.templates.as_ref(), &["istio", "otel", "http"]),
        target_kinds,
    }
}

fn budgets(written: &BudgetsFile) -> Result<Budgets, Vec<Problem>> {
    let default = Budgets::default();
    let percent = |field: &str, written: Option<u8>, default: Percent| match written.map(Percent::new) {
        None => Ok(default),
        Some(Some(percent)) => Ok(percent),
        Some(None) => {
            Err(vec![Problem::expected(format!("config.budgets.{field}"), "is out of range", "a number from 0 to 100")])
        }
    };
    Ok(Budgets {
        effects_per_minute: written.effects_per_minute.unwrap_or(default.effects_per_minute),
        lab_share: percent("labSharePercent", written.lab_share_percent, default.lab_share)?,
        workload: IsolationLimits {
            max_percent: percent("maxIsolatedPercent", written.max_isolated_percent, default.workload.max_percent)?,
            min_healthy: written.min_healthy.unwrap_or(default.workload.min_healthy),
        },
        namespace_percent: percent(
            "namespaceIsolatedPercent",
            written.namespace_isolated_percent,
            default.namespace_percent,
        )?,
        cluster_percent: percent("clusterIsolatedPercent", written.cluster_isolated_percent, default.cluster_percent)?,
        freeze: default.freeze,
    })
}

/// Every policy's target is there, if only empty. A target is written once for all, or by name.
fn targets(case: &Case, members: &BTreeMap<String, Member>) -> BTreeMap<String, Value> {
    let mut targets = case.targets.clone();
    for member in members.values() {
        let name = member.entry.policy.target_ref.name.clone();
        targets.entry(name).or_insert_with(|| case.target.clone().unwrap_or_else(|| json!({})));
    }
    for target in targets.values_mut() {
        pods_by_name(target);
    }
    targets
}

/// `pods: [a, b]` is short for `pods: {a: {}, b: {}}`, which patches can change.
pub(super) fn pods_by_name(target: &mut Value) {
    let Some(Value::Array(listed)) = target.get("pods") else { return };
    let by_name = listed.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), json!({})));
    let by_name = Value::Object(by_name.collect());
    json_patch::merge(target, &json!({"pods": by_name}));
}
