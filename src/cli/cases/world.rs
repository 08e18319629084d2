//! What a case runs in: policies with their states, a target as it is said to be, and records of what stands. What
//! a plan says counts as done.

mod facts;
mod setup;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use crate::api::PolicyStatus;
use crate::cli::readings::readings_of;
use crate::decide::{self, Budgets, Decision, Entry, Facts, Freeze, Plan, Surroundings};
use crate::model::effect::{Desired, InterventionPhase, IsolatedBy, IsolatedPod, Original, Record, Records};
use crate::model::phase::State;
use crate::model::policy::PolicyKey;
use crate::model::problem::Problem;
use crate::model::reading::{GroupName, NoReading, Observation, PodName, Readings, SentQuery};
use crate::model::reason::Reason;
use crate::model::slot::Slot;
use crate::model::tenant::Tenant;
use crate::model::time;
use crate::rego::Document;

use super::format::{Case, Moment, Step};

/// One policy of the case.
pub(super) struct Member {
    object: Value,
    tenant: Arc<Tenant>,
    changed_at: Option<DateTime<Utc>>,
    pub(super) entry: Entry,
    pub(super) state: State,
    readings: Option<Readings>,
    pods: BTreeMap<PodName, Readings>,
    groups: BTreeMap<GroupName, Readings>,
    due: DateTime<Utc>,
    /// The last round.
    pub(super) round: Option<Round>,
    /// Why its phase or stage moved since the step before.
    pub(super) moved: Vec<Reason>,
}

/// One round of one policy.
pub(super) struct Round {
    pub(super) decision: Decision,
    pub(super) observation: Observation,
    pub(super) facts: Arc<crate::model::facts::Target>,
}

pub(super) struct World {
    /// By name; names are unique within a case.
    pub(super) members: BTreeMap<String, Member>,
    targets: BTreeMap<String, Value>,
    surroundings: Arc<Surroundings>,
    budgets: Budgets,
    pub(super) records: Records,
    /// Whose wishes are in what stands.
    pub(super) contributors: BTreeMap<Slot, Vec<PolicyKey>>,
    pub(super) plan: Plan,
    start: DateTime<Utc>,
    pub(super) now: DateTime<Utc>,
    is_down: bool,
}

impl World {
    pub(super) fn of(case: &Case) -> Result<Self, Vec<Problem>> {
        setup::world(case)
    }

    /// How long the case has run.
    pub(super) fn elapsed(&self) -> Duration {
        time::elapsed(self.start, self.now)
    }

    /// The only policy, for what a step says without a name.
    pub(super) fn only(&self) -> Option<&str> {
        let mut names = self.members.keys();
        names.next().filter(|_| self.members.len() == 1).map(String::as_str)
    }

    /// Judges up to the step on what was said before, makes the step's changes, and judges there.
    pub(super) fn move_to(&mut self, at: &str, step: &Step) -> Result<(), Vec<Problem>> {
        let time = self.time_of(at, &step.at)?;
        for member in self.members.values_mut() {
            member.moved.clear();
        }
        if self.is_down {
            self.wake_at(time);
        } else {
            self.run_until(time)?;
        }
        self.now = time;
        self.change(at, step)?;
        self.is_down = step.down;
        if !step.down {
            self.round()?;
        }
        Ok(())
    }

    fn time_of(&self, at: &str, written: &str) -> Result<DateTime<Utc>, Vec<Problem>> {
        let path = format!("{at}.at");
        let since = match written {
            "0s" => Duration::ZERO,
            text => time::parse_duration(text).map_err(|error| {
                vec![Problem::expected(&path, error, "a duration since the case began, such as `2m10s`")]
            })?,
        };
        let time = TimeDelta::from_std(since).ok().and_then(|since| self.start.checked_add_signed(since));
        match time {
            Some(time) if time >= self.now => Ok(time),
            _ => {
                Err(vec![Problem::expected(&path, format!("`{written}` lies before the step before"), "a later time")])
            }
        }
    }

    fn run_until(&mut self, time: DateTime<Utc>) -> Result<(), Vec<Problem>> {
        while let Some(due) = self.members.values().map(|member| member.due).min().filter(|due| *due < time) {
            self.now = due;
            self.round()?;
        }
        Ok(())
    }

