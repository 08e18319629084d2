//! All claims meet per slot: who holds it, what it is to hold, what has to wait, what is to be undone.
//!
//! The same claims give the same plan, whatever the order of their arrival. A slot that is neither planned nor
//! released is to be left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::model::effect::{Desired, Holder, InterventionPhase, Original, Record, Records, Weight};
use crate::model::facts;
use crate::model::policy::{Enforcement, PolicyKey};
use crate::model::reason::Reason;
use crate::model::slot::Slot;

use super::budget::{Account, Budgets, Freeze, Refusal};
use super::claims::{Claim, Held, Want, weights_of};
use super::isolation::{Wards, Wish};
use super::weights::{self, Divert};

/// What should stand in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Slots that are to hold something.
    pub slots: BTreeMap<Slot, Planned>,
    /// Slots whose effect is to be undone: nobody claims them any more.
    pub release: Vec<Slot>,
    /// What is wanted and has to wait.
    pub held: Vec<Held>,
    /// Policies that lost a slot, and to whom.
    pub overridden: BTreeMap<PolicyKey, (Slot, PolicyKey)>,
    /// What policies that do not act would have done, had they been alone.
    pub dry_run: Vec<WouldHave>,
}

/// What one slot is to hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Who holds it.
    pub holder: Holder,
    /// What.
    pub desired: Desired,
    /// Who else wants it, in order of precedence.
    pub standing_by: Vec<PolicyKey>,
    /// Whose wishes are in it: several for isolation, else the holder's alone.
    pub contributors: Vec<PolicyKey>,
    /// Whether the effect is new or grows: whoever writes its record calls [`Record::grow`] or starts it.
    pub grows: bool,
}

/// What a policy that does not act would have done.
#[derive(Clone, Debug, PartialEq)]
pub struct WouldHave {
    /// Who would hold the slot.
    pub holder: Holder,
    /// The slot.
    pub slot: Slot,
    /// What it would hold.
    pub desired: Desired,
    /// `DryRun` or `Warn`.
    pub enforcement: Enforcement,
}

/// Facts by policy.
pub type Facts = BTreeMap<PolicyKey, Arc<facts::Target>>;

/// Makes the plan of all claims.
pub fn plan(claims: &[Claim], records: &Records, facts: &Facts, budgets: &Budgets, now: DateTime<Utc>) -> Plan {
    let mut ordered: Vec<&Claim> = claims.iter().collect();
    ordered.sort_by(|a, b| (&a.precedence, &a.slot).cmp(&(&b.precedence, &b.slot)));
    let (enforced, idle): (Vec<&Claim>, Vec<&Claim>) =
        ordered.into_iter().partition(|claim| claim.enforcement == Enforcement::Enforce);
    let mut plan = compete(&enforced, claims, records, facts, budgets, now);
    plan.dry_run = idle.iter().filter_map(|claim| alone(claim, records, facts, budgets, now)).collect();
    plan
}

/// What an idle claim would have brought about. Alone, and in no hurry: who competes with it and what else began in
/// this minute is another day's chance.
fn alone(claim: &Claim, records: &Records, facts: &Facts, budgets: &Budgets, now: DateTime<Utc>) -> Option<WouldHave> {
    let unhurried = Budgets { effects_per_minute: u32::MAX, freeze: Freeze::None, ..*budgets };
    let known: Records = records
        .iter()
        .filter(|(slot, _)| **slot == claim.slot)
        .map(|(slot, record)| (slot.clone(), record.clone()))
        .collect();
    let plan = compete(&[claim], &[], &known, facts, &unhurried, now);
    let planned = plan.slots.into_values().next()?;
    Some(WouldHave {
        holder: planned.holder,
        slot: claim.slot.clone(),
        desired: planned.desired,
        enforcement: claim.enforcement,
    })
}

