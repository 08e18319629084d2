//! How long to wait before something that failed is tried again: doubled each time, capped, with jitter.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Failures in a row of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after one more failure. `jitter` in 0..1 spreads it over the upper half.
    pub(crate) fn after_failure(&mut self, jitter: f64) -> Duration {
        let doubled = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        doubled.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_cap_and_start_over() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..9).map(|_| backoff.after_failure(1.0).as_millis()).collect();
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        backoff.reset();
        assert_eq!(backoff.after_failure(0.0), Duration::from_millis(250));
    }
}
