//! The one place that reads wall time and the one that waits.
//!
//! Everything that needs "now" is handed it as an argument; whoever has to ask, asks a [`Clock`]. A scaled clock
//! derives its time from tokio's, so under a paused runtime wall time, timers and waiting move together: tests
//! never see one run ahead of the other.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::time::Instant;

/// Where wall time comes from; cheap to clone.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Source);

#[derive(Clone, Copy, Debug)]
enum Source {
    System,
    Scaled { epoch: DateTime<Utc>, started: Instant, speed: f64 },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `epoch` now and runs `speed` times as fast as tokio's timer (which a test may pause).
    /// A speed that is not a positive finite number counts as 1.
    pub fn scaled(epoch: DateTime<Utc>, speed: f64) -> Self {
        let speed = if speed.is_finite() && speed > 0.0 { speed } else { 1.0 };
        Self(Source::Scaled { epoch, started: Instant::now(), speed })
    }

    /// Wall time.
    #[allow(clippy::disallowed_methods)]
    pub fn now(&self) -> DateTime<Utc> {
        match self.0 {
            Source::System => SystemTime::now().into(),
            Source::Scaled { epoch, .. } => {
                let delta = TimeDelta::from_std(self.monotonic()).unwrap_or(TimeDelta::MAX);
                epoch.checked_add_signed(delta).unwrap_or(DateTime::<Utc>::MAX_UTC)
            }
        }
    }

    /// Time that never jumps, in this clock's own pace; only differences mean anything. Leases are measured by it.
    pub fn monotonic(&self) -> Duration {
        match self.0 {
            Source::System => monotonic_since_start(),
            Source::Scaled { started, speed, .. } => started.elapsed().mul_f64(speed),
        }
    }

    /// Waits for `duration` of this clock's time.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(self.real(duration)).await;
    }

    /// How long `duration` of this clock's time lasts on tokio's timer.
    pub fn real(&self, duration: Duration) -> Duration {
        match self.0 {
            Source::System => duration,
            Source::Scaled { speed, .. } => duration.div_f64(speed),
        }
    }
}

fn monotonic_since_start() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scaled_clock_moves_with_the_paused_timer() {
        let epoch = DateTime::<Utc>::UNIX_EPOCH;
        let clock = Clock::scaled(epoch, 30.0);
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!((clock.now() - epoch).num_seconds(), 60);
        assert_eq!(clock.real(Duration::from_secs(60)), Duration::from_secs(2));
    }

    #[test]
    fn a_senseless_speed_counts_as_one() {
        let clock = Clock::scaled(DateTime::<Utc>::UNIX_EPOCH, f64::NAN);
        assert_eq!(clock.real(Duration::from_secs(1)), Duration::from_secs(1));
    }
}
