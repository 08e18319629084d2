//! Half-open recovery: how long a breaker stays open, what comes back at which stage, and what its evidence is.
//!
//! Silent points of the design, decided here:
//! - Every Pod that came back must be ok by its own readings, and the subset's group by its own, where such readings
//!   exist at all; one of them without a usable reading is `NoEvidence`. Where the series carry no Pods, the whole
//!   serves.
//! - `onNoData: recover` stands in for the probe's evidence only where the whole has no data either: a service with
//!   traffic whose probe gets none has proven nothing.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::model::phase::{Phase, Stage, State};
use crate::model::policy::Action;
use crate::model::quantity::Percent;
use crate::model::reading::{NoReading, Observation, PodName, Readings, SUBSET_PROBE};
use crate::model::verdict::{Outcome, Verdict};
use crate::rego::Document;

use super::entry::Entry;
use super::evaluate::evaluate_subject;

/// Least time open where traffic is diverted by actions that name no `timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// After this many failed recoveries the time open grows no more.
const MOST_DOUBLINGS: u32 = 4;

/// Least time open of these actions: the longest that a breaker names; where others divert, the default; else none.
pub(super) fn timeout_of(actions: &[Action]) -> Duration {
    let of = |action: &Action| match action {
        Action::CircuitBreaker { timeout, .. } => *timeout,
        Action::IsolatePods(_) | Action::RouteWeight { .. } => DEFAULT_TIMEOUT,
        Action::Mode(_) | Action::Notify { .. } => Duration::ZERO,
    };
    let named = actions.iter().filter(|action| matches!(action, Action::CircuitBreaker { .. })).map(of).max();
    named.or_else(|| actions.iter().map(of).max()).unwrap_or_default()
}

/// The time open after this many failed recoveries: doubled each time, at most 16-fold.
pub(super) fn backed_off(timeout: Duration, reopened: u32) -> Duration {
    timeout.saturating_mul(2_u32.saturating_pow(reopened.min(MOST_DOUBLINGS)))
}

/// The stage after this one; none: all is back.
pub(super) fn after(stage: Stage) -> Option<Stage> {
    match stage {
        Stage::Probe => Some(Stage::Half),
        Stage::Half => Some(Stage::All),
        Stage::All => None,
    }
}

/// The share of what was diverted that is back at this point: nothing while Active, everything at the last stage.
pub(super) fn share_back(state: &State, probe: Percent) -> Percent {
    match (state.phase, state.stage) {
        (Phase::Recovering, Some(Stage::All)) => Percent::ALL,
        (Phase::Recovering, Some(Stage::Half)) => Percent::HALF,
        (Phase::Recovering, _) => probe,
        _ => Percent::NONE,
    }
}

/// Which Pods are back at `stage`: those that came back before, and of the isolated ones as many as the stage lets.
pub(super) fn returned_at(stage: Stage, isolated: &[PodName], returned: &[PodName]) -> Vec<PodName> {
    let mut waiting: Vec<&PodName> = isolated.iter().filter(|pod| !returned.contains(pod)).collect();
    waiting.sort();
    let total = waiting.len().saturating_add(returned.len());
    let wanted = match stage {
        Stage::Probe => total.min(1),
        Stage::Half => total.div_ceil(2),
        Stage::All => total,
    };
    let more = wanted.saturating_sub(returned.len());
    let mut back: Vec<PodName> = returned.iter().chain(waiting.into_iter().take(more)).cloned().collect();
    back.sort();
    back
}

/// What the readings of that which came back say, by the policy's own rule. None where there are no such readings,
/// so that the whole serves.
pub(super) fn probe_verdict(
    entry: &Entry,
    observation: &Observation,
    target: &Document,
    state: &State,
    now: DateTime<Utc>,
) -> Option<Verdict> {
    if state.phase != Phase::Recovering {
        return None;
    }
    let unmeasured = Readings::new();
    let group = observation.groups.get(SUBSET_PROBE).filter(|readings| is_measured(readings));
    let pods_measured = observation.pods.values().any(is_measured);
    let returned = state.returned.iter().filter(|_| pods_measured);
    let pods = returned.map(|pod| observation.pods.get(pod).unwrap_or(&unmeasured));
    let verdicts =
        pods.chain(group).map(|readings| evaluate_subject(entry, readings, target, state.phase, observation.at, now));
    // Any breached subject decides, then any silent one.
    verdicts.max_by_key(|verdict| match verdict.outcome {
        Outcome::Breached => 2,
        Outcome::Unknown(_) => 1,
        Outcome::Ok => 0,
    })
}

fn is_measured(readings: &Readings) -> bool {
    readings.values().any(|signal| !matches!(signal, Err(NoReading::NotMeasured)))
}
