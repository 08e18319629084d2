//! Waiting in real time: for a condition, with a deadline, never for a while.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

const BETWEEN_PROBES: Duration = Duration::from_millis(50);

/// Probes until the answer is `Ok`, and returns what it holds. `Err` is what was seen instead: the last one stands in the
/// panic when `deadline` has passed, so that a failed wait tells its story. A probe that hangs counts as not yet.
pub(crate) async fn wait_until<T, S: Display>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, S>,
) -> T {
    let end = Instant::now() + deadline;
    let mut last_seen = String::from("nothing, the first look did not return");
    loop {
        match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(found)) => return found,
            Ok(Err(seen)) => last_seen = seen.to_string(),
            Err(_) => {}
        }
        assert!(Instant::now() < end, "{what}: not within {deadline:?}; last seen: {last_seen}");
        sleep(BETWEEN_PROBES).await;
    }
}

/// Probes for all of `span` and panics at the first `Err`: for what must not happen.
pub(crate) async fn holds_for<S: Display>(what: &str, span: Duration, mut probe: impl AsyncFnMut() -> Result<(), S>) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        if let Err(seen) = probe().await {
            panic!("{what}: held no longer; seen: {seen}");
        }
        sleep(BETWEEN_PROBES).await;
    }
}
