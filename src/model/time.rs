//! Durations as people write them: the Go way (`2m`, `1h30m`, `1.5s`), and nothing else.
//!
//! One grammar serves every field, flag and file. Format: Go's `time.ParseDuration`, without sign; a bare number,
//! a unit that is not one of `ns us µs ms s m h`, zero and negatives are refused.

use std::fmt;
use std::time::Duration;

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was written.
    #[error("is empty")]
    Empty,
    /// It does not follow the grammar.
    #[error("`{0}` is no duration")]
    Syntax(String),
    /// A number without a unit.
    #[error("`{0}` has no unit")]
    NoUnit(String),
    /// A unit that Go does not have.
    #[error("`{0}` has the unknown unit `{1}`")]
    UnknownUnit(String, String),
    /// Zero or less.
    #[error("`{0}` is not greater than zero")]
    NotPositive(String),
    /// Longer than 100 years.
    #[error("`{0}` is too long")]
    TooLong(String),
}

/// What every message about a refused duration says is expected.
pub const EXPECTED: &str = "a Go duration greater than zero, such as `2m`, `1h30m`, `800ms` or `1.5s`";

/// The shortest time between two judgements: a policy may not keep the engine busy by itself.
pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// What every message about a refused interval says is expected.
pub const EXPECTED_INTERVAL: &str = "at least one second, such as `10s`";

const LONGEST_SECONDS: f64 = 100.0 * 366.0 * 86_400.0;

/// Parses a positive Go duration.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text.starts_with('-') && text.len() > 1 {
        return Err(Error::NotPositive(text.to_owned()));
    }
    let mut rest = text;
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        if number.is_empty() || number == "." || number.matches('.').count() > 1 {
            return Err(Error::Syntax(text.to_owned()));
        }
        let number: f64 = number.parse().map_err(|_| Error::Syntax(text.to_owned()))?;
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "" => return Err(Error::NoUnit(text.to_owned())),
            other => return Err(Error::UnknownUnit(text.to_owned(), other.to_owned())),
        };
        seconds += number * scale;
        rest = next;
    }
    if seconds > LONGEST_SECONDS {
        return Err(Error::TooLong(text.to_owned()));
    }
    // Rounded to whole nanoseconds, so that `0.1ms` and `100us` are the same value.
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| Error::TooLong(text.to_owned()))?;
    if duration.is_zero() {
        return Err(Error::NotPositive(text.to_owned()));
    }
    Ok(duration)
}

/// Shows a duration the shortest Go way: `2m`, `1h30m`, `1.5s`, `800ms`, `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(pub Duration);

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000 {
            return write!(f, "{nanos}ns");
        }
        if nanos < 1_000_000 {
            return write!(f, "{}us", self.0.as_secs_f64() * 1e6);
        }
        if nanos < 1_000_000_000 {
            return write!(f, "{}ms", round(self.0.as_secs_f64() * 1e3));
        }
        let whole = self.0.as_secs();
        let (hours, minutes) = (whole / 3_600, whole % 3_600 / 60);
        let seconds = round((whole % 60) as f64 + f64::from(self.0.subsec_nanos()) / 1e9);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if seconds > 0.0 {
            write!(f, "{seconds}s")?;
        }
        Ok(())
    }
}

fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// `duration` in seconds as serde writes it where readers expect numbers (`ageSeconds` and the like).
pub fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// The time from `earlier` to `later`, zero if they are the other way round.
pub fn elapsed(earlier: chrono::DateTime<chrono::Utc>, later: chrono::DateTime<chrono::Utc>) -> Duration {
    later.signed_duration_since(earlier).to_std().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_takes_is_taken() {
        for (text, millis) in [
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("800ms", 800),
            ("1.5h", 5_400_000),
            ("30s1m", 90_000),
            ("1m1m", 120_000),
            (".5s", 500),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused_and_so_are_zero_and_negatives() {
        for text in [
            "", "1h30", "1min", "1.5", "800", "-5m", "0s", "0", "1d", "m", "1..5s", "1 m", "5m ", "٣m", "+5m", "1e3s",
            "-",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("1h30"), Err(Error::NoUnit("1h30".into())));
        assert_eq!(parse_duration("1min"), Err(Error::UnknownUnit("1min".into(), "min".into())));
        assert_eq!(parse_duration("-5m"), Err(Error::NotPositive("-5m".into())));
        assert!(matches!(parse_duration("99999999999999999999999h"), Err(Error::TooLong(_))));
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["2m", "1h30m", "1.5s", "800ms", "1h", "1m30s", "250us", "5ns"] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(Written(duration).to_string(), text);
        }
    }
}
