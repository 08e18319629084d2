//! Fragments of schemas that several kinds use: durations, points in time, enumerations, names, CEL rules.
//!
//! Each is a function as `#[schemars(schema_with)]` wants it. Every string and list in a spec is bounded, or the API
//! server could not bound the cost of the CEL rules over it.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::model::policy::ActionKind;
use crate::model::time;

/// A CEL rule as it stands in `x-kubernetes-validations`.
pub(super) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// A CEL rule whose failure belongs to a field below the one that carries it.
pub(super) fn rule_at(field_path: &str, rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message, "fieldPath": field_path})
}

/// The grammar of [`time::parse_duration`] as RE2.
const DURATION: &str = "^(([0-9]{1,6}([.][0-9]{0,9})?|[.][0-9]{1,9})(ns|us|µs|μs|ms|s|m|h))+$";

/// CEL's `duration()` fails on other texts in place of answering; but a text of the grammar is above zero exactly if it
/// holds a digit that is.
fn is_duration() -> String {
    format!("self.matches('{DURATION}') && self.matches('[1-9]')")
}

/// A positive Go duration.
pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 20,
        "x-kubernetes-validations": [rule(&is_duration(), &format!("expected {}", time::EXPECTED))],
    })
}

/// Whole seconds, any minutes or hours, or a thousand milliseconds somewhere in a text of the grammar. CEL cannot add the
/// parts up (its `duration()` does not take every text of the grammar); what slips through is refused by validation.
const A_SECOND: &str = "(^|[hms])[0-9]*[1-9][0-9]*([.][0-9]*)?s|[1-9][0-9]*([.][0-9]*)?(h|m([0-9.]|$))\
    |[.][0-9]*[1-9][0-9]*(h|m([0-9.]|$))|(^|[hms])0*[1-9][0-9]{3}([.0-9]*)ms";

/// A positive Go duration of at least a second.
pub(super) fn interval(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = duration(generator);
    let long_enough = format!("!({}) || self.matches('{A_SECOND}')", is_duration());
    let message = format!("expected {}", time::EXPECTED_INTERVAL);
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.push(rule(&long_enough, &message));
    }
    schema
}

/// A point in time (RFC 3339).
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "maxLength": 40})
}

/// Instants, a bounded number.
pub(super) fn times(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 256, "items": time(generator)})
}

/// `spec.enforcementAction`.
pub(super) fn enforcement(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["enforce", "dryRun", "warn"]})
}

/// `spec.onNoData`.
pub(super) fn on_no_data(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["hold", "breach", "recover"]})
}

/// The name of an action.
pub(super) fn action_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ActionKind::ALL.map(ActionKind::as_str)})
}

/// A list of names of actions.
pub(super) fn action_kinds(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "items": action_kind(generator)})
}

/// The class of a tenant.
pub(super) fn class(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["core", "lab", "compliance"]})
}

const NAME: &str = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$";
const SIGNAL_NAME: &str = "^[a-z][a-z0-9_]*$";
const ENTRYPOINT: &str = "^data([.][a-zA-Z_][a-zA-Z0-9_]*)+$";

/// What a pattern of ours expects, in words; the API server can only show the pattern.
pub(super) fn words_for(pattern: &str) -> String {
    match pattern {
        NAME => "lower case letters, digits, `-` and `.`, with a letter or digit at both ends".to_owned(),
        SIGNAL_NAME => "lower case letters, digits and `_`, with a letter first".to_owned(),
        ENTRYPOINT => "a rule below data, such as `data.lab.checkout.verdict`".to_owned(),
        other => format!("what matches {other}"),
    }
}

/// A rule of a Rego module.
pub(super) fn entrypoint(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 253, "pattern": ENTRYPOINT})
}

/// The name of an object in Kubernetes, a mode, a subset or a host.
pub(super) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": NAME})
}

/// The name of a signal: also a key in the rule's input and a label in queries.
pub(super) fn signal_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": SIGNAL_NAME})
}

/// Labels that an object must carry, at least one.
pub(super) fn match_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// Labels that an object must carry, perhaps none.
pub(super) fn any_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// Names of Pods, at least one.
pub(super) fn pod_names(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "minItems": 1, "maxItems": 256, "items": name(generator)})
}

/// PromQL.
pub(super) fn query(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 4096})
}

/// Anything, kept as it is.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// The unit of a latency.
pub(super) fn time_unit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["ns", "us", "ms", "s", "m", "h"]})
}

/// The unit of any signal.
pub(super) fn unit(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["ns", "us", "ms", "s", "m", "h", "ratio", "%", "By", "kB", "MB", "1"]})
}

/// A threshold of any signal: a duration, a percentage, or a number with or without a unit.
pub(super) fn threshold(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(
            &format!("({}) || self.matches('^-?[0-9]{{1,15}}([.][0-9]{{1,9}})?( ?(ratio|%|By|kB|MB))?$')", is_duration()),
            "expected a duration such as `800ms`, a percentage such as `5%`, or a number with or without a unit (ratio, By, kB, MB)",
        )],
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use regex::Regex;

    use super::*;
    use crate::model::time::{Error, parse_duration};

    static GRAMMAR: LazyLock<Regex> = LazyLock::new(|| Regex::new(DURATION).unwrap());

    proptest! {
        #[test]
        fn the_servers_grammar_of_durations_is_the_engines(text in "[0-9.hmsnu\u{b5}d+ -]{0,6}(h|m|s|ms|us|ns|)") {
            let taken = GRAMMAR.is_match(&text) && text.contains(|c| ('1'..='9').contains(&c));
            match parse_duration(&text) {
                Ok(_) => prop_assert!(taken, "{text}"),
                // Less than half a nanosecond is zero, which no pattern sees.
                Err(Error::NotPositive(_)) if text.contains('.') && text.contains('n') => {}
                Err(_) => prop_assert!(!taken, "{text}"),
            }
        }
    }
}
