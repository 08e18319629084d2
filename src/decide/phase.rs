//! The phase machine: what one round's signs do to a policy's state. It knows neither rules nor readings.
//!
//! Silent points of the design, decided here:
//! - The clock counts the time between two readings that move it if they are at most two and a half intervals apart
//!   (one missed round, with slack for late ticks). A longer step is a gap and adds nothing; one longer than
//!   `staleAfter` starts the clock over, whether or not anybody judged meanwhile.
//! - While Pending, the suspects are those of the latest breached reading: who was slow for a moment at the start is
//!   not isolated two minutes later. From Active on they add up.
//! - Becoming Blind starts the phase's clock over in every phase, unless `onNoData` moves it.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::model::phase::{Phase, Stage, State, Transition, UsableClock};
use crate::model::policy::Policy;
use crate::model::reading::PodName;
use crate::model::reason::Reason;
use crate::model::time;

use super::recovery;

/// What a subject's readings say to the clock, after `onNoData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// Breached, or as if.
    Breach,
    /// Ok, or as if.
    Ok,
    /// Nothing.
    Silent,
}

/// Everything that one round says.
#[derive(Clone, Debug)]
pub(super) struct Round<'a> {
    /// The policy.
    pub(super) policy: &'a Policy,
    /// Of the whole target.
    pub(super) whole: Sign,
    /// Of what came back; none where nothing of it has readings of its own, so that the whole serves.
    pub(super) probe: Option<Sign>,
    /// Why there was no usable reading of the whole; none: there was one.
    pub(super) unusable: Option<Reason>,
    /// Whether an exception covers this moment.
    pub(super) excepted: bool,
    /// Suspects of this round, worst first, such as exist.
    pub(super) suspects: Vec<PodName>,
    /// Pods of the policy's own that are isolated now, sorted.
    pub(super) isolated: Vec<PodName>,
    /// Whether effects of the policy keep traffic away from anything.
    pub(super) diverts: bool,
    /// Least time open, for the first opening of an episode.
    pub(super) timeout: Duration,
    /// Actions that the rule asks for instead of the written ones.
    pub(super) replacement: Option<serde_json::Value>,
    /// When.
    pub(super) now: DateTime<Utc>,
}

/// The state after this round, and the steps that led there (at most one).
pub(super) fn step(state: &State, round: &Round<'_>) -> (State, Vec<Transition>) {
    let mut next = state.clone();
    next.held = None;
    note_sight(&mut next, round);
    if round.excepted {
        next.held = Some(Reason::Excepted);
        return (next, Vec::new());
    }
    let moved = match state.phase {
        Phase::Healthy => while_healthy(&mut next, round),
        Phase::Pending => while_pending(&mut next, round),
        Phase::Active => while_active(&mut next, round),
        Phase::Recovering => while_recovering(&mut next, round),
    };
    let transition =
        moved.map(|reason| Transition { from: state.phase, to: next.phase, stage: next.stage, reason, at: round.now });
    (next, transition.into_iter().collect())
}

/// Back to Healthy with nothing held, for a reason that is no reading: suspension, a target that is gone.
pub(super) fn rest(state: &State, reason: Reason, now: DateTime<Utc>) -> (State, Vec<Transition>) {
    let mut next = state.clone();
    let moved = state.phase != Phase::Healthy;
    if moved {
        to_healthy(&mut next, now);
    }
    next.held = Some(reason);
    let transition = Transition { from: state.phase, to: Phase::Healthy, stage: None, reason, at: now };
    (next, moved.then_some(transition).into_iter().collect())
}

fn note_sight(next: &mut State, round: &Round<'_>) {
    let Some(reason) = round.unusable else {
        next.last_usable = Some(round.now);
        next.blind = None;
        return;
    };
    let since = next.last_usable.unwrap_or(next.judged_since);
    if time::elapsed(since, round.now) > round.policy.stale_after {
        next.blind = Some(reason);
        next.held = Some(Reason::Blind);
        if round.whole == Sign::Silent {
            next.clock = UsableClock::default();
        }
    }
}

fn while_healthy(next: &mut State, round: &Round<'_>) -> Option<Reason> {
    if round.whole != Sign::Breach {
        return None;
    }
    enter(next, Phase::Pending, round.now);
    next.episode = round.now.format("%Y%m%dT%H%M%S%.3fZ").to_string();
    next.suspects.clone_from(&round.suspects);
    advance(&mut next.clock, round);
    Some(Reason::BreachPending)
}

