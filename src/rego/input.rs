//! What a rule is asked about, as the engine's values. The shape is that of docs/schemas/input.schema.json.
//!
//! Built anew for every evaluation, so it is cheap on purpose: what seldom changes (policy, tenant, target) is
//! converted once into a [`Document`], and keys are shared.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use chrono::{DateTime, SecondsFormat, Utc};
use regorus::Value;

use crate::model::phase::Phase;
use crate::model::policy::SignalSpec;
use crate::model::quantity::{BaseUnit, Threshold};
use crate::model::reading::{PodName, Readings, Signal, SignalName};

/// A JSON object in the engine's form. Converted once per change; a clone copies a pointer.
#[derive(Clone, Debug, PartialEq)]
pub struct Document(Value);

impl Document {
    /// Of any JSON value.
    pub fn from_json(json: &serde_json::Value) -> Self {
        Self(value_of(json))
    }

    /// The object without fields.
    pub fn empty() -> Self {
        Self(Value::new_object())
    }
}

/// One question to a rule. Values are in base units.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// `input.policy`: kind, namespace, name and spec as written.
    pub policy: &'a Document,
    /// `input.tenant`: name, class, priority.
    pub tenant: &'a Document,
    /// `input.target`: the live object; empty where it is not known.
    pub target: &'a Document,
    /// The declared signals: their thresholds become `input.thresholds`, and one that is not optional must have a
    /// reading before "not breached" counts.
    pub signals: &'a BTreeMap<SignalName, SignalSpec>,
    /// `input.readings`, of the whole target.
    pub readings: &'a Readings,
    /// `input.pods`.
    pub pods: &'a BTreeMap<PodName, Readings>,
    /// `input.phase`.
    pub phase: Phase,
    /// `input.now`, RFC 3339.
    pub now: DateTime<Utc>,
}

impl Input<'_> {
    /// The input in the engine's form.
    pub fn document(&self) -> Document {
        Document(self.to_value())
    }

    /// The input as JSON, as `opa eval --input` takes it.
    pub fn to_json(&self) -> serde_json::Value {
        json_of(&self.to_value())
    }

    pub(super) fn to_value(self) -> Value {
        let key = &*KEYS;
        let thresholds = self
            .signals
            .iter()
            .filter_map(|(name, signal)| Some((text(name), threshold(signal.threshold.as_ref()?))))
            .collect::<BTreeMap<_, _>>();
        let pods = self.pods.iter().map(|(pod, of)| (text(pod), readings(of))).collect::<BTreeMap<_, _>>();
        object([
            (&key.now, Value::from(self.now.to_rfc3339_opts(SecondsFormat::Millis, true))),
            (&key.phase, key.phase_name(self.phase)),
            (&key.pods, Value::from(pods)),
            (&key.policy, self.policy.0.clone()),
            (&key.readings, readings(self.readings)),
            (&key.target, self.target.0.clone()),
            (&key.tenant, self.tenant.0.clone()),
            (&key.thresholds, Value::from(thresholds)),
        ])
    }
}

/// Strings that every input holds.
struct Keys {
    now: Value,
    phase: Value,
    pods: Value,
    policy: Value,
    readings: Value,
    target: Value,
    tenant: Value,
    thresholds: Value,
    value: Value,
    unit: Value,
    age_seconds: Value,
    series: Value,
    requests: Value,
    reason: Value,
    healthy: Value,
    pending: Value,
    active: Value,
    recovering: Value,
    seconds: Value,
    ratio: Value,
    bytes: Value,
    count: Value,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| Keys {
    now: text("now"),
    phase: text("phase"),
    pods: text("pods"),
    policy: text("policy"),
    readings: text("readings"),
    target: text("target"),
    tenant: text("tenant"),
    thresholds: text("thresholds"),
    value: text("value"),
    unit: text("unit"),
    age_seconds: text("ageSeconds"),
    series: text("series"),
    requests: text("requests"),
    reason: text("reason"),
    healthy: text(Phase::Healthy.as_str()),
    pending: text(Phase::Pending.as_str()),
    active: text(Phase::Active.as_str()),
    recovering: text(Phase::Recovering.as_str()),
    seconds: text(BaseUnit::Seconds.symbol()),
    ratio: text(BaseUnit::Ratio.symbol()),
    bytes: text(BaseUnit::Bytes.symbol()),
    count: text(BaseUnit::Count.symbol()),
});

impl Keys {
    fn phase_name(&self, phase: Phase) -> Value {
        match phase {
            Phase::Healthy => &self.healthy,
            Phase::Pending => &self.pending,
            Phase::Active => &self.active,
            Phase::Recovering => &self.recovering,
        }
        .clone()
    }

    fn unit_symbol(&self, unit: BaseUnit) -> Value {
        match unit {
            BaseUnit::Seconds => &self.seconds,
            BaseUnit::Ratio => &self.ratio,
            BaseUnit::Bytes => &self.bytes,
            BaseUnit::Count => &self.count,
        }
        .clone()
    }
}

fn threshold(threshold: &Threshold) -> Value {
    let key = &*KEYS;
    object([(&key.unit, key.unit_symbol(threshold.unit)), (&key.value, number(threshold.value))])
}

fn readings(readings: &Readings) -> Value {
    Value::from(readings.iter().map(|(name, signal)| (text(name), reading(signal))).collect::<BTreeMap<_, _>>())
}

fn reading(signal: &Signal) -> Value {
    let key = &*KEYS;
    match signal {
        Ok(reading) => {
            let mut fields = BTreeMap::from([
                (key.age_seconds.clone(), number(reading.age_seconds)),
                (key.series.clone(), Value::from(reading.series)),
                (key.unit.clone(), key.unit_symbol(reading.unit)),
                (key.value.clone(), number(reading.value)),
            ]);
            if let Some(requests) = reading.requests {
                fields.insert(key.requests.clone(), number(requests));
            }
            Value::from(fields)
        }
        Err(why) => object([(&key.reason, text(why.reason().as_str()))]),
    }
}

fn object<const N: usize>(fields: [(&Value, Value); N]) -> Value {
    Value::from(BTreeMap::from(fields.map(|(key, value)| (key.clone(), value))))
}

fn text(text: &str) -> Value {
    Value::String(Arc::from(text))
}

/// Whole numbers as integers, as JSON text has them: `3`, not `3.0`.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < EXACT { Value::from(value as i64) } else { Value::from(value) }
}

/// The engine's form of any JSON value.
pub(super) fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::from(*truth),
        serde_json::Value::Number(number) => Value::from_numeric_string(&number.to_string()).unwrap_or(Value::Null),
        serde_json::Value::String(string) => text(string),
        serde_json::Value::Array(items) => Value::from(items.iter().map(value_of).collect::<Vec<_>>()),
        serde_json::Value::Object(fields) => {
            Value::from(fields.iter().map(|(key, value)| (text(key), value_of(value))).collect::<BTreeMap<_, _>>())
        }
    }
}

/// JSON of a value of the engine: sets become arrays in their order, undefined becomes null.
pub(super) fn json_of(value: &Value) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or(serde_json::Value::Null)
}