    /// The engine starts again: it is due at once, and knows what status says.
    fn wake_at(&mut self, time: DateTime<Utc>) {
        for member in self.members.values_mut() {
            member.due = time;
        }
    }

    fn change(&mut self, at: &str, step: &Step) -> Result<(), Vec<Problem>> {
        let single = Moment {
            readings: step.readings.clone(),
            pods: step.pods.clone(),
            groups: step.groups.clone(),
            edit: step.edit.clone(),
            delete: step.delete,
            expect: None,
        };
        // What a step says without a name is said of every policy.
        for name in self.members.keys().cloned().collect::<Vec<_>>() {
            self.change_member(at, &name, &single)?;
        }
        for (name, moment) in &step.of {
            self.change_member(&format!("{at}.of.{name}"), name, moment)?;
        }
        let single = step.target.iter().flat_map(|patch| self.targets.keys().map(move |name| (name.clone(), patch)));
        let named = step.targets.iter().map(|(name, patch)| (name.clone(), patch));
        for (name, patch) in single.chain(named).collect::<Vec<_>>() {
            let target = self.targets.entry(name).or_default();
            json_patch::merge(target, patch);
            setup::pods_by_name(target);
        }
        for kind in &step.contested {
            for record in self.records.values_mut().filter(|record| record.slot.kind() == kind && record.stands()) {
                record.phase = InterventionPhase::Contested;
            }
        }
        self.budgets.freeze = match step.freeze.as_deref() {
            None => self.budgets.freeze,
            Some("none") => Freeze::None,
            Some("new") => Freeze::New,
            Some("all") => Freeze::All,
            Some(other) => {
                let found = format!("`{other}` is no freeze");
                return Err(vec![Problem::expected(format!("{at}.freeze"), found, "none, new or all")]);
            }
        };
        Ok(())
    }

    fn change_member(&mut self, at: &str, name: &str, moment: &Moment) -> Result<(), Vec<Problem>> {
        let Some(member) = self.members.get_mut(name) else {
            let known = self.members.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(vec![Problem::expected(at, "is no policy of the case", known)]);
        };
        if let Some(readings) = &moment.readings {
            member.readings = Some(readings_of(&format!("{at}.readings"), readings)?);
        }
        let subjects = |what: &str, of: &BTreeMap<String, _>| {
            let converted = of.iter().map(|(subject, readings)| {
                Ok((subject.clone(), readings_of(&format!("{at}.{what}.{subject}"), readings)?))
            });
            converted.collect::<Result<BTreeMap<String, Readings>, Vec<Problem>>>()
        };
        if let Some(pods) = &moment.pods {
            member.pods = subjects("pods", pods)?;
        }
        if let Some(groups) = &moment.groups {
            member.groups = subjects("groups", groups)?;
        }
        if let Some(patch) = &moment.edit {
            member.edit(patch, &self.surroundings, self.now)?;
        }
        if moment.delete {
            self.members.remove(name);
        }
        Ok(())
    }

    /// Judges every policy that is due, plans, and counts the plan as done.
    fn round(&mut self) -> Result<(), Vec<Problem>> {
        let now = self.now;
        let mut all_facts = Facts::new();
        for (name, member) in &mut self.members {
            let target = self.targets.get(&member.entry.policy.target_ref.name).unwrap_or(&Value::Null);
            let (facts, object) = facts::of(&member.entry.policy, target, &self.records)?;
            let facts = Arc::new(facts);
            all_facts.insert(member.entry.policy.key.clone(), Arc::clone(&facts));
            if member.due <= now {
                member.judge(name, &Document::from_json(&object), facts, &self.records, now);
            }
        }
        let rounds = self.members.values().filter_map(|member| member.round.as_ref());
        let decisions = rounds.map(|round| (round.decision.claims.as_slice(), round.decision.held.as_slice()));
        self.plan = decide::settle(decisions, &all_facts, &self.records, &self.budgets, now);
        self.apply(&all_facts);
        Ok(())
    }

