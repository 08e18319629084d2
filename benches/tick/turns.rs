//! Turns of many policies for the pure chain, without anything around it.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;
use tradeguard::api::AnyPolicy;
use tradeguard::decide::{Before, Entry, Judgement, Origin, Standing, Surroundings, Turn, judge, judge_after, prepare};
use tradeguard::model::facts::{Pod, ResolvedBy, Target, Workload};
use tradeguard::model::phase::State;
use tradeguard::model::quantity::BaseUnit;
use tradeguard::model::reading::{NoReading, Observation, Reading, Readings};
use tradeguard::model::reason::Reason;
use tradeguard::model::slot::WorkloadKey;
use tradeguard::model::tenant::Tenant;
use tradeguard::rego::Document;

struct Policy {
    entry: Entry,
    facts: Target,
    target: Document,
    /// What is measured in even and in odd rounds.
    observations: [Observation; 2],
    before: Judgement,
    state: State,
}

/// One turn of each of many policies.
pub(crate) struct Turns {
    policies: Vec<Policy>,
    standing: Standing,
}

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("is a time")
}

impl Turns {
    pub(crate) fn new(count: usize) -> Self {
        Self { policies: (0..count).map(Policy::new).collect(), standing: Standing::default() }
    }

    /// Judges every policy once, after a round with even readings; where the last verdict came from.
    pub(crate) fn judge(&self, round: usize) -> Origin {
        let now = start() + TimeDelta::seconds(10);
        let mut last = Origin::NotAsked;
        for policy in &self.policies {
            let observation = &policy.observations[usize::from(round > 0)];
            let before = Before {
                entry: &policy.entry,
                observation: &policy.observations[0],
                verdict: &policy.before.verdict,
                at: start(),
            };
            let turn = Turn {
                entry: &policy.entry,
                observation,
                target: &policy.target,
                facts: &policy.facts,
                standing: &self.standing,
                state: &policy.state,
                now,
            };
            let (judgement, origin) = judge_after(Some(before), turn);
            std::hint::black_box(judgement);
            last = origin;
        }
        last
    }
}

impl Policy {
    fn new(number: usize) -> Self {
        let name = format!("service-{number:05}");
        let target = json!({"apiVersion": "trade.io/v1", "kind": "OrderService", "name": name});
        let object = json!({
            "apiVersion": "policy.trade.io/v1alpha2", "kind": "LatencyBudgetPolicy",
            "metadata": {"name": name, "namespace": "trading", "uid": name, "generation": 1},
            "spec": {
                "targetRef": target, "thresholds": {"p99": "800ms", "duration": "2m"},
                "actions": [{"type": "circuit-breaker", "config": {"timeout": "30s", "fallback": "cache-only"}}],
            },
        });
        let object = AnyPolicy::from_json(object).expect("the policy is valid");
        let surroundings = Surroundings {
            target_kinds: [("trade.io/v1".to_owned(), "OrderService".to_owned())].into(),
            ..Surroundings::default()
        };
        let tenant = Arc::new(Tenant::built_in());
        let entry = prepare(&object.draft(start()), &object.spec_json(), &tenant, &Arc::new(surroundings));
        let entry = entry.expect("the policy is valid");
        let pod = format!("{name}-0");
        let fact = Pod { uid: pod.clone(), ready: true, terminating: false, isolated: false, isolable: Ok(()) };
        let facts = Target {
            uid: Some(name.clone()),
            mode: None,
            workload: Ok(Workload {
                key: WorkloadKey { namespace: "trading".into(), kind: "OrderService".into(), name },
                resolved_by: ResolvedBy::TargetSelector,
                pods: BTreeMap::from([(pod.clone(), fact)]),
            }),
            route: Err(Reason::NoRoute),
            action_routes: BTreeMap::new(),
        };
        let target = Document::from_json(&target);
        let observations = [0.3, 0.4].map(|value| observation(&pod, value + number as f64 / 1e6));
        let state = State::new(start());
        let before = judge(&entry, &observations[0], &target, &facts, &Standing::default(), &state, start());
        let state = before.state.clone();
        Self { entry, facts, target, observations, before, state }
    }
}

fn observation(pod: &str, value: f64) -> Observation {
    let reading = Reading { value, unit: BaseUnit::Seconds, age_seconds: 3.0, series: 1, requests: Some(1_234.5) };
    let readings = Readings::from([("p99".to_owned(), Ok(reading))]);
    let pods = BTreeMap::from([(pod.to_owned(), readings.clone())]);
    Observation { readings, pods, ..Observation::blank(start(), [], NoReading::NotMeasured) }
}
