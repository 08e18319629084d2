//! Units of measured values, and thresholds as people write them.
//!
//! Rust converts, Rego compares: everything that reaches a rule is in base units (seconds, ratios, bytes, counts).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;

/// A base unit. Values of different base units never meet in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BaseUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// A share of one: `0.05` is 5 %.
    #[serde(rename = "ratio")]
    Ratio,
    /// Bytes.
    #[serde(rename = "By")]
    Bytes,
    /// A plain number of things.
    #[serde(rename = "1")]
    Count,
}

impl BaseUnit {
    /// The symbol that rules, files and messages use (UCUM, as OpenTelemetry has it, but for `ratio`).
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Ratio => "ratio",
            Self::Bytes => "By",
            Self::Count => "1",
        }
    }
}

impl fmt::Display for BaseUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// A unit as a metric, a threshold or a readings file declares it: a base unit and how many of it make one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// What values are converted to.
    pub base: BaseUnit,
    /// One of this unit in base units.
    pub scale: f64,
}

/// What every message about an unknown unit says is expected.
pub const EXPECTED_UNITS: &str = "one of ns, us, ms, s, m, h, ratio, %, By, kB, MB, 1";

impl Unit {
    /// Seconds as they are.
    pub const SECONDS: Self = Self { base: BaseUnit::Seconds, scale: 1.0 };
    /// Thousandths of a second, as Istio's histograms count.
    pub const MILLISECONDS: Self = Self { base: BaseUnit::Seconds, scale: 1e-3 };

    /// The unit with this symbol, if there is one.
    pub fn parse(symbol: &str) -> Option<Self> {
        let (base, scale) = match symbol {
            "ns" => (BaseUnit::Seconds, 1e-9),
            "us" | "µs" => (BaseUnit::Seconds, 1e-6),
            "ms" => (BaseUnit::Seconds, 1e-3),
            "s" => (BaseUnit::Seconds, 1.0),
            "m" => (BaseUnit::Seconds, 60.0),
            "h" => (BaseUnit::Seconds, 3_600.0),
            "ratio" => (BaseUnit::Ratio, 1.0),
            "%" => (BaseUnit::Ratio, 0.01),
            "By" => (BaseUnit::Bytes, 1.0),
            "kB" => (BaseUnit::Bytes, 1e3),
            "MB" => (BaseUnit::Bytes, 1e6),
            "1" => (BaseUnit::Count, 1.0),
            _ => return None,
        };
        Some(Self { base, scale })
    }

    /// The unit that a Prometheus metric name declares by its suffix (`_seconds`, `_milliseconds`, `_bytes`,
    /// `_ratio`); a histogram's `_bucket`, `_sum`, `_count` and a counter's `_total` are looked through.
    pub fn of_metric(name: &str) -> Option<Self> {
        let stem = ["_bucket", "_sum", "_count", "_total"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
        let suffix = stem.rsplit('_').next()?;
        match suffix {
            "seconds" => Some(Self::SECONDS),
            "milliseconds" => Some(Self::MILLISECONDS),
            "microseconds" => Self::parse("us"),
            "bytes" => Self::parse("By"),
            "ratio" => Self::parse("ratio"),
            _ => None,
        }
    }

    /// `value` of this unit in base units.
    pub fn to_base(self, value: f64) -> f64 {
        value * self.scale
    }
}

/// A threshold: a value in base units, kept beside the words it was written in.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// In base units.
    pub value: f64,
    /// The base unit.
    pub unit: BaseUnit,
    /// As it stands in the policy.
    pub written: String,
}

impl Threshold {
    /// A latency threshold, written as a duration.
    pub fn latency(text: &str) -> Result<Self, time::Error> {
        let value = time::parse_duration(text)?.as_secs_f64();
        Ok(Self { value, unit: BaseUnit::Seconds, written: text.to_owned() })
    }

    /// Any threshold: a duration (`800ms`), a percentage (`5%`), or a number with a unit of [`Unit::parse`] or
    /// without one (`0.05`, a count). None if it is none of these or not finite.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(threshold) = Self::latency(text) {
            return Some(threshold);
        }
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
        let (number, symbol) = text.split_at(split);
        let number: f64 = number.parse().ok()?;
        let unit = match symbol.trim() {
            "" => Unit { base: BaseUnit::Count, scale: 1.0 },
            // A time that is no positive duration is a mistake, not a number.
            symbol => Unit::parse(symbol).filter(|unit| unit.base != BaseUnit::Seconds)?,
        };
        let value = unit.to_base(number);
        value.is_finite().then(|| Self { value, unit: unit.base, written: text.to_owned() })
    }
}

/// A whole percentage from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(u8);

impl Percent {
    /// A third of the Pods, so that one of three may be isolated.
    pub const DEFAULT_MAX_ISOLATED: Self = Self(34);
    /// What returns first when a breaker is half open.
    pub const DEFAULT_PROBE: Self = Self(10);
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// One of two.
    pub const HALF: Self = Self(50);
    /// Everything.
    pub const ALL: Self = Self(100);

    /// None above 100.
    pub fn new(value: u8) -> Option<Self> {
        (value <= 100).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.0)) / 100
    }
}

/// Shows a value of a base unit for people: seconds as a duration (`1.2s`, `800ms`), ratios as percent.
pub fn show(value: f64, unit: BaseUnit) -> String {
    match unit {
        BaseUnit::Seconds => match Duration::try_from_secs_f64(value) {
            Ok(duration) => {
                let millis = duration.as_secs_f64() * 1e3;
                let rounded = if millis >= 100.0 { millis.round() } else { (millis * 100.0).round() / 100.0 };
                time::Written(Duration::from_secs_f64(rounded / 1e3)).to_string()
            }
            Err(_) => format!("{value}s"),
        },
        BaseUnit::Ratio => format!("{}%", (value * 1e4).round() / 100.0),
        BaseUnit::Bytes => format!("{value}B"),
        BaseUnit::Count => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_latency_in_any_unit_is_the_same_value() {
        let ms = Unit::parse("ms").unwrap();
        assert!((ms.to_base(1_200.0) - Unit::SECONDS.to_base(1.2)).abs() < 1e-12);
    }

    #[test]
    fn a_metric_declares_its_unit_by_suffix() {
        let istio = Unit::of_metric("istio_request_duration_milliseconds_bucket").unwrap();
        assert_eq!(istio, Unit::MILLISECONDS);
        assert_eq!(Unit::of_metric("http_request_duration_seconds"), Some(Unit::SECONDS));
        assert_eq!(Unit::of_metric("up"), None);
    }

    #[test]
    fn thresholds_keep_their_words() {
        assert_eq!(Threshold::latency("800ms").unwrap().value, 0.8);
        assert_eq!(Threshold::parse("5%").unwrap().value, 0.05);
        assert_eq!(Threshold::parse("0.05").unwrap().unit, BaseUnit::Count);
        for text in ["", "abc", "5 parsec", "-5m", "0s", "NaN", "inf"] {
            assert_eq!(Threshold::parse(text), None, "{text}");
        }
    }

    #[test]
    fn values_are_shown_for_people() {
        assert_eq!(show(1.2034, BaseUnit::Seconds), "1.203s");
        assert_eq!(show(0.8, BaseUnit::Seconds), "800ms");
        assert_eq!(show(0.0512, BaseUnit::Ratio), "5.12%");
    }

    #[test]
    fn a_share_is_rounded_down() {
        assert_eq!(Percent::new(34).unwrap().of(2), 0);
        assert_eq!(Percent::new(34).unwrap().of(3), 1);
        assert_eq!(Percent::new(101), None);
    }
}
