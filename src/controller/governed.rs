//! The policies as the loop knows them: the object, what became of its validation, and where it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::api::AnyPolicy;
use crate::api::conditions::Condition;
use crate::api::policy_status::Change;
use crate::controller::act;
use crate::controller::backoff::Backoff;
use crate::controller::definitions::PartId;
use crate::controller::resolve::Resolved;
use crate::controller::status::Essence;
use crate::decide::{Entry, Judgement};
use crate::model::phase::State;
use crate::model::policy::{PolicyKey, PolicyKind, TargetRef};
use crate::model::problem::Problem;
use crate::model::reading::Observation;
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::rego::Document;
use crate::signals::Ask;

/// One policy.
#[derive(Debug)]
pub(crate) struct Governed {
    /// As the watch last saw it.
    pub(crate) object: AnyPolicy,
    /// What the object says it governs.
    pub(crate) target: Arc<TargetRef>,
    /// Whose it is.
    pub(crate) tenant: Arc<Tenant>,
    /// Which text `entry` was made of, or was tried last.
    pub(crate) text: TextId,
    /// What is in force: the last text that was valid.
    pub(crate) entry: Option<Arc<Entry>>,
    /// What is wrong with the newest text, if anything.
    pub(crate) refusal: Option<Refusal>,
    /// Where it stands.
    pub(crate) state: State,
    /// Where it stood when status was last written: only this may have effects, so that a restart finds the
    /// reason of every effect. Only the registry sets it.
    pub(crate) persisted: Option<State>,
    /// What it governs; none: to be found anew.
    pub(crate) resolved: Option<Resolved>,
    /// What is measured of it at every round, made when its facts were; none: nothing.
    pub(crate) ask: Option<Arc<Ask>>,
    /// Whether, when facts were made last, the target was refused, and why.
    pub(crate) refused_before: Option<Reason>,
    /// The target as the rule sees it, converted once per version: (resourceVersion, document).
    pub(crate) target_document: Option<(String, Document)>,
    /// The selector of the target's scale subresource, by the target's uid and generation.
    pub(crate) scale: Option<ScaleSelector>,
    /// The last round.
    pub(crate) last: Option<Round>,
    /// The last changes, oldest first; status shows them.
    pub(crate) history: Vec<Change>,
    /// When it is judged next.
    pub(crate) due: DateTime<Utc>,
    /// Whether a round is under way.
    pub(crate) in_round: bool,
    /// The writing of its status.
    pub(crate) report: Report,
}

/// A text of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextId {
    /// The object's own, applied by hand: its metadata.generation.
    ByHand(i64),
    /// A source's, whatever the object says.
    Defined {
        /// Whose.
        part: PartId,
        /// The part's revision.
        revision: String,
    },
    /// Nothing is known yet of the source that the object mirrors.
    Unknown,
}

impl Governed {
    /// Whether its status says that it wants effects.
    pub(crate) fn is_open(&self) -> bool {
        self.persisted.as_ref().is_some_and(|state| act::is_open(state.phase))
    }
}

/// Why the newest text is not in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) problems: Vec<Problem>,
}

impl Refusal {
    /// All problems in one line.
    pub(crate) fn message(&self) -> String {
        self.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// The selector that a target's scale subresource gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScaleSelector {
    pub(crate) of: (String, i64),
    pub(crate) selector: Option<String>,
}

/// What one round found.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// What was in force.
    pub(crate) entry: Arc<Entry>,
    /// When it was judged.
    pub(crate) at: DateTime<Utc>,
    pub(crate) observation: Arc<Observation>,
    pub(crate) judgement: Arc<Judgement>,
}

/// Where the writing of a status stands.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// A write is under way.
    pub(crate) writing: bool,
    /// When it is to be written next, if at all; only the registry sets it.
    pub(crate) due: Option<DateTime<Utc>>,
    /// Digest of what was written last, without what changes all the time.
    pub(crate) written: Option<Essence>,
    /// The conditions as last written: transition times go on from them.
    pub(crate) conditions: Vec<Condition>,
    pub(crate) backoff: Backoff,
}

/// All policies, when each is due to be judged, when to be written, and which may have effects. Nothing that happens
/// often walks over all: a tick visits those that are due, a change in a namespace those that lie there, a plan those
/// that are open. Only a new Tenant, a new rule, a whole list and a takeover look at every policy.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    policies: BTreeMap<PolicyKey, Governed>,
    due: BTreeSet<(DateTime<Utc>, PolicyKey)>,
    reports: BTreeSet<(DateTime<Utc>, PolicyKey)>,
    /// Whose status says Active or Recovering.
    open: BTreeSet<PolicyKey>,
}

