//! The shapes of input and output as types, of which docs/schemas holds the JSON Schemas for authors of rules.
//!
//! Evaluation does not go through these types, since building and reading the engine's values directly is several
//! times cheaper; tests hold both to the same shape.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::phase::Phase;
use crate::model::quantity::BaseUnit;
use crate::model::reading::{PodName, SignalName};
use crate::model::verdict::Severity;

/// What a rule finds in `input`. Values are in base units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Input of a rule")]
pub struct InputShape {
    /// The policy: kind, namespace, name, and spec as written.
    pub policy: Map<String, Value>,
    /// The tenant that the policy belongs to: name, class, priority.
    pub tenant: Map<String, Value>,
    /// The live target; without fields where it is not known.
    pub target: Map<String, Value>,
    /// Thresholds by signal; a signal without one is not here.
    pub thresholds: BTreeMap<SignalName, ThresholdShape>,
    /// Readings of the whole target by signal.
    pub readings: BTreeMap<SignalName, ReadingShape>,
    /// Readings of single Pods, by Pod and signal, where the series carry the Pod.
    pub pods: BTreeMap<PodName, BTreeMap<SignalName, ReadingShape>>,
    /// Where the policy stands.
    pub phase: Phase,
    /// The time of the evaluation, RFC 3339 in UTC. Rules have no other clock.
    #[schemars(extend("format" = "date-time"))]
    pub now: String,
}

/// A threshold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThresholdShape {
    /// In `unit`.
    pub value: f64,
    /// A base unit.
    #[schemars(with = "UnitShape")]
    pub unit: BaseUnit,
}

/// A base unit: seconds, a share of one, bytes, a plain number.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "stands for its JSON Schema only")]
#[schemars(rename = "Unit")]
enum UnitShape {
    #[schemars(rename = "s")]
    Seconds,
    #[schemars(rename = "ratio")]
    Ratio,
    #[schemars(rename = "By")]
    Bytes,
    #[schemars(rename = "1")]
    Count,
}

/// A reading, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ReadingShape {
    /// A usable reading.
    Usable(UsableShape),
    /// No reading: neither zero, nor ok, nor breached.
    Missing(MissingShape),
}

/// A usable reading.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UsableShape {
    /// A finite number in `unit`.
    pub value: f64,
    /// A base unit.
    #[schemars(with = "UnitShape")]
    pub unit: BaseUnit,
    /// How old the newest sample behind it is, in seconds.
    pub age_seconds: f64,
    /// How many series it was computed from.
    pub series: u32,
    /// How many requests it rests on, where a count is to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub requests: Option<f64>,
}

/// Why there is no reading.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissingShape {
    /// `NoData`, `Stale` and the like.
    pub reason: String,
}

/// What the entrypoint of a rule answers. Undefined, or another shape, makes the verdict unknown. Sets may stand for
/// arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Output of a rule")]
pub struct OutputShape {
    /// Whether the policy is breached. `false` counts only where every declared signal that is not optional has a
    /// reading.
    pub breached: bool,
    /// How bad; left out: a breach is a warning. Beside `breached: false` it does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SeverityShape")]
    pub severity: Option<Severity>,
    /// Why; messages for people are made of these.
    #[serde(default)]
    pub reasons: Vec<ReasonShape>,
    /// The Pods held responsible; names that are not in `input.pods` are dropped.
    #[serde(default)]
    pub pods: Vec<PodName>,
    /// Actions in place of the policy's own, as written in a policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub actions: Option<Vec<Map<String, Value>>>,
}

#[derive(JsonSchema)]
#[expect(dead_code, reason = "stands for its JSON Schema only")]
#[schemars(rename = "Severity", rename_all = "lowercase")]
enum SeverityShape {
    None,
    Warning,
    Critical,
}

/// One reason: a code, and the names and values that the rule was given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasonShape {
    /// `above_threshold` and the like; snake_case.
    pub code: String,
    /// The signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub signal: Option<SignalName>,
    /// The Pod, where the reason is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub pod: Option<PodName>,
    /// The value, in base units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub observed: Option<f64>,
    /// The threshold, in base units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub threshold: Option<f64>,
}

/// JSON Schema (draft 2020-12) of the input.
pub fn input() -> Value {
    generator().into_root_schema_for::<InputShape>().to_value()
}

/// JSON Schema (draft 2020-12) of the output.
pub fn output() -> Value {
    generator().into_root_schema_for::<OutputShape>().to_value()
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator()
}
