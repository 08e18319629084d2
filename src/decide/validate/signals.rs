//! The signals of a policy: where each comes from, its unit, and its threshold.

use std::collections::BTreeMap;

use crate::model::policy::{Draft, DraftSignal, PolicyKind, SignalSource, SignalSpec};
use crate::model::problem::Problem;
use crate::model::quantity::{BaseUnit, EXPECTED_UNITS, Threshold, Unit};
use crate::model::reading::SignalName;
use crate::model::reason::Reason;
use crate::model::time;

use super::super::own_query::check_query;
use super::{Findings, Surroundings};

pub(super) fn check(
    draft: &Draft,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> BTreeMap<SignalName, SignalSpec> {
    if let Some(template) = &draft.signal_template {
        findings.listed(Reason::InvalidPolicy, "spec.signal.template", template, &surroundings.templates);
    }
    if let Some(backend) = &draft.backend {
        findings.listed(Reason::InvalidPolicy, "spec.signal.backend", backend, &surroundings.backends);
    }
    if draft.signals.is_empty() {
        let (path, expected) = match draft.key.kind {
            PolicyKind::LatencyBudgetPolicy => ("spec.thresholds", "at least one of p50, p75, p90, p95, p99, p999"),
            PolicyKind::GovernancePolicy => ("spec.signals", "at least one signal"),
        };
        findings.add(Problem::expected(path, "names no signal", expected));
    }
    if draft.key.kind == PolicyKind::LatencyBudgetPolicy {
        check_own_query(draft, findings);
    }
    let mut checked = BTreeMap::new();
    for signal in &draft.signals {
        findings.name(&format!("{}.name", signal.path), &signal.name);
        let source = source_of(signal, findings);
        let latency = draft.key.kind == PolicyKind::LatencyBudgetPolicy;
        let threshold = threshold_of(signal, source.as_ref(), latency, findings);
        if checked.contains_key(&signal.name) {
            let found = format!("`{}` is named twice", signal.name);
            findings.add(Problem::expected(&signal.path, found, "one signal of each name"));
        }
        if let Some(source) = source {
            checked.insert(signal.name.clone(), SignalSpec { source, threshold, optional: signal.optional });
        }
    }
    checked
}

/// A latency budget names its query once, in `spec.signal`, and it stands for one threshold.
fn check_own_query(draft: &Draft, findings: &mut Findings) {
    let Some(signal) = draft.signals.first() else { return };
    if signal.query.is_some() && draft.signals.len() > 1 {
        let found = format!("is one value for {} quantiles", draft.signals.len());
        findings.add(Problem::expected("spec.signal.query", found, "exactly one quantile in spec.thresholds"));
    }
    if signal.query.is_some() && draft.signal_template.is_some() {
        findings.add(Problem::expected("spec.signal", "names a template and a query", "one of them"));
    }
    if signal.query.is_none() && signal.unit.is_some() {
        let found = "stands without a query; a template knows its own";
        findings.add(Problem::expected("spec.signal.unit", found, "a query, or no unit"));
    }
}

fn source_of(signal: &DraftSignal, findings: &mut Findings) -> Option<SignalSource> {
    let path = &signal.path;
    match (&signal.query, signal.quantile) {
        (Some(_), Some(_)) => {
            findings.add(Problem::expected(path, "has both a quantile and a query", "one of them"));
            None
        }
        (Some(query), None) => {
            let found = check_query(&query_path(path), query).map_err(|problem| findings.add(problem)).ok()?;
            unit_of(signal, found.unit, findings).map(|unit| SignalSource::Query { query: query.clone(), unit })
        }
        (None, Some(quantile)) if quantile > 0.0 && quantile < 1.0 => Some(SignalSource::Quantile(quantile)),
        (None, Some(quantile)) => {
            let found = format!("`{quantile}` is out of range");
            findings.add(Problem::expected(format!("{path}.quantile"), found, "a number above 0 and below 1"));
            None
        }
        (None, None) => {
            findings.add(Problem::expected(path, "does not say how it is measured", "`quantile` or `query`"));
            None
        }
    }
}

/// A latency budget's query stands once, beside its thresholds.
fn query_path(signal: &str) -> String {
    if signal.starts_with("spec.thresholds") { "spec.signal.query".to_owned() } else { format!("{signal}.query") }
}

fn unit_path(signal: &str) -> String {
    if signal.starts_with("spec.thresholds") { "spec.signal.unit".to_owned() } else { format!("{signal}.unit") }
}

fn unit_of(signal: &DraftSignal, told: Option<Unit>, findings: &mut Findings) -> Option<Unit> {
    let path = unit_path(&signal.path);
    let declared = signal.unit.as_ref();
    let unit = declared.map_or(told, |symbol| Unit::parse(symbol));
    let found = declared.map_or_else(
        || "is missing, and the query does not tell".to_owned(),
        |symbol| format!("`{symbol}` is no unit"),
    );
    if unit.is_none() {
        findings.add_as(Reason::UnknownUnit, Problem::expected(path, found, EXPECTED_UNITS));
    }
    unit
}

fn threshold_of(
    signal: &DraftSignal,
    source: Option<&SignalSource>,
    latency: bool,
    findings: &mut Findings,
) -> Option<Threshold> {
    let path = if signal.path.starts_with("spec.thresholds") {
        signal.path.clone()
    } else {
        format!("{}.threshold", signal.path)
    };
    let Some(written) = &signal.threshold else {
        if latency {
            findings.add(Problem::expected(path, "is missing", time::EXPECTED));
        }
        return None;
    };
    if latency {
        let threshold = Threshold::latency(written);
        let threshold =
            threshold.map_err(|error| findings.add(Problem::expected(&path, error, time::EXPECTED))).ok()?;
        if let Some(SignalSource::Query { unit, .. }) = source
            && unit.base != BaseUnit::Seconds
        {
            let found = format!("the query answers in {}, which is no time", unit.base);
            findings.add_as(Reason::UnknownUnit, Problem::expected(unit_path(&signal.path), found, "a unit of time"));
        }
        return Some(threshold);
    }
    let Some(mut threshold) = Threshold::parse(written) else {
        let found = format!("`{written}` is no threshold");
        findings.add(Problem::expected(path, found, "a number, a percentage (`5%`) or a Go duration (`800ms`)"));
        return None;
    };
    let unit = match source? {
        SignalSource::Quantile(_) => BaseUnit::Seconds,
        SignalSource::Query { unit, .. } => unit.base,
    };
    // A bare number is in the signal's base unit, but never a time: `800` could be meant in any unit.
    if threshold.unit == BaseUnit::Count && unit != BaseUnit::Seconds {
        threshold.unit = unit;
    }
    if threshold.unit != unit {
        let found = format!("`{written}` is in {}, the signal in {unit}", threshold.unit);
        findings.add_as(Reason::UnknownUnit, Problem::expected(path, found, "a threshold in the signal's unit"));
        return None;
    }
    Some(threshold)
}
