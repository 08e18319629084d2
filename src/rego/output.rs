//! What a rule answered: from the engine's value to a verdict. The shape is that of docs/schemas/output.schema.json.

use std::cmp::Ordering;
use std::sync::Arc;

use regorus::Value;

use crate::model::reading::{NoReading, PodName};
use crate::model::reason::Reason;
use crate::model::verdict::{Outcome, RuleReason, Severity, Verdict};

use super::error::{Error, Result};
use super::input::{Input, json_of};

/// Makes a verdict of the entrypoint's value, which is not undefined.
pub(super) fn verdict(output: &Value, input: &Input<'_>) -> Result<Verdict> {
    let answer = Answer::read(output)?;
    let mut reasons = answer.reasons;
    reasons.sort_by(by_subject);
    let suspects = suspects(answer.pods, &reasons, input);
    let verdict = Verdict {
        outcome: Outcome::Breached,
        severity: answer.severity,
        reasons,
        suspects,
        actions: answer.actions,
        no_data: false,
    };
    // A breach stands whatever else is missing; "not breached" counts only when every signal was there to say so.
    if answer.breached {
        return Ok(verdict);
    }
    let silent = Verdict { severity: Severity::None, suspects: Vec::new(), actions: None, ..verdict };
    Ok(match gap(input) {
        None => Verdict { outcome: Outcome::Ok, ..silent },
        Some(Gap::NoReading(why)) => {
            Verdict { outcome: Outcome::Unknown(why.reason()), no_data: why.is_no_data(), ..silent }
        }
        Some(Gap::OtherUnit) => Verdict { outcome: Outcome::Unknown(Reason::UnknownUnit), ..silent },
    })
}

/// Why "not breached" cannot be believed.
enum Gap {
    NoReading(NoReading),
    OtherUnit,
}

/// The gap of the declared signals that weighs most: a failing backend before one that has no data, since the first
/// always holds; then by name.
fn gap(input: &Input<'_>) -> Option<Gap> {
    let mut no_data = None;
    let mut other_unit = false;
    for (name, signal) in input.signals.iter().filter(|(_, signal)| !signal.optional) {
        match input.readings.get(name).unwrap_or(&Err(NoReading::NotMeasured)) {
            Ok(reading) => {
                other_unit |= signal.threshold.as_ref().is_some_and(|threshold| threshold.unit != reading.unit);
            }
            Err(why) if why.is_no_data() => no_data = no_data.or(Some(*why)),
            Err(why) => return Some(Gap::NoReading(*why)),
        }
    }
    if other_unit { Some(Gap::OtherUnit) } else { no_data.map(Gap::NoReading) }
}

/// The Pods that the rule names and the input holds, each once: those with evidence by how far they are above,
/// the rest as the rule ordered them.
fn suspects(named: Vec<PodName>, reasons: &[RuleReason], input: &Input<'_>) -> Vec<PodName> {
    let mut suspects: Vec<(f64, PodName)> = Vec::new();
    for pod in named {
        if input.pods.contains_key(&pod) && !suspects.iter().any(|(_, known)| *known == pod) {
            let excess = reasons.iter().filter(|reason| reason.pod.as_ref() == Some(&pod)).filter_map(excess);
            suspects.push((excess.fold(f64::NEG_INFINITY, f64::max), pod));
        }
    }
    suspects.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    suspects.into_iter().map(|(_, pod)| pod).collect()
}

/// How many times its threshold a reason's value is, for ordering only.
fn excess(reason: &RuleReason) -> Option<f64> {
    let ratio = reason.observed? / reason.threshold?;
    (!ratio.is_nan()).then_some(ratio)
}

/// Reasons of the whole target before those of Pods, then by signal, Pod, code and value.
fn by_subject(left: &RuleReason, right: &RuleReason) -> Ordering {
    let key =
        |reason: &RuleReason| (reason.pod.is_some(), reason.signal.clone(), reason.pod.clone(), reason.code.clone());
    key(left)
        .cmp(&key(right))
        .then_with(|| left.observed.unwrap_or(0.0).total_cmp(&right.observed.unwrap_or(0.0)))
        .then_with(|| left.threshold.unwrap_or(0.0).total_cmp(&right.threshold.unwrap_or(0.0)))
}

struct Answer {
    breached: bool,
    severity: Severity,
    reasons: Vec<RuleReason>,
    pods: Vec<PodName>,
    actions: Option<serde_json::Value>,
}