fn compete(
    enforced: &[&Claim],
    all: &[Claim],
    records: &Records,
    facts: &Facts,
    budgets: &Budgets,
    now: DateTime<Utc>,
) -> Plan {
    let contested = contested(enforced, records);
    let stays = |record: &Record| contested.contains(&record.slot);
    let mut making = Making {
        records,
        facts,
        account: Account::at(budgets, records, all, now),
        wards: Wards::new(budgets, facts.values().map(|target| &**target), records, stays),
        plan: Plan::default(),
    };
    for claim in enforced {
        if budgets.freeze == Freeze::All {
            making.hold(claim, (Reason::Frozen, "a freeze stops every write".to_owned()));
        } else if contested.contains(&claim.slot) {
            let message = "somebody else keeps putting the original back: hands off until Healthy".to_owned();
            making.hold(claim, (Reason::Contested, message));
        } else {
            making.place(claim);
        }
    }
    let mut plan = making.finish(enforced);
    if budgets.freeze != Freeze::All {
        let undone = |record: &&Record| record.phase != InterventionPhase::Restored;
        let free = |record: &&Record| !plan.slots.contains_key(&record.slot) && !contested.contains(&record.slot);
        plan.release = records.values().filter(undone).filter(free).map(|record| record.slot.clone()).collect();
    }
    plan
}

/// Slots that are contested and whose holder still wants them in the same episode.
fn contested(enforced: &[&Claim], records: &Records) -> BTreeSet<Slot> {
    let same = |record: &Record, claim: &Claim| {
        claim.slot == record.slot
            && claim.holder.policy == record.holder.policy
            && claim.holder.episode == record.holder.episode
    };
    let contested = records.values().filter(|record| {
        record.phase == InterventionPhase::Contested && enforced.iter().any(|claim| same(record, claim))
    });
    contested.map(|record| record.slot.clone()).collect()
}

struct Making<'a> {
    records: &'a Records,
    facts: &'a Facts,
    account: Account,
    wards: Wards,
    plan: Plan,
}

