//! Claims, holders, budgets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tradeguard::decide::{Budgets, Claim, Facts, Plan, claims, plan};
use tradeguard::model::effect::{Desired, Destination, InterventionPhase, Original, Record, Records, Weight};
use tradeguard::model::facts::{Pod, ResolvedBy, Route, RouteDestination, Target, Workload};
use tradeguard::model::phase::{Phase, State};
use tradeguard::model::policy::{DraftAction, PolicyKey};
use tradeguard::model::quantity::Percent;
use tradeguard::model::slot::{RouteKey, Slot, WorkloadKey};
use tradeguard::model::tenant::{Class, Tenant, TenantBudgets};

use super::{at, breaker, draft, entry, tenant};

/// A policy that is Active, with everything that its claims depend on.
#[derive(Clone, Debug)]
struct Active {
    name: usize,
    target: usize,
    core: bool,
    priority: i32,
    changed: i64,
    suspects: Vec<usize>,
    percent: i64,
    min_healthy: i64,
    weight: i64,
    tenant_effects: Option<u32>,
}

fn an_active() -> impl Strategy<Value = Active> {
    (
        (0..1_000_usize, 0..3_usize, any::<bool>(), -1..2_i32, 0..3_i64),
        (prop::collection::vec(0..6_usize, 0..6), 0..=100_i64, 1..4_i64, 0..=100_i64, prop::option::of(0..4_u32)),
    )
        .prop_map(
            |((name, target, core, priority, changed), (suspects, percent, min_healthy, weight, effects))| Active {
                name,
                target,
                core,
                priority,
                changed,
                suspects,
                percent,
                min_healthy,
                weight,
                tenant_effects: effects,
            },
        )
}

/// Policies with distinct names.
fn actives() -> impl Strategy<Value = Vec<Active>> {
    prop::collection::btree_map(0..1_000_usize, an_active(), 1..8)
        .prop_map(|by_name| by_name.into_iter().map(|(name, active)| Active { name, ..active }).collect())
}

fn pod_name(index: usize) -> String {
    format!("pod-{index}")
}

/// Which Pods of a target are not ready is part of the world, not of a policy.
fn facts_of(target: usize, not_ready: &BTreeSet<usize>) -> Target {
    let pods = (0..6).map(|index| {
        let ready = !not_ready.contains(&index);
        let pod = Pod { uid: format!("uid-{index}"), ready, terminating: false, isolated: false, isolable: Ok(()) };
        (pod_name(index), pod)
    });
    let to = |subset: &str, weight| RouteDestination {
        destination: Destination { host: "orders".to_owned(), subset: Some(subset.to_owned()), port: None },
        weight: Some(weight),
        pods: Vec::new(),
    };
    let name = format!("target-{target}");
    let key = RouteKey {
        namespace: "trading".to_owned(),
        virtual_service: name.clone(),
        name: Some("orders".to_owned()),
        matches: None,
    };
    Target {
        uid: Some(format!("uid-{name}")),
        mode: None,
        workload: Ok(Workload {
            key: WorkloadKey { namespace: "trading".to_owned(), kind: "Deployment".to_owned(), name },
            resolved_by: ResolvedBy::ScaleSubresource,
            pods: pods.collect(),
        }),
        route: Ok(Route { key, uid: String::new(), destinations: vec![to("primary", 90), to("cache-only", 10)] }),
        action_routes: BTreeMap::new(),
    }
}

fn tenant_of(active: &Active) -> Tenant {
    let class = if active.core { Class::Core } else { Class::Lab };
    let budgets = TenantBudgets { effects_per_minute: active.tenant_effects, max_isolated_percent: None };
    Tenant { budgets, ..tenant(class, active.priority) }
}

fn claims_of(active: &Active, records: &Records, not_ready: &BTreeSet<usize>) -> (PolicyKey, Vec<Claim>, Target) {
    let breaker =
        DraftAction { max_isolated_percent: Some(active.percent), min_healthy: Some(active.min_healthy), ..breaker() };
    let reweigh = DraftAction {
        kind: "route-weight".to_owned(),
        destination: Some("cache-only".to_owned()),
        weight: Some(active.weight),
        ..DraftAction::default()
    };
    // Half of the policies ask for a share only, so that weights differ and grow.
    let actions = if active.weight % 2 == 0 { vec![breaker] } else { vec![reweigh, breaker] };
    let mut draft = draft(&format!("policy-{}", active.name), &format!("target-{}", active.target), actions);
    draft.changed_at = at(active.changed);
    let entry = entry(&draft, tenant_of(active));
    let mut suspects: Vec<String> = Vec::new();
    for pod in active.suspects.iter().copied().map(pod_name) {
        if !suspects.contains(&pod) {
            suspects.push(pod);
        }
    }
    let state = State { phase: Phase::Active, suspects, episode: "e".to_owned(), ..State::new(at(0)) };
    let facts = facts_of(active.target, not_ready);
    let (claims, _) = claims(&entry, &state, &facts, records);
    (entry.policy.key.clone(), claims, facts)
}

