//! Readings as people write them in files: `{value: 1200, unit: ms, ageSeconds: 3}` or `{reason: NoData}`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::problem::Problem;
use crate::model::quantity::{EXPECTED_UNITS, Unit};
use crate::model::reading::{NoReading, Reading, Readings, Signal, SignalName};

/// One signal's answer as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct SignalFile {
    value: Option<f64>,
    unit: Option<String>,
    age_seconds: Option<f64>,
    series: Option<u32>,
    requests: Option<f64>,
    reason: Option<String>,
}

/// Readings of one subject as written.
pub(crate) type ReadingsFile = BTreeMap<SignalName, SignalFile>;

/// Checks and converts readings to base units; `at` is the path that problems carry.
pub(crate) fn readings_of(at: &str, file: &ReadingsFile) -> Result<Readings, Vec<Problem>> {
    let (mut readings, mut problems) = (Readings::new(), Vec::new());
    for (name, signal) in file {
        match signal.signal(&format!("{at}.{name}")) {
            Ok(signal) => {
                readings.insert(name.clone(), signal);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(readings) } else { Err(problems) }
}

impl SignalFile {
    fn signal(&self, at: &str) -> Result<Signal, Problem> {
        let expected = "`value` with `unit`, or `reason`";
        match (self.value, &self.reason) {
            (Some(value), None) => self.reading(at, value).map(Ok),
            (None, Some(reason)) => NoReading::parse(reason).map(Err).ok_or_else(|| {
                let reasons = NoReading::ALL.map(|why| why.reason().as_str()).join(", ");
                let found = format!("`{reason}` is no reason for a missing reading");
                Problem::expected(format!("{at}.reason"), found, format!("one of {reasons}"))
            }),
            (Some(_), Some(_)) => Err(Problem::expected(at, "has a value and a reason", expected)),
            (None, None) => Err(Problem::expected(at, "has neither a value nor a reason", expected)),
        }
    }

    fn reading(&self, at: &str, value: f64) -> Result<Reading, Problem> {
        let path = format!("{at}.unit");
        let symbol = self.unit.as_deref().ok_or_else(|| Problem::expected(&path, "is missing", EXPECTED_UNITS))?;
        let unit = Unit::parse(symbol)
            .ok_or_else(|| Problem::expected(&path, format!("`{symbol}` is no unit"), EXPECTED_UNITS))?;
        let age_seconds = self.age_seconds.unwrap_or(0.0);
        if age_seconds.is_nan() || age_seconds < 0.0 {
            let found = format!("`{age_seconds}` is no age");
            return Err(Problem::expected(format!("{at}.ageSeconds"), found, "seconds, zero or more"));
        }
        Ok(Reading {
            value: unit.to_base(value),
            unit: unit.base,
            age_seconds,
            series: self.series.unwrap_or(1),
            requests: self.requests,
        })
    }
}