impl Registry {
    pub(crate) fn get(&self, key: &PolicyKey) -> Option<&Governed> {
        self.policies.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &PolicyKey) -> Option<&mut Governed> {
        self.policies.get_mut(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PolicyKey, &Governed)> {
        self.policies.iter()
    }

    /// What every policy governs is to be found anew.
    pub(crate) fn forget_all_facts(&mut self) {
        for governed in self.policies.values_mut() {
            governed.resolved = None;
        }
    }

    /// What the policies of a namespace govern is to be found anew.
    pub(crate) fn forget_facts_in(&mut self, namespace: &str) {
        for kind in PolicyKind::ALL {
            // Keys are ordered by kind, namespace and name.
            let first = PolicyKey { kind, namespace: namespace.to_owned(), name: String::new() };
            let here = |key: &PolicyKey| key.kind == kind && key.namespace == namespace;
            for (_, governed) in self.policies.range_mut(first..).take_while(|(key, _)| here(key)) {
                governed.resolved = None;
            }
        }
    }

    /// The policies whose status says that they want effects.
    pub(crate) fn open(&self) -> impl Iterator<Item = &PolicyKey> {
        self.open.iter()
    }

    /// Takes in where a policy stands by its status; true where that is news.
    pub(crate) fn persist(&mut self, key: &PolicyKey, state: Option<State>) -> bool {
        let Some(governed) = self.policies.get_mut(key) else { return false };
        if governed.persisted == state {
            return false;
        }
        governed.persisted = state;
        if governed.is_open() {
            self.open.insert(key.clone());
        } else {
            self.open.remove(key);
        }
        true
    }

    pub(crate) fn insert(&mut self, key: PolicyKey, governed: Governed) {
        self.remove(&key);
        self.due.insert((governed.due, key.clone()));
        if governed.is_open() {
            self.open.insert(key.clone());
        }
        self.policies.insert(key, governed);
    }

    pub(crate) fn remove(&mut self, key: &PolicyKey) -> Option<Governed> {
        let governed = self.policies.remove(key)?;
        self.open.remove(key);
        self.due.remove(&(governed.due, key.clone()));
        if let Some(due) = governed.report.due {
            self.reports.remove(&(due, key.clone()));
        }
        Some(governed)
    }

    /// Something that status must say happened.
    pub(crate) fn want_report(&mut self, key: &PolicyKey) {
        self.schedule_report(key, Some(DateTime::UNIX_EPOCH));
    }

    /// Sets when a policy's status is written next; an earlier time that was set before stays.
    pub(crate) fn schedule_report(&mut self, key: &PolicyKey, due: Option<DateTime<Utc>>) {
        let Some(governed) = self.policies.get_mut(key) else { return };
        let report = &mut governed.report;
        let due = match (report.due, due) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        if report.due != due {
            if let Some(old) = report.due {
                self.reports.remove(&(old, key.clone()));
            }
            report.due = due;
            self.reports.extend(due.map(|due| (due, key.clone())));
        }
    }

    /// Takes at most so many policies whose status is due to be written. One that is being written stays due.
    pub(crate) fn take_reports(&mut self, now: DateTime<Utc>, most: usize) -> Vec<PolicyKey> {
        let policies = &mut self.policies;
        let due = self.reports.iter().take_while(|(due, _)| *due <= now);
        let free = due.filter(|(_, key)| policies.get(key).is_some_and(|governed| !governed.report.writing));
        let taken: Vec<_> = free.take(most).cloned().collect();
        for entry in &taken {
            self.reports.remove(entry);
            if let Some(governed) = policies.get_mut(&entry.1) {
                governed.report.due = None;
            }
        }
        taken.into_iter().map(|(_, key)| key).collect()
    }

    /// When the next status is due that is not being written.
    pub(crate) fn next_report(&self) -> Option<DateTime<Utc>> {
        let free = |key: &PolicyKey| self.policies.get(key).is_some_and(|governed| !governed.report.writing);
        self.reports.iter().find(|(_, key)| free(key)).map(|(due, _)| *due)
    }

    /// Sets when a policy is judged next.
    pub(crate) fn schedule(&mut self, key: &PolicyKey, due: DateTime<Utc>) {
        if let Some(governed) = self.policies.get_mut(key).filter(|governed| governed.due != due) {
            let mut entry = (governed.due, key.clone());
            self.due.remove(&entry);
            governed.due = due;
            entry.0 = due;
            self.due.insert(entry);
        }
    }

    /// The policies that are due, soonest first.
    pub(crate) fn due_at(&self, now: DateTime<Utc>) -> Vec<PolicyKey> {
        self.due.iter().take_while(|(due, _)| *due <= now).map(|(_, key)| key.clone()).collect()
    }

    /// When the next policy is due.
    pub(crate) fn next_due(&self) -> Option<DateTime<Utc>> {
        self.due.first().map(|(due, _)| *due)
    }
}
