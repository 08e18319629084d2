//! From a draft to a policy: the one place that refuses what a person wrote, with the path of the field.
//!
//! The custom resources' schemas and CEL rules refuse the same at admission; this is what answers for files, for
//! clusters with older schemas, and for what a schema cannot know (the configuration, the tenant). It never stops
//! at the first problem, and knows nothing of Rego: [`Entry::compile`](super::entry::Entry::compile) does.

mod actions;
mod signals;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::model::policy::{Action, ActionKind, Draft, DraftException, Exception, Policy, PolicyKind, RuleRef};
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::model::time;

/// The mode that services fall back to without any configuration.
pub const CACHE_ONLY: &str = "cache-only";
/// The mode of a service that nobody holds.
pub const NORMAL: &str = "normal";

const INTERVAL: &str = "10s";
const WINDOW: &str = "1m";
const STALE_AFTER: &str = "1m";
const MIN_REQUESTS: u64 = 10;

/// What validation needs to know of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Modes that services know, beside `cache-only` and `normal`.
    pub modes: BTreeSet<String>,
    /// Names of sinks for `notify`.
    pub sinks: BTreeSet<String>,
    /// Names of backends for signals.
    pub backends: BTreeSet<String>,
    /// Names of signal templates.
    pub templates: BTreeSet<String>,
    /// Kinds that may be targets, as (apiVersion, kind).
    pub target_kinds: BTreeSet<(String, String)>,
}

/// Why a draft is no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// For the condition `Accepted`: that of the first problem that has one of its own, else `InvalidPolicy`.
    pub reason: Reason,
    /// Everything that is wrong, never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

/// Collects problems while a draft is read.
#[derive(Default)]
struct Findings {
    found: Vec<(Reason, Problem)>,
}

impl Findings {
    fn add(&mut self, problem: Problem) {
        self.add_as(Reason::InvalidPolicy, problem);
    }

    fn add_as(&mut self, reason: Reason, problem: Problem) {
        self.found.push((reason, problem));
    }

    fn duration(&mut self, path: &str, text: &str) -> Option<Duration> {
        time::parse_duration(text).map_err(|error| self.add(Problem::expected(path, error, time::EXPECTED))).ok()
    }

    fn name(&mut self, path: &str, text: &str) {
        if text.trim().is_empty() {
            self.add(Problem::expected(path, "is empty", "a name"));
        }
    }

    /// A name that the configuration must list.
    fn listed(&mut self, reason: Reason, path: &str, name: &str, listed: &BTreeSet<String>) {
        if !listed.contains(name) {
            let found = format!("`{name}` is not in the configuration");
            self.add_as(reason, Problem::expected(path, found, one_of(listed.iter().map(String::as_str))));
        }
    }

    fn into_invalid(self) -> Option<Invalid> {
        let reason = self.found.iter().map(|(reason, _)| *reason);
        let reason =
            reason.clone().find(|reason| *reason != Reason::InvalidPolicy).or_else(|| reason.clone().next())?;
        Some(Invalid { reason, problems: self.found.into_iter().map(|(_, problem)| problem).collect() })
    }
}

fn one_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "a name that the configuration lists (it lists none)".to_owned() } else { names.join(", ") }
}

/// Checks every field of `draft`. The problems' paths are those of the custom resource.
pub fn validate(draft: &Draft, surroundings: &Surroundings, tenant: &Tenant) -> Result<Policy, Invalid> {
    let mut findings = Findings::default();
    check_target(draft, surroundings, &mut findings);
    let duration = findings.duration("spec.thresholds.duration", &draft.duration);
    let recovery = match &draft.recovery {
        Some(text) => findings.duration("spec.thresholds.recovery", text),
        None => duration,
    };
    let interval = check_interval(draft.interval.as_deref().unwrap_or(INTERVAL), &mut findings);
    let window = findings.duration("spec.window", draft.window.as_deref().unwrap_or(WINDOW));
    let stale_after = findings.duration("spec.staleAfter", draft.stale_after.as_deref().unwrap_or(STALE_AFTER));
    let signals = signals::check(draft, surroundings, &mut findings);
    if draft.pod_selector.as_ref().is_some_and(BTreeMap::is_empty) {
        let path = "spec.workload.podSelector.matchLabels";
        findings.add(Problem::expected(path, "selects every Pod of the namespace", "at least one label"));
    }
    let exceptions = check_exceptions(&draft.exceptions, &mut findings);
    let actions = check_actions(draft, surroundings, tenant, &mut findings);
    let rule = check_rule(draft, &mut findings);
    if let Some(invalid) = findings.into_invalid() {
        return Err(invalid);
    }
    // Each of these is there unless it left a finding.
    let checked = (interval, window, stale_after, duration, recovery, rule);
    let (Some(interval), Some(window), Some(stale_after), Some(duration), Some(recovery), Some(rule)) = checked else {
        let problem = Problem::at("spec", "could not be read");
        return Err(Invalid { reason: Reason::InvalidPolicy, problems: vec![problem] });
    };
    Ok(Policy {
        key: draft.key.clone(),
        uid: draft.uid.clone(),
        generation: draft.generation,
        changed_at: draft.changed_at,
        origin: draft.origin,
        target_ref: draft.target_ref.clone(),
        suspend: draft.suspend,
        enforcement: draft.enforcement,
        interval,
        window,
        stale_after,
        on_no_data: draft.on_no_data,
        min_requests: draft.min_requests.unwrap_or(MIN_REQUESTS),
        duration,
        recovery,
        signals,
        signal_template: draft.signal_template.clone(),
        backend: draft.backend.clone(),
        pod_selector: draft.pod_selector.clone(),
        exceptions,
        actions,
        rule,
    })
}

