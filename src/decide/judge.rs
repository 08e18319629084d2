//! Judging one policy: evaluate, then move its phase. The same input and time give the same judgement.

use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use sha2::{Digest, Sha256};

use crate::model::facts;
use crate::model::phase::{Phase, State, Transition};
use crate::model::policy::OnNoData;
use crate::model::reading::{Observation, PodName, Readings};
use crate::model::reason::Reason;
use crate::model::verdict::{Outcome, Verdict};
use crate::rego::Document;

use super::entry::Entry;
use super::evaluate::{evaluate, is_excepted, is_excepted_at};
use super::phase::{self, Round, Sign};
use super::recovery;
use super::reuse::{self, Before, Origin};
use super::standing::Standing;

/// What one round decided for one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// On the whole target. Suspects are such as exist.
    pub verdict: Verdict,
    /// On what came back, while Recovering and where it has readings of its own.
    pub probe: Option<Verdict>,
    /// Where the policy stands now.
    pub state: State,
    /// How it got there; empty where it stayed.
    pub transitions: Vec<Transition>,
    /// Names this decision: the same for the same inputs.
    pub decision_id: String,
}

/// One policy's turn: everything that its judgement depends on.
#[derive(Clone, Copy, Debug)]
pub struct Turn<'a> {
    /// What is in force.
    pub entry: &'a Entry,
    /// What was measured.
    pub observation: &'a Observation,
    /// The live object as rules see it.
    pub target: &'a Document,
    /// What is known of the target.
    pub facts: &'a facts::Target,
    /// What stands for the policy.
    pub standing: &'a Standing,
    /// Where the policy stands.
    pub state: &'a State,
    /// When.
    pub now: DateTime<Utc>,
}

/// Judges `entry` on what was observed. `target` is the live object as rules see it.
///
/// A suspended policy and one whose target is gone are not judged: they hold nothing and rest in Healthy.
pub fn judge(
    entry: &Entry,
    observation: &Observation,
    target: &Document,
    facts: &facts::Target,
    standing: &Standing,
    state: &State,
    now: DateTime<Utc>,
) -> Judgement {
    judge_after(None, Turn { entry, observation, target, facts, standing, state, now }).0
}

/// As [`judge`], to the same judgement, without asking the rule where the round before proves what it would say.
pub fn judge_after(before: Option<Before<'_>>, turn: Turn<'_>) -> (Judgement, Origin) {
    let Turn { entry, observation, target, facts, standing, state, now } = turn;
    let decision_id = decision_id(entry, observation, facts, standing, state, now);
    let no_judging = [(entry.policy.suspend, Reason::Suspended), (facts.uid.is_none(), Reason::TargetNotFound)];
    if let Some((_, reason)) = no_judging.into_iter().find(|(applies, _)| *applies) {
        let (state, transitions) = phase::rest(state, reason, now);
        let verdict = Verdict::unknown(reason);
        return (Judgement { verdict, probe: None, state, transitions, decision_id }, Origin::NotAsked);
    }
    let state = present(entry, facts, state, now);
    let known = before.and_then(|before| reuse::verdict(before, entry, observation, now));
    let (mut verdict, origin) = match known {
        Some(verdict) => (verdict.clone(), Origin::Reused),
        None => (evaluate(entry, observation, target, state.phase, now), Origin::Evaluated),
    };
    verdict.suspects.retain(|pod| exists(facts, pod));
    let probe = recovery::probe_verdict(entry, observation, target, &state, now);
    let on_no_data = entry.policy.on_no_data;
    let actions = entry.actions(&state);
    let mut isolated: Vec<PodName> =
        standing.isolated.iter().filter(|pod| state.suspects.contains(pod)).cloned().collect();
    isolated.sort();
    let round = Round {
        policy: &entry.policy,
        whole: sign_of(&verdict, on_no_data),
        probe: probe.as_ref().map(|probe| sign_of_probe(probe, &verdict, on_no_data)),
        unusable: match verdict.outcome {
            Outcome::Unknown(reason) => Some(reason),
            Outcome::Ok | Outcome::Breached => None,
        },
        excepted: is_excepted_at(&entry.policy, now),
        suspects: verdict.suspects.clone(),
        diverts: !isolated.is_empty() || standing.diverts_weight,
        isolated,
        timeout: recovery::timeout_of(&actions),
        replacement: verdict.actions.clone(),
        now,
    };
    let (state, transitions) = phase::step(&state, &round);
    (Judgement { verdict, probe, state, transitions, decision_id }, origin)
}

