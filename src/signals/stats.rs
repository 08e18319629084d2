//! Counts of what left and what came back, for metrics and tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::reading::NoReading;

/// What one backend was asked since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendStats {
    /// Queries (or scrapes) that were answered or failed, by outcome: `None` for an answer, else the reason. Every
    /// outcome is there from the start, at 0.
    pub outcomes: BTreeMap<Option<NoReading>, u64>,
    /// Requests that left and had a response of any kind.
    pub responses: u64,
    /// Requests that were made a second time.
    pub retries: u64,
    /// Bytes of request bodies.
    pub bytes_sent: u64,
    /// Bytes of decoded response bodies.
    pub bytes_received: u64,
}

impl BackendStats {
    /// Queries or scrapes in all.
    pub fn queries(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Those that failed.
    pub fn failures(&self) -> u64 {
        self.outcomes.iter().filter(|(outcome, _)| outcome.is_some()).map(|(_, count)| count).sum()
    }
}

/// The counters behind [`BackendStats`].
#[derive(Default)]
pub(crate) struct Counters {
    answered: AtomicU64,
    failed: [AtomicU64; NoReading::ALL.len()],
    responses: AtomicU64,
    retries: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn answered(&self, outcome: Result<(), NoReading>) {
        let counter = match outcome {
            Ok(()) => Some(&self.answered),
            Err(why) => {
                NoReading::ALL.iter().position(|variant| *variant == why).and_then(|index| self.failed.get(index))
            }
        };
        if let Some(counter) = counter {
            add(counter, 1);
        }
    }

    pub(crate) fn retried(&self) {
        add(&self.retries, 1);
    }

    pub(crate) fn received(&self, sent: usize, received: usize) {
        add(&self.responses, 1);
        add(&self.sent, sent);
        add(&self.received, received);
    }

    pub(crate) fn snapshot(&self) -> BackendStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let failed = NoReading::ALL.iter().zip(&self.failed).map(|(why, counter)| (Some(*why), load(counter)));
        BackendStats {
            outcomes: std::iter::once((None, load(&self.answered))).chain(failed).collect(),
            responses: load(&self.responses),
            retries: load(&self.retries),
            bytes_sent: load(&self.sent),
            bytes_received: load(&self.received),
        }
    }
}
