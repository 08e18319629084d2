//! From actions to slots: what a policy wants while it is Active or Recovering, and what it cannot even ask for.
//!
//! Claims are computed anew each round and never stored. They know nothing of other policies and of budgets.
//!
//! A slot that cannot be told now (the workload's Pods, the route) but that the policy already holds is claimed as
//! it was recorded: what stands, stands, until something is known that says otherwise.

use crate::model::effect::{Holder, Records, Weight};
use crate::model::facts;
use crate::model::phase::{Phase, Stage, State};
use crate::model::policy::{Action, ActionKind, Enforcement, IsolationLimits, PolicyKey, RouteRef};
use crate::model::quantity::Percent;
use crate::model::reading::PodName;
use crate::model::reason::Reason;
use crate::model::slot::{RouteKey, Slot};
use crate::model::tenant::TenantBudgets;

use super::entry::Entry;
use super::holder::Precedence;
use super::recovery;
use super::weights::{self, Divert};

/// What one action of one policy wants of one slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Of what.
    pub slot: Slot,
    /// Who would hold it.
    pub holder: Holder,
    /// Its place among the claims.
    pub precedence: Precedence,
    /// What is wanted.
    pub want: Want,
    /// Whether it competes: only `Enforce` does.
    pub enforcement: Enforcement,
    /// Limits of the tenant.
    pub budgets: TenantBudgets,
}

/// What is wanted of a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// These Pods out of service, as far as limits and budgets allow.
    Isolate {
        /// Who is held responsible and has not come back, worst first.
        suspects: Vec<PodName>,
        /// Who came back as a probe.
        returned: Vec<PodName>,
        /// The policy's and its tenant's limits.
        limits: IsolationLimits,
        /// The stage of recovery; none while Active.
        stage: Option<Stage>,
    },
    /// This mode.
    Mode(String),
    /// The route's traffic elsewhere.
    Divert(Divert),
}

/// Something that a policy wants and does not get, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whose wish.
    pub policy: PolicyKey,
    /// Of which slot, where it is known.
    pub slot: Option<Slot>,
    /// By which action.
    pub action: ActionKind,
    /// Why not.
    pub reason: Reason,
    /// The same in words, with the numbers.
    pub message: String,
}

/// What `entry` wants in this state. Each action asks for its slots alone: one that cannot be had holds back no
/// other. A policy that is neither Active nor Recovering wants nothing, and neither does one whose target is gone.
pub fn claims(entry: &Entry, state: &State, facts: &facts::Target, records: &Records) -> (Vec<Claim>, Vec<Held>) {
    let mut wishes = Wishes { entry, state, facts, records, claims: Vec::new(), held: Vec::new() };
    let wants = matches!(state.phase, Phase::Active | Phase::Recovering);
    if wants && !entry.policy.suspend && facts.uid.is_some() {
        for (index, action) in entry.actions(state).iter().enumerate() {
            wishes.of_action(index, action);
        }
    }
    (wishes.claims, wishes.held)
}

struct Wishes<'a> {
    entry: &'a Entry,
    state: &'a State,
    facts: &'a facts::Target,
    records: &'a Records,
    claims: Vec<Claim>,
    held: Vec<Held>,
}

