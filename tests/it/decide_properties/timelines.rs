//! Verdicts and phases over time.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use tradeguard::decide::{Budgets, Facts};
use tradeguard::decide::{Entry, Judgement, Situation, Standing, decide, evaluate, explain, judge, plan};
use tradeguard::model::effect::Records;
use tradeguard::model::facts::{Pod, ResolvedBy, Target, Workload};
use tradeguard::model::phase::{Phase, Stage, State};
use tradeguard::model::policy::{Draft, DraftSignal, OnNoData};
use tradeguard::model::quantity::BaseUnit;
use tradeguard::model::reading::{NoReading, Observation, Reading, Readings, SUBSET_PROBE, Signal};
use tradeguard::model::reason::Reason;
use tradeguard::model::slot::WorkloadKey;
use tradeguard::model::tenant::Class;
use tradeguard::model::verdict::Outcome;
use tradeguard::rego::Document;

use super::{at, breaker, draft, entry, tenant};

const INTERVAL: i64 = 10;

fn seconds(value: f64) -> Signal {
    Ok(Reading { value, unit: BaseUnit::Seconds, age_seconds: 1.0, series: 1, requests: Some(100.0) })
}

fn a_reason() -> impl Strategy<Value = NoReading> {
    prop::sample::select(NoReading::ALL.to_vec())
}

fn a_signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        4 => (0.0..0.8_f64).prop_map(seconds),
        4 => (0.81..5.0_f64).prop_map(seconds),
        2 => a_reason().prop_map(Err),
    ]
}

pub(super) fn policy(on_no_data: OnNoData) -> Draft {
    Draft { on_no_data, ..draft("order-processing", "core-trading", vec![breaker()]) }
}

pub(super) fn facts() -> Target {
    let pod = |name: &str| {
        let pod = Pod { uid: name.to_owned(), ready: true, terminating: false, isolated: false, isolable: Ok(()) };
        (name.to_owned(), pod)
    };
    Target {
        uid: Some("uid".to_owned()),
        mode: None,
        workload: Ok(Workload {
            key: WorkloadKey { namespace: "trading".into(), kind: "Deployment".into(), name: "core-trading".into() },
            resolved_by: ResolvedBy::ScaleSubresource,
            pods: ["a", "b", "c"].map(pod).into(),
        }),
        route: Err(Reason::NoRoute),
        action_routes: BTreeMap::new(),
    }
}

fn p99(signal: Signal) -> Readings {
    Readings::from([("p99".to_owned(), signal)])
}

/// One round's answers: of the whole, of Pod `a`, of the subset.
type Answers = (Signal, Option<Signal>, Option<Signal>);

fn observation(now: DateTime<Utc>, (whole, pod, group): &Answers) -> Observation {
    Observation {
        at: now,
        readings: p99(whole.clone()),
        pods: pod.iter().map(|signal| ("a".to_owned(), p99(signal.clone()))).collect(),
        groups: group.iter().map(|signal| (SUBSET_PROBE.to_owned(), p99(signal.clone()))).collect(),
        queries: Vec::new(),
        notes: Vec::new(),
    }
}

fn answers() -> impl Strategy<Value = Answers> {
    (a_signal(), prop::option::of(a_signal()), prop::option::of(a_signal()))
}

/// Runs of the same answers, so that clocks get somewhere.
fn a_timeline() -> impl Strategy<Value = Vec<Answers>> {
    prop::collection::vec((answers(), 1..9_usize), 1..20)
        .prop_map(|runs| runs.into_iter().flat_map(|(answers, times)| vec![answers; times]).collect())
}

/// What would stand in this state: `a` is out while Active, weights are diverted until all is back.
fn standing(state: &State) -> Standing {
    let open = matches!(state.phase, Phase::Active | Phase::Recovering) && state.stage != Some(Stage::All);
    let isolated = if state.phase == Phase::Active { state.suspects.clone() } else { Vec::new() };
    Standing { isolated, diverts_weight: open }
}