impl Making<'_> {
    fn hold(&mut self, claim: &Claim, (reason, message): Refusal) {
        self.plan.held.push(Held {
            policy: claim.holder.policy.clone(),
            slot: Some(claim.slot.clone()),
            action: claim.holder.action,
            reason,
            message,
        });
    }

    /// Gives `claim` its slot, or says why not. Claims come in order of precedence.
    fn place(&mut self, claim: &Claim) {
        if let (Slot::Isolation { workload }, Want::Isolate { suspects, returned, limits, stage }) =
            (&claim.slot, &claim.want)
        {
            let wish = Wish { suspects, returned, limits: *limits, stage: *stage };
            for refusal in self.wards.choose(workload, claim, &wish, &mut self.account) {
                self.hold(claim, refusal);
            }
            return;
        }
        if let Some(planned) = self.plan.slots.get_mut(&claim.slot) {
            let (policy, winner) = (&claim.holder.policy, planned.holder.policy.clone());
            if *policy == winner {
                let message = format!("the policy's own {} holds it already", planned.holder.action);
                self.hold(claim, (Reason::Overridden, message));
            } else {
                planned.standing_by.push(policy.clone());
                self.plan.overridden.entry(policy.clone()).or_insert((claim.slot.clone(), winner));
            }
            return;
        }
        let desired = match &claim.want {
            Want::Mode(mode) => Ok(Desired::Mode(mode.clone())),
            Want::Divert(divert) => self.weights(claim, divert),
            Want::Isolate { .. } => return,
        };
        match desired {
            Ok(desired) => self.take(claim, desired),
            Err(refusal) => self.hold(claim, refusal),
        }
    }

    /// A claim takes a slot that no better one has. If its effect is new or grows and may not begin now, it waits
    /// and displaces nobody: what it held itself stays as it is, what another one holds is left to that one's claim.
    fn take(&mut self, claim: &Claim, desired: Desired) {
        let record = self.records.get(&claim.slot).filter(|record| record.stands());
        let grows = record.is_none_or(|record| grows(record, &desired));
        let admitted = if grows { self.account.admit(claim) } else { Ok(()) };
        let (desired, grows) = match (admitted, record) {
            (Ok(()), _) => (desired, grows),
            (Err(refusal), Some(record)) if record.holder.policy == claim.holder.policy => {
                self.hold(claim, refusal);
                (record.desired.clone(), false)
            }
            (Err(refusal), _) => {
                self.hold(claim, refusal);
                return;
            }
        };
        let planned = Planned {
            holder: claim.holder.clone(),
            desired,
            standing_by: Vec::new(),
            contributors: vec![claim.holder.policy.clone()],
            grows,
        };
        self.plan.slots.insert(claim.slot.clone(), planned);
    }

    /// From what was found before the first effect, if it is recorded and not back yet; else from what is there.
    fn weights(&self, claim: &Claim, divert: &Divert) -> Result<Desired, Refusal> {
        let recorded = self.records.get(&claim.slot).filter(|record| record.phase != InterventionPhase::Restored);
        let found = match recorded.and_then(|record| record.original.as_ref()) {
            Some(Original::Weights(found)) => Some(found.clone()),
            _ => self.untouched_weights(claim)?,
        };
        let Some(found) = found else {
            return Err((Reason::NoRoute, "the route's weights cannot be told now".to_owned()));
        };
        let diverted = weights::diverted(&found, divert).map_err(|unfit| (unfit.reason, unfit.message))?;
        Ok(Desired::Weights(diverted))
    }

    /// The weights of a route that nobody holds, if it could be given back step by step: a total of one leaves no
    /// share for a probe, so there would never be evidence for its return.
    fn untouched_weights(&self, claim: &Claim) -> Result<Option<Vec<Weight>>, Refusal> {
        let found = self.live_weights(claim);
        let total: u64 = found.iter().flatten().map(|weight| u64::from(weight.weight.unwrap_or(0))).sum();
        if total == 1 && found.as_ref().is_some_and(|found| found.len() > 1) {
            let message = "the route's weights add up to 1, which cannot be shared with a probe on the way back; \
                           expected weights that add up to 100";
            return Err((Reason::UnsupportedRoute, message.to_owned()));
        }
        Ok(found)
    }

    fn live_weights(&self, claim: &Claim) -> Option<Vec<Weight>> {
        let target = self.facts.get(&claim.holder.policy)?;
        let routes = std::iter::once(&target.route).chain(target.action_routes.values());
        let mut found = routes.filter_map(|route| route.as_ref().ok());
        let route = found.find(|route| Slot::Weights { route: route.key.clone() } == claim.slot)?;
        Some(weights_of(route))
    }

    /// Turns what was chosen per workload into slots.
    fn finish(self, enforced: &[&Claim]) -> Plan {
        let mut plan = self.plan;
        for (workload, ward) in self.wards.into_wards() {
            let slot = Slot::Isolation { workload };
            let claimants = || enforced.iter().filter(|claim| claim.slot == slot);
            let contributes = |claim: &&&Claim| ward.contributors.contains(&claim.holder.policy);
            let Some(first) = claimants().find(contributes) else { continue };
            let mut standing_by: Vec<PolicyKey> = Vec::new();
            for claim in claimants().filter(|claim| !contributes(claim)) {
                if !standing_by.contains(&claim.holder.policy) {
                    standing_by.push(claim.holder.policy.clone());
                }
            }
            let planned = Planned {
                holder: first.holder.clone(),
                desired: Desired::Isolated(ward.chosen.into_iter().collect()),
                standing_by,
                contributors: ward.contributors,
                grows: ward.grows,
            };
            plan.slots.insert(slot, planned);
        }
        plan
    }
}

/// Whether `desired` goes beyond what the record has standing. Another mode is another effect; weights grow with
/// what they keep away from where it was found.
fn grows(record: &Record, desired: &Desired) -> bool {
    match (&record.desired, desired) {
        (standing, desired) if standing == desired => false,
        (Desired::Weights(standing), Desired::Weights(desired)) => match &record.original {
            Some(Original::Weights(found)) => weights::distance(found, desired) > weights::distance(found, standing),
            _ => true,
        },
        _ => true,
    }
}