fn gather(actives: &[Active], records: &Records, not_ready: &BTreeSet<usize>) -> (Vec<Claim>, Facts) {
    let (mut all, mut facts) = (Vec::new(), Facts::new());
    for active in actives {
        let (key, claims, target) = claims_of(active, records, not_ready);
        all.extend(claims);
        facts.insert(key, Arc::new(target));
    }
    (all, facts)
}

/// Does what the plan says, as the effects would.
fn apply(plan: &Plan, records: &mut Records, seconds: i64) {
    for slot in &plan.release {
        records.get_mut(slot).expect("only what is recorded is released").phase = InterventionPhase::Restored;
    }
    for (slot, planned) in &plan.slots {
        let original = match slot {
            Slot::Weights { .. } => Some(Original::Weights(vec![found("primary", 90), found("cache-only", 10)])),
            _ => None,
        };
        match records.get_mut(slot) {
            Some(record) => {
                if planned.grows {
                    record.grow(at(seconds));
                }
                record.holder = planned.holder.clone();
                record.desired = planned.desired.clone();
                record.phase = InterventionPhase::Applied;
            }
            None => {
                let record = Record {
                    slot: slot.clone(),
                    holder: planned.holder.clone(),
                    original,
                    desired: planned.desired.clone(),
                    phase: InterventionPhase::Applied,
                    started_at: at(seconds),
                    earlier_starts: Vec::new(),
                };
                records.insert(slot.clone(), record);
            }
        }
    }
}

fn found(subset: &str, weight: u32) -> Weight {
    let destination = Destination { host: "orders".to_owned(), subset: Some(subset.to_owned()), port: None };
    Weight { destination, weight: Some(weight) }
}