fn play(entry: &Entry, timeline: &[Answers]) -> Vec<(State, Judgement)> {
    let facts = facts();
    let mut state = State::new(at(0));
    let mut rounds = Vec::new();
    for (index, answers) in (0_i64..).zip(timeline) {
        let now = at(index * INTERVAL);
        let observation = observation(now, answers);
        let before = state.clone();
        let judgement = judge(entry, &observation, &Document::empty(), &facts, &standing(&state), &state, now);
        state = judgement.state.clone();
        rounds.push((before, judgement));
    }
    rounds
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_returns_before_the_timeout_or_without_evidence(timeline in a_timeline()) {
        let entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
        let recovery = entry.policy.recovery.as_secs() as i64;
        let rounds = play(&entry, &timeline);
        for (index, (before, judgement)) in rounds.iter().enumerate() {
            let Some(step) = judgement.transitions.first() else { continue };
            let leaves = before.phase == Phase::Active || before.phase == Phase::Recovering;
            if !leaves || judgement.state.phase == Phase::Active {
                continue;
            }
            // Of the rounds that make up the last `recovery`, none breached, and none of what came back either.
            let quiet = (recovery / INTERVAL) as usize;
            let first = index.saturating_sub(quiet);
            for (earlier, past) in &rounds[first..=index] {
                prop_assert!(past.verdict.outcome != Outcome::Breached, "{:?}", step);
                if before.phase == Phase::Recovering && earlier.phase == Phase::Recovering {
                    let breached = past.probe.as_ref().is_some_and(|probe| probe.outcome == Outcome::Breached);
                    prop_assert!(!breached, "{:?}", step);
                }
            }
            // The step itself rests on a usable reading, of the probe too where it has its own.
            prop_assert_eq!(judgement.verdict.outcome, Outcome::Ok);
            if let Some(probe) = &judgement.probe {
                prop_assert_eq!(probe.outcome, Outcome::Ok);
            }
            if before.phase == Phase::Active {
                let open = (step.at - before.opened_at.unwrap()).num_seconds();
                prop_assert!(open >= 30 << before.reopened.min(4), "open for {open} s, reopened {}", before.reopened);
            }
            // What diverts comes back step by step: never from Active or a half to Healthy.
            if judgement.state.phase == Phase::Healthy {
                prop_assert_eq!(before.stage, Some(Stage::All));
            }
        }
    }

    #[test]
    fn a_breach_is_confirmed_within_two_intervals_of_its_duration(quiet in 0..5_usize, noise in a_signal()) {
        let entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
        let mut timeline = vec![(seconds(0.1), None, None); quiet];
        timeline.extend(vec![(seconds(0.9), None, None); 12]);
        // One answer of any kind in the breach's first half, unless it says that the breach is over.
        if noise.as_ref().map_or(true, |reading| reading.value > 0.8) {
            timeline[quiet + 1].0 = noise;
        }
        let rounds = play(&entry, &timeline);
        let active = rounds.iter().position(|(_, judgement)| judgement.state.phase == Phase::Active).unwrap();
        let took = (active - quiet) as i64 * INTERVAL;
        let duration = entry.policy.duration.as_secs() as i64;
        prop_assert!((duration..=duration + 2 * INTERVAL).contains(&took), "took {took} s");
    }

    #[test]
    fn missing_data_never_moves_a_phase_unless_the_policy_says_so(
        timeline in a_timeline(),
        why in a_reason(),
        times in 1..30_i64,
        on_no_data in prop::sample::select(vec![OnNoData::Hold, OnNoData::Breach, OnNoData::Recover]),
    ) {
        let entry = entry(&policy(on_no_data), tenant(Class::Core, 0));
        let last = play(&entry, &timeline).pop().unwrap().1.state;
        let mut state = last.clone();
        let mut moved = false;
        for round in 0..times {
            let now = at((timeline.len() as i64 + round) * INTERVAL);
            let observation = observation(now, &(Err(why), None, None));
            let judgement = judge(&entry, &observation, &Document::empty(), &facts(), &standing(&state), &state, now);
            // The verdict says what it says, whatever the clock does.
            prop_assert!(matches!(judgement.verdict.outcome, Outcome::Unknown(_)));
            moved |= !judgement.transitions.is_empty();
            state = judgement.state;
        }
        if on_no_data == OnNoData::Hold || !why.is_no_data() {
            prop_assert!(!moved);
            prop_assert_eq!((state.phase, state.stage, state.returned), (last.phase, last.stage, last.returned));
        }
    }

    #[test]
    fn the_same_input_and_time_give_the_same_judgement(timeline in a_timeline()) {
        let entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
        let (first, second) = (play(&entry, &timeline), play(&entry, &timeline));
        prop_assert_eq!(&first, &second);
        // And names of decisions tell rounds apart.
        let mut names: Vec<&String> = first.iter().map(|(_, judgement)| &judgement.decision_id).collect();
        names.sort();
        names.dedup();
        prop_assert_eq!(names.len(), first.len());
    }

    #[test]
    fn a_more_severe_signal_never_gives_a_milder_verdict(
        values in prop::collection::vec(0.0..4.0_f64, 2),
        worse in prop::collection::vec(0.0..4.0_f64, 2),
    ) {
        let mut draft = policy(OnNoData::Hold);
        draft.signals.push(DraftSignal {
            path: "spec.thresholds.p50".to_owned(),
            name: "p50".to_owned(),
            quantile: Some(0.5),
            threshold: Some("200ms".to_owned()),
            ..draft.signals[0].clone()
        });
        let entry = entry(&draft, tenant(Class::Core, 0));
        let verdict = |p50: f64, p99: f64| {
            let mut observation = observation(at(0), &(seconds(p99), None, None));
            observation.readings.insert("p50".to_owned(), seconds(p50));
            evaluate(&entry, &observation, &Document::empty(), Phase::Healthy, at(0))
        };
        let mild = verdict(values[0], values[1]);
        let severe = verdict(values[0] + worse[0], values[1] + worse[1]);
        prop_assert!(severe.severity >= mild.severity);
        prop_assert!(severe.outcome >= mild.outcome, "{:?} is milder than {:?}", severe, mild);
    }

    #[test]
    fn the_explanation_names_each_check_that_decided(timeline in a_timeline()) {
        let entry = entry(&policy(OnNoData::Recover), tenant(Class::Core, 0));
        let facts = facts();
        let mut state = State::new(at(0));
        for (index, answers) in (0_i64..).zip(&timeline) {
            let now = at(index * INTERVAL);
            let observation = observation(now, answers);
            let records = Records::new();
            let decision = decide(&entry, &observation, &Document::empty(), &facts, &records, &state, now);
            let plan = plan(&decision.claims, &records, &Facts::new(), &Budgets::default(), now);
            let situation = Situation {
                entry: &entry, observation: &observation, facts: &facts, decision: &decision, plan: &plan, now,
            };
            let explanation = explain(&situation);
            let named = |name: &str| explanation.checks.iter().any(|check| check.name == name);
            let judgement = &decision.judgement;
            prop_assert!(named("verdict"));
            prop_assert_eq!(named("onNoData"), judgement.verdict.no_data);
            prop_assert_eq!(named("transition"), !judgement.transitions.is_empty());
            prop_assert_eq!(named("blind"), judgement.state.blind.is_some());
            prop_assert_eq!(named("probe"), judgement.probe.is_some());
            prop_assert_eq!(named("duration"), judgement.state.phase == Phase::Pending);
            prop_assert_eq!(named("timeout"), judgement.state.phase == Phase::Active);
            prop_assert_eq!(named("evidence"), judgement.state.phase == Phase::Recovering);
            prop_assert_eq!(explanation.fired.len(), judgement.verdict.reasons.len());
            prop_assert!(!explanation.next.is_empty());
            let held = plan.held.iter().filter(|held| held.policy == entry.policy.key).count();
            prop_assert_eq!(explanation.held.len(), held);
            state = judgement.state.clone();
        }
    }

    /// A fault that never ends: whatever comes back is slow, and what serves is fine.
    #[test]
    fn a_fault_that_lasts_never_gets_its_full_traffic_back(silent in prop::collection::vec(any::<bool>(), 400)) {
        let entry = entry(&policy(OnNoData::Hold), tenant(Class::Core, 0));
        let facts = facts();
        let mut state = State::new(at(0));
        let mut opened = false;
        for (index, silent) in (0_i64..).zip(&silent) {
            let now = at(index * INTERVAL);
            let some_is_back = !matches!(state.phase, Phase::Active);
            let group = (state.phase == Phase::Recovering)
                .then(|| if *silent { Err(NoReading::NoData) } else { seconds(3.0) });
            let whole = if some_is_back && state.phase != Phase::Recovering { seconds(3.0) } else { seconds(0.1) };
            let observation = observation(now, &(whole, None, group));
            let judgement = judge(&entry, &observation, &Document::empty(), &facts, &standing(&state), &state, now);
            state = judgement.state;
            opened |= state.phase == Phase::Active;
            if opened {
                prop_assert!(matches!(state.phase, Phase::Active | Phase::Recovering));
                prop_assert!(matches!(state.stage, None | Some(Stage::Probe)));
            }
        }
        prop_assert!(opened);
    }
}