    fn apply(&mut self, facts: &Facts) {
        for slot in &self.plan.release {
            if let Some(record) = self.records.get_mut(slot) {
                record.phase = InterventionPhase::Restored;
                self.contributors.remove(slot);
            }
        }
        for (slot, planned) in &self.plan.slots {
            self.contributors.insert(slot.clone(), planned.contributors.clone());
            let fresh = || Record {
                slot: slot.clone(),
                holder: planned.holder.clone(),
                original: None,
                desired: planned.desired.clone(),
                phase: InterventionPhase::Applied,
                started_at: self.now,
                earlier_starts: Vec::new(),
            };
            let is_new = !self.records.contains_key(slot);
            let record = self.records.entry(slot.clone()).or_insert_with(fresh);
            if record.original.is_none() || !record.stands() {
                record.original = facts.get(&planned.holder.policy).and_then(|facts| original(slot, facts));
            }
            if planned.grows && !is_new {
                record.grow(self.now);
            }
            record.holder.clone_from(&planned.holder);
            record.desired.clone_from(&planned.desired);
            record.phase = InterventionPhase::Applied;
            if let (Some(Original::Isolated(found)), Desired::Isolated(pods)) = (&mut record.original, &record.desired)
            {
                *found = pods.iter().map(|pod| isolated_pod(pod)).collect();
            }
        }
    }
}

impl Member {
    fn judge(
        &mut self,
        name: &str,
        target: &Document,
        facts: Arc<crate::model::facts::Target>,
        records: &Records,
        now: DateTime<Utc>,
    ) {
        let policy = &self.entry.policy;
        let blank = || policy.signals.keys().map(|signal| (signal.clone(), Err(NoReading::NoData))).collect();
        let asked = decide::groups(&self.entry, &self.state, &facts, records);
        let observation = Observation {
            at: now,
            readings: self.readings.clone().unwrap_or_else(blank),
            pods: self.pods.clone(),
            groups: self.groups.clone().into_iter().filter(|(group, _)| asked.contains_key(group)).collect(),
            queries: vec![SentQuery { backend: "case".into(), text: format!("readings of {name}").into() }],
            notes: Vec::new(),
        };
        let decision = decide::decide(&self.entry, &observation, target, &facts, records, &self.state, now);
        self.moved.extend(decision.judgement.transitions.iter().map(|transition| transition.reason));
        // Through status and back, so that every case shows that status is enough to go on.
        let status = PolicyStatus::default().with_state(&decision.judgement.state);
        self.state = status.state().unwrap_or_else(|| decision.judgement.state.clone());
        self.due = decide::next_due(&self.entry, now);
        self.round = Some(Round { decision, observation, facts });
    }

    fn edit(
        &mut self,
        patch: &Value,
        surroundings: &Arc<Surroundings>,
        now: DateTime<Utc>,
    ) -> Result<(), Vec<Problem>> {
        json_patch::merge(&mut self.object, patch);
        let entry = setup::entry(&self.object, &self.tenant, surroundings, self.changed_at, now)?;
        self.state = decide::carry_over(&self.entry.policy, &entry.policy, &self.state, now);
        self.entry = entry;
        self.due = now;
        Ok(())
    }
}

fn original(slot: &Slot, facts: &crate::model::facts::Target) -> Option<Original> {
    match slot {
        Slot::Isolation { .. } => Some(Original::Isolated(Vec::new())),
        Slot::Mode { .. } => Some(Original::Mode { mode: facts.mode.clone() }),
        Slot::Weights { route } => {
            let routes = std::iter::once(&facts.route).chain(facts.action_routes.values());
            let found = routes.filter_map(|found| found.as_ref().ok()).find(|found| found.key == *route)?;
            let weights = found
                .destinations
                .iter()
                .map(|to| crate::model::effect::Weight { destination: to.destination.clone(), weight: to.weight });
            Some(Original::Weights(weights.collect()))
        }
    }
}

fn isolated_pod(pod: &str) -> IsolatedPod {
    IsolatedPod { name: pod.to_owned(), uid: format!("uid-{pod}"), by: IsolatedBy::Gate }
}