fn is_core(policy: &PolicyKey, actives: &[Active]) -> bool {
    actives.iter().any(|active| active.core && policy.name == format!("policy-{}", active.name))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_plan_does_not_depend_on_the_order_of_arrival(
        actives in actives(),
        seed in any::<u64>(),
        effects in 0..12_u32,
    ) {
        let budgets = Budgets { effects_per_minute: effects, ..Budgets::default() };
        let (claims, facts) = gather(&actives, &Records::new(), &BTreeSet::new());
        let mut shuffled = claims.clone();
        // Any permutation will do: sort by a hash of the index.
        let mut keyed: Vec<(u64, Claim)> = shuffled
            .drain(..)
            .zip(1_u64..)
            .map(|(claim, index)| (index.wrapping_mul(seed | 1).rotate_left(17), claim))
            .collect();
        keyed.sort_by_key(|(key, _)| *key);
        let shuffled: Vec<Claim> = keyed.into_iter().map(|(_, claim)| claim).collect();
        let first = plan(&claims, &Records::new(), &facts, &budgets, at(0));
        prop_assert_eq!(&first, &plan(&shuffled, &Records::new(), &facts, &budgets, at(0)));
        prop_assert_eq!(&first, &plan(&claims, &Records::new(), &facts, &budgets, at(0)));
    }

    #[test]
    fn no_two_claims_are_equal_in_precedence(actives in actives()) {
        let (claims, _) = gather(&actives, &Records::new(), &BTreeSet::new());
        for slot in claims.iter().map(|claim| &claim.slot).collect::<BTreeSet<_>>() {
            let of_slot: Vec<_> = claims.iter().filter(|claim| claim.slot == *slot).collect();
            let distinct: BTreeSet<_> = of_slot.iter().map(|claim| &claim.precedence).collect();
            prop_assert_eq!(distinct.len(), of_slot.len());
        }
    }

    #[test]
    fn core_is_never_displaced_by_lab(actives in actives(), effects in 0..12_u32) {
        let budgets = Budgets { effects_per_minute: effects, ..Budgets::default() };
        let core: Vec<Active> = actives.iter().filter(|active| active.core).cloned().collect();
        // The same targets are known in both worlds.
        let (all_claims, facts) = gather(&actives, &Records::new(), &BTreeSet::new());
        let (core_claims, _) = gather(&core, &Records::new(), &BTreeSet::new());
        let alone = plan(&core_claims, &Records::new(), &facts, &budgets, at(0));
        let together = plan(&all_claims, &Records::new(), &facts, &budgets, at(0));
        for (slot, planned) in &alone.slots {
            let now = together.slots.get(slot).expect("core keeps its slot");
            prop_assert_eq!(&now.holder, &planned.holder);
            match (&planned.desired, &now.desired) {
                (Desired::Isolated(alone), Desired::Isolated(together)) => {
                    prop_assert!(alone.iter().all(|pod| together.contains(pod)));
                }
                (alone, together) => prop_assert_eq!(alone, together),
            }
        }
        for (loser, (_, winner)) in &together.overridden {
            prop_assert!(!is_core(loser, &actives) || is_core(winner, &actives));
        }
    }

    #[test]
    fn no_effect_goes_beyond_a_budget(
        rounds in prop::collection::vec((actives(), prop::collection::btree_set(0..6_usize, 0..4), 1..40_i64), 1..8),
        effects in 0..6_u32,
        lab_share in 0..=100_u8,
        engine in 0..=100_u8,
        cluster in 0..=100_u8,
    ) {
        let budgets = Budgets {
            effects_per_minute: effects,
            lab_share: Percent::new(lab_share).unwrap(),
            workload: tradeguard::model::policy::IsolationLimits {
                max_percent: Percent::new(engine).unwrap(),
                min_healthy: 1,
            },
            cluster_percent: Percent::new(cluster).unwrap(),
            ..Budgets::default()
        };
        let mut records = Records::new();
        let mut starts: Vec<(i64, bool)> = Vec::new();
        let mut now = 0;
        for (actives, not_ready, pause) in &rounds {
            now += pause;
            let (claims, facts) = gather(actives, &records, not_ready);
            let plan = plan(&claims, &records, &facts, &budgets, at(now));
            // Per minute.
            let begun = plan.slots.values().filter(|planned| planned.grows);
            starts.extend(begun.map(|planned| (now, is_core(&planned.holder.policy, actives))));
            let last_minute = |lab_only: bool| {
                starts.iter().filter(|(start, core)| now - start < 60 && !(lab_only && *core)).count()
            };
            prop_assert!(last_minute(false) <= effects as usize);
            prop_assert!(last_minute(true) <= Percent::new(lab_share).unwrap().of(effects as usize));
            // Per workload and cluster.
            let workloads: BTreeMap<&WorkloadKey, &Workload> = facts
                .values()
                .filter_map(|target| target.workload.as_ref().ok())
                .map(|workload| (&workload.key, workload))
                .collect();
            let mut out = 0;
            for (slot, planned) in &plan.slots {
                let (Slot::Isolation { workload }, Desired::Isolated(pods)) = (slot, &planned.desired) else { continue };
                out += pods.len();
                let of_slot = actives.iter().filter(|active| workload.name == format!("target-{}", active.target));
                let loosest = of_slot.clone().map(|active| active.percent as u8).max().unwrap();
                prop_assert!(pods.len() <= Percent::new(loosest.min(engine)).unwrap().of(6));
                let least = of_slot.map(|active| active.min_healthy as usize).min().unwrap();
                let ready = |name: &&String| workloads[workload].pods[*name].ready;
                let serving = workloads[workload].pods.keys().filter(ready).filter(|pod| !pods.contains(pod)).count();
                prop_assert!(serving >= least || pods.iter().all(|pod| !ready(&pod)), "{serving} of {least}");
            }
            prop_assert!(out <= Percent::new(cluster).unwrap().of(workloads.len() * 6));
            apply(&plan, &mut records, now);
        }
    }

    #[test]
    fn weights_keep_their_total_and_are_never_negative(
        weights in prop::collection::vec(0..1_000_u32, 2..6),
        share in 0..=100_u8,
        back in 0..=100_u8,
        to in 0..6_usize,
    ) {
        let mut active = Active {
            name: 1, target: 0, core: true, priority: 0, changed: 0, suspects: Vec::new(), percent: 0, min_healthy: 1,
            weight: i64::from(share) | 1, tenant_effects: None,
        };
        active.weight = active.weight.min(99);
        let to = to % weights.len();
        let (key, claims, mut target) = claims_of(&active, &Records::new(), &BTreeSet::new());
        let name = |index: usize| if index == to { "cache-only".to_owned() } else { format!("d{index}") };
        let route = target.route.as_mut().unwrap();
        route.destinations = weights
            .iter()
            .enumerate()
            .map(|(index, weight)| RouteDestination {
                destination: Destination { host: "orders".to_owned(), subset: Some(name(index)), port: None },
                weight: Some(*weight),
                pods: Vec::new(),
            })
            .collect();
        let mut claims = claims;
        for claim in &mut claims {
            if let tradeguard::decide::Want::Divert(divert) = &mut claim.want {
                divert.back = Percent::new(back).unwrap();
            }
        }
        let facts = Facts::from([(key, Arc::new(target))]);
        let plan = plan(&claims, &Records::new(), &facts, &Budgets::default(), at(0));
        let planned = plan.slots.iter().find(|(slot, _)| slot.kind() == "weights");
        let total: u32 = weights.iter().sum();
        match planned {
            Some((_, planned)) => {
                let Desired::Weights(now) = &planned.desired else { panic!("weights hold weights") };
                prop_assert_eq!(now.len(), weights.len());
                prop_assert_eq!(now.iter().map(|weight| weight.weight.unwrap()).sum::<u32>(), total);
                if back == 100 {
                    let now: Vec<u32> = now.iter().map(|weight| weight.weight.unwrap()).collect();
                    prop_assert_eq!(now, weights);
                }
            }
            // A total of one leaves no share for a probe on the way back.
            None => prop_assert!(total <= 1),
        }
    }
}
