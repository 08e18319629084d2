//! The one chain of pure steps. `eval`, `test`, the demo and the controller all call it, so that what the one says
//! is what the other does.
//!
//! ```text
//! validate → compile → (observe) → decide: evaluate, phase, claims → settle: holders, budgets → (act) → explain
//! ```

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::model::effect::Records;
use crate::model::facts;
use crate::model::phase::State;
use crate::model::policy::Draft;
use crate::model::reading::Observation;
use crate::model::tenant::Tenant;
use crate::rego::Document;

use super::budget::Budgets;
use super::claims::{Claim, Held, claims};
use super::entry::Entry;
use super::judge::{Judgement, judge};
use super::plan::{Facts, Plan, plan};
use super::standing::standing;
use super::validate::{Invalid, Surroundings, validate};

/// From what a person wrote to a policy that can be judged. `spec` is the object's spec as written.
pub fn prepare(
    draft: &Draft,
    spec: &Value,
    tenant: &Arc<Tenant>,
    surroundings: &Arc<Surroundings>,
) -> Result<Entry, Invalid> {
    let policy = validate(draft, surroundings, tenant)?;
    Entry::compile(Arc::new(policy), Arc::clone(tenant), Arc::clone(surroundings), spec)
}

/// What one round decided for one policy, and what the policy wants because of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Verdict and phase.
    pub judgement: Judgement,
    /// What it wants.
    pub claims: Vec<Claim>,
    /// What it cannot even ask for.
    pub held: Vec<Held>,
}

/// Decides for one policy on one observation.
pub fn decide(
    entry: &Entry,
    observation: &Observation,
    target: &Document,
    facts: &facts::Target,
    records: &Records,
    state: &State,
    now: DateTime<Utc>,
) -> Decision {
    let standing = standing(&entry.policy.key, facts, records);
    let judgement = judge(entry, observation, target, facts, &standing, state, now);
    let (claims, held) = claims(entry, &judgement.state, facts, records);
    Decision { judgement, claims, held }
}

/// The plan of all policies' decisions; what they could not ask for is among what is held.
pub fn settle<'a>(
    decisions: impl IntoIterator<Item = (&'a [Claim], &'a [Held])>,
    facts: &Facts,
    records: &Records,
    budgets: &Budgets,
    now: DateTime<Utc>,
) -> Plan {
    let (mut all, mut held) = (Vec::new(), Vec::new());
    for (claims, unasked) in decisions {
        all.extend_from_slice(claims);
        held.extend_from_slice(unasked);
    }
    let mut plan = plan(&all, records, facts, budgets, now);
    held.append(&mut plan.held);
    held.sort_by(|a, b| (&a.policy, &a.slot, a.reason).cmp(&(&b.policy, &b.slot, b.reason)));
    plan.held = held;
    plan
}