/// Checks actions that a rule asks for in place of the written ones: `[{"type": …, "config": {…}}]`, the same
/// checks with `at` as the path.
pub(crate) fn replacement(
    at: &str,
    written: &serde_json::Value,
    surroundings: &Surroundings,
    tenant: &Tenant,
) -> Result<Vec<Action>, Invalid> {
    let mut findings = Findings::default();
    let drafts = actions::drafts_of(at, written, &mut findings);
    let actions = actions::check(at, &drafts, surroundings, tenant, &mut findings);
    findings.into_invalid().map_or(Ok(actions), Err)
}

fn check_interval(text: &str, findings: &mut Findings) -> Option<Duration> {
    let interval = findings.duration("spec.interval", text)?;
    if interval < time::SHORTEST_INTERVAL {
        findings.add(Problem::expected("spec.interval", format!("`{text}` is too short"), time::EXPECTED_INTERVAL));
        return None;
    }
    Some(interval)
}

fn check_target(draft: &Draft, surroundings: &Surroundings, findings: &mut Findings) {
    let target = &draft.target_ref;
    findings.name("spec.targetRef.apiVersion", &target.api_version);
    findings.name("spec.targetRef.kind", &target.kind);
    findings.name("spec.targetRef.name", &target.name);
    let kind = (target.api_version.clone(), target.kind.clone());
    if !surroundings.target_kinds.contains(&kind) {
        let listed: Vec<String> =
            surroundings.target_kinds.iter().map(|(version, kind)| format!("{version} {kind}")).collect();
        let found = format!("`{} {}` is not a target kind of the configuration", target.api_version, target.kind);
        let problem = Problem::expected("spec.targetRef", found, one_of(listed.iter().map(String::as_str)));
        findings.add_as(Reason::TargetKindNotListed, problem);
    }
}

fn check_actions(draft: &Draft, surroundings: &Surroundings, tenant: &Tenant, findings: &mut Findings) -> Vec<Action> {
    // A GovernancePolicy without actions gives findings only; a latency budget without any is a mistake.
    if draft.actions.is_empty() && draft.key.kind == PolicyKind::LatencyBudgetPolicy {
        let kinds = one_of(ActionKind::ALL.iter().map(|kind| kind.as_str()));
        findings.add(Problem::expected("spec.actions", "is empty", format!("at least one of {kinds}")));
    }
    actions::check("spec.actions", &draft.actions, surroundings, tenant, findings)
}

fn check_rule(draft: &Draft, findings: &mut Findings) -> Option<RuleRef> {
    match (draft.key.kind, &draft.rule) {
        (PolicyKind::LatencyBudgetPolicy, None) => Some(RuleRef::LatencyBudget),
        (PolicyKind::LatencyBudgetPolicy, Some(_)) => {
            findings.add(Problem::expected("spec.rule", "is not a field of LatencyBudgetPolicy", "no rule of its own"));
            None
        }
        (PolicyKind::GovernancePolicy, Some(own)) => Some(RuleRef::Own(own.clone())),
        (PolicyKind::GovernancePolicy, None) => {
            findings.add(Problem::expected("spec.rule", "is missing", "a module and its entrypoint"));
            None
        }
    }
}

fn check_exceptions(drafts: &[DraftException], findings: &mut Findings) -> Vec<Exception> {
    let mut checked = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let at = format!("spec.exceptions[{index}]");
        if draft.reason.trim().is_empty() {
            findings.add(Problem::expected(format!("{at}.reason"), "is empty", "why this is left out"));
        }
        let expires = instant(&format!("{at}.expires"), &draft.expires, findings);
        let span = match (&draft.from, &draft.until) {
            (None, None) => None,
            (Some(from), Some(until)) => {
                let from = instant(&format!("{at}.from"), from, findings);
                let until_at = instant(&format!("{at}.until"), until, findings);
                if let (Some(from), Some(until_at)) = (from, until_at)
                    && until_at <= from
                {
                    findings.add(Problem::expected(
                        format!("{at}.until"),
                        format!("`{until}` is not after `from`"),
                        "a later time",
                    ));
                }
                from.zip(until_at)
            }
            (from, _) => {
                let missing = if from.is_some() { "until" } else { "from" };
                findings.add(Problem::expected(format!("{at}.{missing}"), "is missing", "a time span has both ends"));
                None
            }
        };
        let has_span = draft.from.is_some() || draft.until.is_some();
        if draft.pods.is_empty() != has_span {
            let found = if has_span { "names both Pods and a time span" } else { "excepts nothing" };
            findings.add(Problem::expected(&at, found, "`pods`, or `from` and `until`"));
        }
        if let Some(expires) = expires {
            checked.push(Exception { pods: draft.pods.clone(), span, reason: draft.reason.clone(), expires });
        }
    }
    checked
}

fn instant(path: &str, text: &str, findings: &mut Findings) -> Option<DateTime<Utc>> {
    let parsed = DateTime::parse_from_rfc3339(text).ok();
    if parsed.is_none() {
        let found = format!("`{text}` is no time");
        findings.add(Problem::expected(path, found, "RFC 3339, such as `2026-12-01T08:00:00Z`"));
    }
    parsed.map(|at| at.with_timezone(&Utc))
}

#[cfg(test)]
mod tests;