/// When the policy is to be judged next: the next multiple of its interval, so that policies of one interval share
/// a tick and their queries.
pub fn next_due(entry: &Entry, now: DateTime<Utc>) -> DateTime<Utc> {
    let interval = TimeDelta::from_std(entry.policy.interval).unwrap_or(TimeDelta::MAX);
    let floor = now.duration_trunc(interval).unwrap_or(now);
    floor.checked_add_signed(interval).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// `onNoData` moves the clock as if, at every round; the verdict stays unknown. A failing backend always holds.
fn sign_of(verdict: &Verdict, on_no_data: OnNoData) -> Sign {
    match (verdict.outcome, verdict.no_data, on_no_data) {
        (Outcome::Ok, _, _) | (Outcome::Unknown(_), true, OnNoData::Recover) => Sign::Ok,
        (Outcome::Breached, _, _) | (Outcome::Unknown(_), true, OnNoData::Breach) => Sign::Breach,
        (Outcome::Unknown(_), _, _) => Sign::Silent,
    }
}

/// A probe without data is evidence of nothing, unless the whole has none either and the policy says `recover`.
fn sign_of_probe(probe: &Verdict, whole: &Verdict, on_no_data: OnNoData) -> Sign {
    let applies = on_no_data == OnNoData::Recover && whole.no_data && whole.outcome != Outcome::Ok;
    sign_of(probe, if applies { on_no_data } else { OnNoData::Hold })
}

/// The state with only such Pods as exist and are not excepted. Where the Pods cannot be told now, all stay.
fn present(entry: &Entry, facts: &facts::Target, state: &State, now: DateTime<Utc>) -> State {
    let mut state = state.clone();
    if state.phase != Phase::Healthy {
        state.suspects.retain(|pod| exists(facts, pod) && !is_excepted(&entry.policy, pod, now));
        state.returned.retain(|pod| exists(facts, pod));
    }
    state
}

fn exists(facts: &facts::Target, pod: &str) -> bool {
    facts.workload.as_ref().map_or(true, |workload| workload.pods.get(pod).is_some_and(|pod| !pod.terminating))
}

fn decision_id(
    entry: &Entry,
    observation: &Observation,
    facts: &facts::Target,
    standing: &Standing,
    state: &State,
    now: DateTime<Utc>,
) -> String {
    let mut hash = Fingerprint::default();
    let policy = &entry.policy;
    hash.text(policy.key.kind.as_str()).text(&policy.key.namespace).text(&policy.key.name).text(&policy.uid);
    hash.number(policy.generation.cast_unsigned()).text(facts.uid.as_deref().unwrap_or_default());
    hash.instant(now).instant(observation.at);
    hash.readings(&observation.readings);
    for (name, readings) in observation.pods.iter().chain(&observation.groups) {
        hash.text(name).readings(readings);
    }
    hash.text(state.phase.as_str()).instant(state.since).duration(state.clock.run);
    for pod in standing.isolated.iter().chain(&state.suspects).chain(&state.returned) {
        hash.text(pod);
    }
    hash.number(u64::from(standing.diverts_weight));
    hash.name()
}

/// A hash over fields, each with its length, so that no two inputs run together.
#[derive(Default)]
struct Fingerprint(Sha256);

impl Fingerprint {
    fn text(&mut self, text: &str) -> &mut Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(number.to_le_bytes());
        self
    }

    fn instant(&mut self, at: DateTime<Utc>) -> &mut Self {
        self.number(at.timestamp_micros().cast_unsigned())
    }

    fn duration(&mut self, duration: Duration) -> &mut Self {
        self.number(duration.as_micros() as u64)
    }

    fn readings(&mut self, readings: &Readings) -> &mut Self {
        for (name, signal) in readings {
            self.text(name);
            match signal {
                Ok(reading) => self.number(reading.value.to_bits()).number(reading.age_seconds.to_bits()),
                Err(why) => self.text(why.reason().as_str()),
            };
        }
        self
    }

    fn name(self) -> String {
        let number = self.0.finalize().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("{number:016x}")
    }
}
