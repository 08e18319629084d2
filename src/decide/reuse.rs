//! When a verdict needs no asking: the rule would say again what it said last time.
//!
//! Rego is a pure function of its input, so the same input gives the same verdict. But no two rounds have the same input:
//! `now` and `ageSeconds` move, `requests` wobbles. What decides is the part of the input that the rule can look at:
//!
//! - The shipped latency rule, known by its bytes, looks at thresholds and at the value, unit and reason of readings,
//!   and at nothing else ([`Footprint::Readings`]; a property test asks it with everything else changed).
//! - Of any other rule nothing is known, so it is always asked. A tenant's rule may well depend on `input.now`.
//!
//! Policy, tenant, thresholds and rule are the same where the compiled [`Entry`] is the same. Age and the number of requests
//! count in Rust, before the rule is asked: they make a reading a reason (`Stale`, `TooFewRequests`). So only readings
//! that count as they are, then and now, are compared.
//!
//! Only an `ok` is taken over. It names no suspects and no actions, so nothing about it depends on exceptions, on Pods that
//! exist or on the clock; and what is breached or unknown deserves a look each time. Only the verdict is taken over: the
//! phase machine runs at every round, on the round's own time.

use chrono::{DateTime, Utc};

use crate::model::reading::{Observation, Readings, Signal};
use crate::model::verdict::{Outcome, Verdict};
use crate::rego::Footprint;

use super::entry::Entry;
use super::evaluate::counts_as_it_is;

/// A policy's last round.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// What was in force.
    pub entry: &'a Entry,
    /// What was measured.
    pub observation: &'a Observation,
    /// What the rule said of it.
    pub verdict: &'a Verdict,
    /// When it was judged.
    pub at: DateTime<Utc>,
}

/// Where a verdict comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The rule was asked.
    Evaluated,
    /// The rule would say what it said before.
    Reused,
    /// Nobody was asked: the policy is suspended, or its target is gone.
    NotAsked,
}

/// The verdict of the round before, where the rule would give it again on this observation.
pub(super) fn verdict<'a>(
    before: Before<'a>,
    entry: &Entry,
    observation: &Observation,
    now: DateTime<Utc>,
) -> Option<&'a Verdict> {
    let same = before.verdict.outcome == Outcome::Ok
        && entry.rule.footprint() == Footprint::Readings
        && entry.is(before.entry)
        && are_alike(&before.observation.readings, &observation.readings)
        && before.observation.pods.len() == observation.pods.len()
        && before
            .observation
            .pods
            .iter()
            .zip(&observation.pods)
            .all(|((old_pod, old), (new_pod, new))| old_pod == new_pod && are_alike(old, new))
        && counts_as_it_is(entry, before.observation, before.at)
        && counts_as_it_is(entry, observation, now);
    same.then_some(before.verdict)
}

fn are_alike(old: &Readings, new: &Readings) -> bool {
    old.len() == new.len()
        && old.iter().zip(new).all(|((old_name, old), (new_name, new))| old_name == new_name && is_alike(old, new))
}

/// The same to the bit in everything that the rule looks at.
fn is_alike(old: &Signal, new: &Signal) -> bool {
    match (old, new) {
        (Ok(old), Ok(new)) => old.value.to_bits() == new.value.to_bits() && old.unit == new.unit,
        (Err(old), Err(new)) => old == new,
        _ => false,
    }
}
