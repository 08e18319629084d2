//! What an edit of a policy does to where it stands.

use chrono::{DateTime, Utc};

use crate::model::phase::{State, UsableClock};
use crate::model::policy::{Policy, SignalSource};
use crate::model::reading::SignalName;

/// The state under which `new` goes on after `old`.
///
/// Another target, workload or signal (its source, template or backend) starts anew: nothing is claimed, so what
/// stands is undone first. Other thresholds, durations, windows or rules keep the phase and restart its clock. New
/// actions, exceptions and the rest change nothing here: the next plan is made of them.
pub fn carry_over(old: &Policy, new: &Policy, state: &State, now: DateTime<Utc>) -> State {
    if !measures_the_same(old, new) {
        return State::new(now);
    }
    let mut carried = state.clone();
    if !judges_the_same(old, new) {
        carried.clock = UsableClock::default();
    }
    carried
}

fn measures_the_same(old: &Policy, new: &Policy) -> bool {
    old.target_ref == new.target_ref
        && old.pod_selector == new.pod_selector
        && old.signal_template == new.signal_template
        && old.backend == new.backend
        && sources(old).eq(sources(new))
}

fn sources(policy: &Policy) -> impl Iterator<Item = (&SignalName, &SignalSource)> {
    policy.signals.iter().map(|(name, signal)| (name, &signal.source))
}

fn judges_the_same(old: &Policy, new: &Policy) -> bool {
    old.signals == new.signals
        && old.duration == new.duration
        && old.recovery == new.recovery
        && old.interval == new.interval
        && old.window == new.window
        && old.stale_after == new.stale_after
        && old.on_no_data == new.on_no_data
        && old.min_requests == new.min_requests
        && old.rule == new.rule
}
