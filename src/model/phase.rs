//! Where a policy stands. All of it is kept in status, so that a restart goes on where it stood.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::reading::PodName;
use super::reason::Reason;

/// The four phases. Blind and Suspended are conditions beside them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum Phase {
    /// Nothing is wrong.
    #[default]
    Healthy,
    /// A breach has begun.
    Pending,
    /// The breach lasted; effects stand.
    Active,
    /// Half open: effects are taken back step by step.
    Recovering,
}

impl Phase {
    /// As in status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Pending => "Pending",
            Self::Active => "Active",
            Self::Recovering => "Recovering",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much has come back while Recovering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Stage {
    /// One isolated Pod and a small share of the weight.
    Probe,
    /// Half of both.
    Half,
    /// All of both; the mode still stands.
    All,
}

/// Time that runs only while readings are usable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsableClock {
    /// How much has run.
    pub run: Duration,
    /// The last usable reading that let it run; none: the next one starts it.
    pub ran_until: Option<DateTime<Utc>>,
}

/// A policy's state: everything that judging needs to remember.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The phase.
    pub phase: Phase,
    /// Since when.
    pub since: DateTime<Utc>,
    /// The stage, while Recovering.
    pub stage: Option<Stage>,
    /// The phase's clock: of `duration` while Pending, of quiet while Active, of evidence while Recovering.
    pub clock: UsableClock,
    /// When effects were (last) opened: `timeout` counts from here. None unless Active or Recovering.
    pub opened_at: Option<DateTime<Utc>>,
    /// How often recovery failed in this episode; doubles `timeout` each time, up to 16-fold.
    pub reopened: u32,
    /// The last usable reading; a gap longer than `staleAfter` is Blind.
    pub last_usable: Option<DateTime<Utc>>,
    /// When judging began, so that a policy that never had a reading becomes Blind too.
    pub judged_since: DateTime<Utc>,
    /// Whether the policy is Blind, and why.
    pub blind: Option<Reason>,
    /// Pods held responsible in this episode, worst first.
    pub suspects: Vec<PodName>,
    /// Pods that came back as a probe, while Recovering.
    pub returned: Vec<PodName>,
    /// Name of the episode; empty while Healthy.
    pub episode: String,
    /// Replacement actions of the rule, fixed for the episode (as the rule wrote them, checked).
    pub replacement: Option<serde_json::Value>,
    /// Why the last judgement left the phase as it is, where that needs saying (`NoEvidence`, `Blind`, …).
    pub held: Option<Reason>,
}

impl State {
    /// A policy that was never judged.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self {
            phase: Phase::Healthy,
            since: now,
            stage: None,
            clock: UsableClock::default(),
            opened_at: None,
            reopened: 0,
            last_usable: None,
            judged_since: now,
            blind: None,
            suspects: Vec::new(),
            returned: Vec::new(),
            episode: String::new(),
            replacement: None,
            held: None,
        }
    }
}

/// One step from a phase (and stage) to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// From.
    pub from: Phase,
    /// To; the same as `from` where only the stage moved.
    pub to: Phase,
    /// The stage reached, if Recovering.
    pub stage: Option<Stage>,
    /// Why.
    pub reason: Reason,
    /// When.
    pub at: DateTime<Utc>,
}
