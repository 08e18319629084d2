//! The status of both policy kinds: where a policy stands, why, and all that a restart needs to go on from there.
//!
//! Live values are elsewhere (the HTTP surface, metrics); what stands here changes seldom.

use std::time::Duration;

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::Condition;
use super::schema;
use crate::model::phase::{Phase, Stage, State, UsableClock};
use crate::model::reason::Reason;
use crate::model::time;

/// How many changes status keeps.
pub const HISTORY: usize = 20;

/// The status of a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// The metadata.generation that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Healthy, Pending (a breach has begun), Active (it lasted; effects stand) or Recovering (effects return).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// How much has returned while Recovering: Probe, Half or All.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Since when the policy is in its phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<DateTime<Utc>>,
    /// The last readings against their thresholds, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<String>,
    /// The phase's clock: of `duration` while Pending, of quiet while Active, of evidence while Recovering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<PhaseClock>,
    /// Since when the effects are open; `timeout` counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub opened: Option<DateTime<Utc>>,
    /// How often recovery failed in this episode; each time doubles `timeout`, up to 16-fold.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reopened: u32,
    /// When the last usable reading came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_usable: Option<DateTime<Utc>>,
    /// Since when this policy is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub judged_since: Option<DateTime<Utc>>,
    /// Why there is no usable reading, while the policy is Blind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blind: Option<String>,
    /// Why the last judgement left the phase as it is, where that needs saying (NoEvidence and the like).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Pods held responsible in this episode, worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<String>,
    /// Pods that came back as a probe, while Recovering.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<String>,
    /// Name of the episode, from leaving Healthy to being Healthy again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode: Option<String>,
    /// Actions that the rule asked for in place of the written ones, fixed for the episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::anything")]
    pub replacement: Option<Value>,
    /// The last reading of each signal, at most a minute old while the policy is measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalStatus>,
    /// The queries as they were sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QueryStatus>,
    /// The text that is in force: `generation/3` where it is that of the object's metadata.generation 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The target's Pods, and how they were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadStatus>,
    /// What the policy wants and does not get, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_back: Vec<HeldBack>,
    /// The last 20 changes of phase or stage, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Change>,
    /// Accepted, Enforced, Breached, Blind, Overridden, Contested, Suspended, Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands a reference
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A clock that runs only while readings are usable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseClock {
    /// How much has run, such as `1m20s`.
    pub run: String,
    /// The last usable reading that let it run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub ran_until: Option<DateTime<Utc>>,
}

/// The last reading of a signal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalStatus {
    /// Name of the signal.
    pub name: String,
    /// The value in `unit`; absent: there is no reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Base unit of value and threshold: s, ratio, By or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The threshold as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// Why there is no reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A query as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueryStatus {
    /// Name of the backend.
    pub backend: String,
    /// The text.
    pub text: String,
}

/// The Pods of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// How the Pods were found.
    pub resolved_by: String,
    /// Kind of the topmost controller of the Pods.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// How many Pods there are.
    pub pods: u32,
    /// How many of them are isolated.
    pub isolated: u32,
    /// How many may be isolated at once.
    pub budget: u32,
}

/// Something that the policy wants and does not get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldBack {
    /// What.
    pub slot: String,
    /// Why, as one word of a closed list.
    pub reason: String,
    /// Why, for people.
    pub message: String,
}

/// One change of phase or stage, with what it rested on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// When.
    #[schemars(schema_with = "schema::time")]
    pub time: DateTime<Utc>,
    /// The phase before.
    pub from: Phase,
    /// The phase after.
    pub to: Phase,
    /// The stage reached, if Recovering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Why, as one word of a closed list.
    pub reason: String,
    /// The signal that decided, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Its value in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Base unit of the value: s, ratio, By or 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The threshold as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<String>,
    /// The time span that the value covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// How many series the value was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<u32>,
    /// The query as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The text that was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// ok, breached or unknown.
    pub verdict: String,
    /// Name of the decision in logs and audit records.
    pub decision_id: String,
}

impl PolicyStatus {
    /// Where the policy stood when this was written; none if it was never judged.
    pub fn state(&self) -> Option<State> {
        let since = self.since?;
        let clock = self.clock.clone().unwrap_or_default();
        Some(State {
            phase: self.phase?,
            since,
            stage: self.stage,
            clock: UsableClock { run: read_run(&clock.run), ran_until: clock.ran_until },
            opened_at: self.opened,
            reopened: self.reopened,
            last_usable: self.last_usable,
            judged_since: self.judged_since.unwrap_or(since),
            // A reason that this build does not know must not make the policy see again.
            blind: self.blind.as_deref().map(|name| Reason::parse(name).unwrap_or(Reason::Blind)),
            suspects: self.suspects.clone(),
            returned: self.returned.clone(),
            episode: self.episode.clone().unwrap_or_default(),
            replacement: self.replacement.clone(),
            held: self.held.as_deref().and_then(Reason::parse),
        })
    }

    /// The same status with this state in it; [`Self::state`] gives it back.
    #[must_use]
    pub fn with_state(self, state: &State) -> Self {
        Self {
            phase: Some(state.phase),
            stage: state.stage,
            since: Some(state.since),
            clock: (state.clock != UsableClock::default())
                .then(|| PhaseClock { run: write_run(state.clock.run), ran_until: state.clock.ran_until }),
            opened: state.opened_at,
            reopened: state.reopened,
            last_usable: state.last_usable,
            judged_since: Some(state.judged_since),
            blind: state.blind.map(|reason| reason.as_str().to_owned()),
            held: state.held.map(|reason| reason.as_str().to_owned()),
            suspects: state.suspects.clone(),
            returned: state.returned.clone(),
            episode: (!state.episode.is_empty()).then(|| state.episode.clone()),
            replacement: state.replacement.clone(),
            ..self
        }
    }

    /// Adds a change to the history; the oldest goes once there are more than [`HISTORY`].
    pub fn record(&mut self, change: Change) {
        self.history.push(change);
        let surplus = self.history.len().saturating_sub(HISTORY);
        self.history.drain(..surplus);
    }
}

/// Like [`time::Written`], but to the nanosecond: the clock must come back as it was.
fn write_run(run: Duration) -> String {
    let (minutes, seconds) = (run.as_secs() / 60, run.as_secs() % 60);
    let minutes = if minutes > 0 { format!("{minutes}m") } else { String::new() };
    let fraction = match run.subsec_nanos() {
        0 => String::new(),
        nanos => format!(".{nanos:09}").trim_end_matches('0').to_owned(),
    };
    format!("{minutes}{seconds}{fraction}s")
}

fn read_run(written: &str) -> Duration {
    // Zero is no duration that a person may write; here it is the clock that has not run.
    time::parse_duration(written).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