impl Wishes<'_> {
    fn of_action(&mut self, index: usize, action: &Action) {
        let kind = action.kind();
        match action {
            Action::CircuitBreaker { fallback, isolation, route, probe, .. } => {
                self.isolate(index, kind, *isolation);
                self.mode(index, kind, fallback);
                self.divert(index, kind, route, fallback, Percent::ALL, *probe);
            }
            Action::IsolatePods(limits) => self.isolate(index, kind, *limits),
            Action::Mode(mode) => self.mode(index, kind, mode),
            Action::RouteWeight { route, destination, weight } => {
                self.divert(index, kind, route, destination, *weight, Percent::DEFAULT_PROBE);
            }
            // Goes out with the transition itself and holds nothing.
            Action::Notify { .. } => {}
        }
    }

    fn all_is_back(&self) -> bool {
        self.state.stage == Some(Stage::All)
    }

    fn isolate(&mut self, index: usize, action: ActionKind, limits: IsolationLimits) {
        if self.all_is_back() {
            return;
        }
        let slot = match &self.facts.workload {
            Ok(workload) => Slot::Isolation { workload: workload.key.clone() },
            Err(reason) => {
                let held = self.own_slot(|slot| matches!(slot, Slot::Isolation { .. }));
                let Some(slot) = held else {
                    self.hold(None, action, *reason, "the Pods of the target cannot be told".to_owned());
                    return;
                };
                slot
            }
        };
        let out = self.state.suspects.iter().filter(|pod| !self.state.returned.contains(pod));
        let suspects: Vec<PodName> = out.cloned().collect();
        if suspects.is_empty() {
            return;
        }
        let tenant = self.entry.tenant.budgets.max_isolated_percent.unwrap_or(Percent::ALL);
        let want = Want::Isolate {
            suspects,
            returned: self.state.returned.clone(),
            limits: IsolationLimits { max_percent: limits.max_percent.min(tenant), ..limits },
            stage: self.state.stage,
        };
        self.claim(index, action, slot, want);
    }

    /// The mode is lifted last: it stays through all of recovery.
    fn mode(&mut self, index: usize, action: ActionKind, mode: &str) {
        let policy = &self.entry.policy;
        let slot = Slot::Mode { namespace: policy.key.namespace.clone(), target: policy.target_ref.clone() };
        self.claim(index, action, slot, Want::Mode(mode.to_owned()));
    }

    fn divert(&mut self, index: usize, action: ActionKind, route: &RouteRef, to: &str, share: Percent, probe: Percent) {
        if self.all_is_back() {
            return;
        }
        let want = Want::Divert(Divert { to: to.to_owned(), share, back: recovery::share_back(self.state, probe) });
        let found = match self.facts.action_routes.get(&index) {
            Some(found) => found,
            None => &self.facts.route,
        };
        match found {
            Ok(route) => {
                let slot = Slot::Weights { route: route.key.clone() };
                // Asked here too, so that a policy learns what its route lacks even while another one holds it.
                let destinations: Vec<Weight> = weights_of(route);
                match weights::destination(&destinations, to) {
                    Ok(_) => self.claim(index, action, slot, want),
                    Err(unfit) => self.hold(Some(slot), action, unfit.reason, unfit.message),
                }
            }
            Err(reason) => match self.own_slot(|slot| is_route(slot, route)) {
                Some(slot) => self.claim(index, action, slot, want),
                None => self.hold(None, action, *reason, no_route(*reason, route)),
            },
        }
    }

    /// A slot of this sort that the policy holds by its records.
    fn own_slot(&self, is_meant: impl Fn(&Slot) -> bool) -> Option<Slot> {
        let own =
            self.records.values().filter(|record| record.stands() && record.holder.policy == self.entry.policy.key);
        own.map(|record| &record.slot).find(|slot| is_meant(slot)).cloned()
    }

    fn claim(&mut self, index: usize, action: ActionKind, slot: Slot, want: Want) {
        let (policy, tenant) = (&self.entry.policy, &self.entry.tenant);
        self.claims.push(Claim {
            slot,
            holder: Holder {
                policy: policy.key.clone(),
                uid: policy.uid.clone(),
                tenant: tenant.name.clone(),
                action,
                episode: self.state.episode.clone(),
            },
            precedence: Precedence::of(policy, tenant, index),
            want,
            enforcement: self.entry.enforcement(),
            budgets: tenant.budgets,
        });
    }

    fn hold(&mut self, slot: Option<Slot>, action: ActionKind, reason: Reason, message: String) {
        self.held.push(Held { policy: self.entry.policy.key.clone(), slot, action, reason, message });
    }
}

/// The weights of a route as they are.
pub(super) fn weights_of(route: &facts::Route) -> Vec<Weight> {
    let weight = |to: &facts::RouteDestination| Weight { destination: to.destination.clone(), weight: to.weight };
    route.destinations.iter().map(weight).collect()
}

fn is_route(slot: &Slot, named: &RouteRef) -> bool {
    let Slot::Weights { route: RouteKey { virtual_service, name, .. } } = slot else { return false };
    named.virtual_service.as_ref().is_none_or(|named| named == virtual_service)
        && named.route.as_ref().is_none_or(|named| Some(named) == name.as_ref())
}

fn no_route(reason: Reason, named: &RouteRef) -> String {
    match (reason, &named.virtual_service, &named.route) {
        (Reason::AmbiguousRoute, _, _) => "several routes fit; name one in `virtualService` and `route`".to_owned(),
        (_, Some(service), Some(route)) => format!("VirtualService `{service}` has no route `{route}` to reweight"),
        (_, Some(service), None) => format!("VirtualService `{service}` has no route to reweight"),
        (_, None, _) => "the target has no route; name one in `virtualService` and `route`".to_owned(),
    }
}
