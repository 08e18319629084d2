//! What stands for a policy now, as its records say, and which Pods are to be measured together because of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::effect::{Desired, Original, Record, Records, Weight};
use crate::model::facts;
use crate::model::phase::{Phase, State};
use crate::model::policy::PolicyKey;
use crate::model::reading::{GroupName, PodName, SUBSET_PROBE};
use crate::model::slot::{RouteKey, Slot};

use super::entry::Entry;

/// What keeps traffic away from something, so that the readings of what still serves say nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Pods of the policy's workload that are out of service, whoever asked; isolation is shared. Sorted.
    pub isolated: Vec<PodName>,
    /// Whether this policy holds a route whose weights differ from those found.
    pub diverts_weight: bool,
}

/// What stands for `policy` now. Looks up rather than walks: this happens for every policy at every tick.
pub fn standing(policy: &PolicyKey, facts: &facts::Target, records: &Records) -> Standing {
    let mut standing = Standing::default();
    if records.is_empty() {
        return standing;
    }
    let there = |pod: &&PodName| facts.workload.as_ref().map_or(true, |workload| workload.pods.contains_key(*pod));
    match &facts.workload {
        Ok(found) => {
            let slot = Slot::Isolation { workload: found.key.clone() };
            standing.isolated.extend(records.get(&slot).into_iter().flat_map(isolated).filter(there).cloned());
        }
        // Where the workload cannot be told now, the policy's own record is all there is to go by.
        Err(_) => {
            let own = records.values().filter(|record| record.holder.policy == *policy);
            standing.isolated.extend(own.flat_map(isolated).cloned());
        }
    }
    standing.diverts_weight = weights_in(&policy.namespace, records).any(|record| {
        let Desired::Weights(weights) = &record.desired else { return false };
        record.stands() && record.holder.policy == *policy && !is_original(record.original.as_ref(), weights)
    });
    standing.isolated.sort();
    standing.isolated.dedup();
    standing
}

/// The suspects whose name another Pod bears now than the one that was isolated: what was found of the old one says
/// nothing of the new one.
pub fn replaced(state: &State, facts: &facts::Target, records: &Records) -> Vec<PodName> {
    let Ok(workload) = &facts.workload else { return Vec::new() };
    let slot = Slot::Isolation { workload: workload.key.clone() };
    // A record that is over tells of an earlier Pod, which nobody suspects any more.
    let record = records.get(&slot).filter(|record| record.stands());
    let Some(Original::Isolated(recorded)) = record.and_then(|record| record.original.as_ref()) else {
        return Vec::new();
    };
    let is_another = |name: &&PodName| {
        let found = workload.pods.get(*name);
        recorded.iter().any(|pod| pod.name == **name && found.is_some_and(|found| found.uid != pod.uid))
    };
    state.suspects.iter().filter(is_another).cloned().collect()
}

/// The Pods that a record keeps out of service.
fn isolated(record: &Record) -> &[PodName] {
    match (&record.slot, &record.desired) {
        (Slot::Isolation { .. }, Desired::Isolated(pods)) if record.stands() => pods,
        _ => &[],
    }
}

/// The records of routes in a namespace: a policy's routes lie in its own.
fn weights_in<'a>(namespace: &'a str, records: &'a Records) -> impl Iterator<Item = &'a Record> {
    let route = RouteKey { namespace: namespace.to_owned(), virtual_service: String::new(), name: None, matches: None };
    let here = move |slot: &Slot| matches!(slot, Slot::Weights { route } if route.namespace == namespace);
    records.range(Slot::Weights { route }..).take_while(move |(slot, _)| here(slot)).map(|(_, record)| record)
}

fn is_original(original: Option<&Original>, weights: &[Weight]) -> bool {
    let Some(Original::Weights(found)) = original else { return false };
    weights.len() == found.len()
        && weights.iter().all(|weight| {
            found.iter().any(|other| {
                other.destination == weight.destination && other.weight.unwrap_or(0) == weight.weight.unwrap_or(0)
            })
        })
}

/// The probe groups to measure this round: while Recovering, the Pods of the destinations that this policy's weights
/// keep traffic away from and that serve again in part. Empty where nothing is diverted or the Pods cannot be told.
pub fn groups(
    entry: &Entry,
    state: &State,
    facts: &facts::Target,
    records: &Records,
) -> BTreeMap<GroupName, Vec<PodName>> {
    if state.phase != Phase::Recovering {
        return BTreeMap::new();
    }
    let held = records.values().filter(|record| record.stands() && record.holder.policy == entry.policy.key);
    let mut pods = BTreeSet::new();
    for record in held {
        let (Slot::Weights { route }, Desired::Weights(weights), Some(Original::Weights(found))) =
            (&record.slot, &record.desired, &record.original)
        else {
            continue;
        };
        let routes = std::iter::once(&facts.route).chain(facts.action_routes.values());
        let Some(route) = routes.filter_map(|found| found.as_ref().ok()).find(|found| found.key == *route) else {
            continue;
        };
        let lowered = |destination: &facts::RouteDestination| {
            let of = |weights: &[Weight]| {
                let weight = weights.iter().find(|weight| weight.destination == destination.destination);
                weight.and_then(|weight| weight.weight).unwrap_or(0)
            };
            of(weights) < of(found)
        };
        pods.extend(route.destinations.iter().filter(|to| lowered(to)).flat_map(|to| to.pods.iter().cloned()));
    }
    let in_service = |pod: &PodName| {
        let workload = facts.workload.as_ref().ok();
        !workload.and_then(|workload| workload.pods.get(pod)).is_some_and(|pod| pod.isolated || pod.terminating)
    };
    let pods: Vec<PodName> = pods.into_iter().filter(in_service).collect();
    if pods.is_empty() { BTreeMap::new() } else { BTreeMap::from([(SUBSET_PROBE.to_owned(), pods)]) }
}