fn while_pending(next: &mut State, round: &Round<'_>) -> Option<Reason> {
    match round.whole {
        Sign::Silent => None,
        Sign::Ok => {
            to_healthy(next, round.now);
            Some(Reason::BreachEnded)
        }
        Sign::Breach => {
            if round.unusable.is_none() {
                next.suspects.clone_from(&round.suspects);
            }
            advance(&mut next.clock, round);
            if next.clock.run < round.policy.duration {
                return None;
            }
            enter(next, Phase::Active, round.now);
            next.opened_at = Some(round.now);
            next.replacement.clone_from(&round.replacement);
            Some(Reason::BreachConfirmed)
        }
    }
}

fn while_active(next: &mut State, round: &Round<'_>) -> Option<Reason> {
    match round.whole {
        Sign::Silent => None,
        Sign::Breach => {
            add_suspects(next, round);
            next.clock = UsableClock::default();
            None
        }
        Sign::Ok => {
            advance(&mut next.clock, round);
            let open = time::elapsed(next.opened_at.unwrap_or(next.since), round.now);
            if open < recovery::backed_off(round.timeout, next.reopened) || next.clock.run < round.policy.recovery {
                return None;
            }
            if !round.diverts {
                to_healthy(next, round.now);
                return Some(Reason::Recovered);
            }
            enter(next, Phase::Recovering, round.now);
            next.stage = Some(Stage::Probe);
            next.returned = recovery::returned_at(Stage::Probe, &round.isolated, &[]);
            Some(Reason::HalfOpen)
        }
    }
}

fn while_recovering(next: &mut State, round: &Round<'_>) -> Option<Reason> {
    let stage = next.stage.unwrap_or(Stage::Probe);
    let probe = round.probe.unwrap_or(round.whole);
    if round.whole == Sign::Breach || probe == Sign::Breach {
        add_suspects(next, round);
        enter(next, Phase::Active, round.now);
        next.opened_at = Some(round.now);
        next.reopened = next.reopened.saturating_add(1);
        return Some(Reason::ProbeFailed);
    }
    if stage == Stage::Probe && next.returned.is_empty() && !round.isolated.is_empty() {
        // The Pod that came back as the probe is gone: another one takes its place, and is judged from the start.
        next.returned = recovery::returned_at(Stage::Probe, &round.isolated, &[]);
        next.clock = UsableClock::default();
        return None;
    }
    if round.whole == Sign::Silent || probe == Sign::Silent {
        next.held = next.held.or(Some(Reason::NoEvidence));
        return None;
    }
    advance(&mut next.clock, round);
    if next.clock.run < round.policy.recovery {
        return None;
    }
    let Some(following) = recovery::after(stage) else {
        to_healthy(next, round.now);
        return Some(Reason::Recovered);
    };
    let returned = recovery::returned_at(following, &round.isolated, &next.returned);
    enter(next, Phase::Recovering, round.now);
    next.stage = Some(following);
    next.returned = returned;
    Some(Reason::ProbeOk)
}

/// Enters a phase or stage: its clock starts, nothing has come back.
fn enter(next: &mut State, phase: Phase, now: DateTime<Utc>) {
    next.phase = phase;
    next.since = now;
    next.stage = None;
    next.clock = UsableClock::default();
    next.returned = Vec::new();
}

/// Ends the episode. What was seen and when is kept, so that Blind stays Blind.
fn to_healthy(next: &mut State, now: DateTime<Utc>) {
    enter(next, Phase::Healthy, now);
    next.opened_at = None;
    next.reopened = 0;
    next.suspects = Vec::new();
    next.episode = String::new();
    next.replacement = None;
}

/// The union over the episode: this round's suspects first, since the worst is known best now.
fn add_suspects(next: &mut State, round: &Round<'_>) {
    let mut suspects = round.suspects.clone();
    suspects.extend(next.suspects.iter().filter(|pod| !round.suspects.contains(pod)).cloned());
    next.suspects = suspects;
}

/// Lets the clock run to now, unless the step is a gap.
fn advance(clock: &mut UsableClock, round: &Round<'_>) {
    if let Some(until) = clock.ran_until {
        let step = time::elapsed(until, round.now);
        let interval = round.policy.interval;
        if step <= interval.saturating_mul(5) / 2 {
            clock.run = clock.run.saturating_add(step);
        } else if step > round.policy.stale_after {
            clock.run = Duration::ZERO;
        }
    }
    clock.ran_until = Some(round.now);
}