impl Answer {
    /// `breached` is required; a breach without a severity is a warning. Unknown fields are refused, since a
    /// misspelt `pods` would otherwise isolate nothing without a word.
    fn read(output: &Value) -> Result<Self> {
        let mut breached = None;
        let mut severity = None;
        let mut reasons = Vec::new();
        let mut pods = Vec::new();
        let mut actions = None;
        for (name, value) in fields(output, "output")? {
            let path = || format!("output.{name}");
            match name {
                "breached" => breached = Some(truth(value, &path())?),
                "severity" => severity = Some(self::severity(value, &path())?),
                "reasons" => {
                    reasons = items(value, &path())?
                        .enumerate()
                        .map(|(index, item)| reason(item, &format!("output.reasons[{index}]")))
                        .collect::<Result<_>>()?;
                }
                "pods" => {
                    pods = items(value, &path())?
                        .enumerate()
                        .map(|(index, item)| string(item, &format!("output.pods[{index}]")))
                        .collect::<Result<_>>()?;
                }
                "actions" => {
                    for (index, item) in items(value, &path())?.enumerate() {
                        fields(item, &format!("output.actions[{index}]"))?;
                    }
                    actions = Some(json_of(value));
                }
                _ => return Err(wrong(&path(), value, "breached, severity, reasons, pods or actions")),
            }
        }
        let breached = breached.ok_or_else(|| missing("output.breached", "true or false"))?;
        let severity = severity.unwrap_or(if breached { Severity::Warning } else { Severity::None });
        if breached && severity == Severity::None {
            return Err(Error::WrongShape {
                path: "output.severity".to_owned(),
                found: "`none` beside `breached: true`".to_owned(),
                expected: "warning or critical",
            });
        }
        Ok(Self { breached, severity, reasons, pods, actions })
    }
}

fn reason(value: &Value, path: &str) -> Result<RuleReason> {
    let mut code = None;
    let mut reason = RuleReason { code: String::new(), signal: None, pod: None, observed: None, threshold: None };
    for (name, value) in fields(value, path)? {
        let path = format!("{path}.{name}");
        match name {
            "code" => code = Some(string(value, &path)?),
            "signal" => reason.signal = Some(string(value, &path)?),
            "pod" => reason.pod = Some(string(value, &path)?),
            "observed" => reason.observed = Some(number(value, &path)?),
            "threshold" => reason.threshold = Some(number(value, &path)?),
            _ => return Err(wrong(&path, value, "code, signal, pod, observed or threshold")),
        }
    }
    reason.code = code.ok_or_else(|| missing(&format!("{path}.code"), "a string"))?;
    Ok(reason)
}

fn fields<'a>(value: &'a Value, path: &str) -> Result<Vec<(&'a str, &'a Value)>> {
    let Value::Object(object) = value else { return Err(wrong(path, value, "an object")) };
    object
        .iter_sorted()
        .map(|(key, value)| match key {
            Value::String(name) => Ok((&**name, value)),
            other => Err(wrong(path, other, "names as keys")),
        })
        .collect()
}

fn items<'a>(value: &'a Value, path: &str) -> Result<Box<dyn Iterator<Item = &'a Value> + 'a>> {
    match value {
        Value::Array(array) => Ok(Box::new(array.iter())),
        Value::Set(set) => Ok(Box::new(set.iter())),
        _ => Err(wrong(path, value, "an array or a set")),
    }
}

fn truth(value: &Value, path: &str) -> Result<bool> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        _ => Err(wrong(path, value, "true or false")),
    }
}

fn severity(value: &Value, path: &str) -> Result<Severity> {
    match value {
        Value::String(name) if **name == *"none" => Ok(Severity::None),
        Value::String(name) if **name == *"warning" => Ok(Severity::Warning),
        Value::String(name) if **name == *"critical" => Ok(Severity::Critical),
        _ => Err(wrong(path, value, "none, warning or critical")),
    }
}

fn string(value: &Value, path: &str) -> Result<String> {
    match value {
        Value::String(string) => Ok(String::from(Arc::as_ref(string))),
        _ => Err(wrong(path, value, "a string")),
    }
}

fn number(value: &Value, path: &str) -> Result<f64> {
    value.as_f64().ok().filter(|number| number.is_finite()).ok_or_else(|| wrong(path, value, "a finite number"))
}

fn missing(path: &str, expected: &'static str) -> Error {
    Error::WrongShape { path: path.to_owned(), found: "is missing".to_owned(), expected }
}

fn wrong(path: &str, found: &Value, expected: &'static str) -> Error {
    const SHOWN: usize = 60;
    let text = json_of(found).to_string();
    let short: String = text.chars().take(SHOWN).collect();
    let found = if short.len() < text.len() { format!("`{short}…`") } else { format!("`{short}`") };
    Error::WrongShape { path: path.to_owned(), found, expected }
}

#[cfg(test)]
mod tests;
