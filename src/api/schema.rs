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

/// The grammar of [`time::parse_duration`] as RE2. Two matches in place of CEL's `duration()`: that one fails instead
/// of answering on other texts, and a text of this grammar is above zero exactly if it holds a digit that is.
const DURATION: &str =
    r"self.matches('^(([0-9]{1,6}([.][0-9]{0,9})?|[.][0-9]{1,9})(ns|us|µs|μs|ms|s|m|h))+$') && self.matches('[1-9]')";

/// A positive Go duration.
pub(super) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 20,
        "x-kubernetes-validations": [rule(DURATION, &format!("expected {}", time::EXPECTED))],
    })
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

/// The name of an object in Kubernetes, a mode, a subset or a host.
pub(super) fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"})
}

/// The name of a signal: also a key in the rule's input and a label in queries.
pub(super) fn signal_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z][a-z0-9_]*$"})
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
            &format!("({DURATION}) || self.matches('^-?[0-9]{{1,15}}([.][0-9]{{1,9}})?( ?(ratio|%|By|kB|MB))?$')"),
            "expected a duration such as `800ms`, a percentage such as `5%`, or a number with or without a unit (ratio, By, kB, MB)",
        )],
    })
}
