use super::*;
use crate::model::effect::{Desired, Destination, Holder, IsolatedBy, IsolatedPod, Original, Weight};
use crate::model::policy::{ActionKind, PolicyKey, PolicyKind, TargetRef as Target};
use crate::model::slot::{RouteKey, WorkloadKey};

fn record(slot: Slot, original: Option<Original>, desired: Desired) -> Record {
    let policy = PolicyKey {
        kind: PolicyKind::LatencyBudgetPolicy,
        namespace: "trading".to_owned(),
        name: "order-processing".to_owned(),
    };
    Record {
        slot,
        holder: Holder {
            policy,
            uid: "6b3e".to_owned(),
            tenant: "core".to_owned(),
            action: ActionKind::CircuitBreaker,
            episode: "e-1".to_owned(),
        },
        original,
        desired,
        phase: InterventionPhase::Pending,
        started_at: DateTime::parse_from_rfc3339("2026-03-01T10:00:00.123456789Z").unwrap().to_utc(),
        earlier_starts: vec![DateTime::parse_from_rfc3339("2026-03-01T09:59:30Z").unwrap().to_utc()],
    }
}

fn weight(host: &str, subset: Option<&str>, weight: Option<u32>) -> Weight {
    let destination = Destination { host: host.to_owned(), subset: subset.map(str::to_owned), port: Some(8080) };
    Weight { destination, weight }
}

fn records() -> Vec<Record> {
    let workload = WorkloadKey { namespace: "trading".into(), kind: "Deployment".into(), name: "core-trading".into() };
    let target = Target { api_version: "trade.io/v1".into(), kind: "OrderService".into(), name: "core-trading".into() };
    let by_label = IsolatedBy::Label { key: "app".into(), value: "core".into(), replaced: true };
    let pods = vec![
        IsolatedPod { name: "p-0".into(), uid: "u0".into(), by: IsolatedBy::Gate },
        IsolatedPod { name: "p-1".into(), uid: "u1".into(), by: by_label },
    ];
    let route = |name: Option<&str>, matches: Option<&str>| Slot::Weights {
        route: RouteKey {
            namespace: "trading".into(),
            virtual_service: "core-trading".into(),
            name: name.map(str::to_owned),
            matches: matches.map(str::to_owned),
        },
    };
    let weights = vec![weight("core", Some("primary"), Some(100)), weight("core", Some("cache-only"), None)];
    vec![
        record(Slot::Isolation { workload }, Some(Original::Isolated(pods)), Desired::Isolated(vec!["p-0".into()])),
        record(
            Slot::Mode { namespace: "trading".into(), target: target.clone() },
            Some(Original::Mode { mode: None }),
            Desired::Mode("cache-only".into()),
        ),
        record(
            Slot::Mode { namespace: "lab".into(), target },
            Some(Original::Mode { mode: Some("normal".into()) }),
            Desired::Mode("cache-only".into()),
        ),
        record(
            route(Some("orders"), None),
            Some(Original::Weights(weights.clone())),
            Desired::Weights(weights.clone()),
        ),
        record(route(None, Some("null")), None, Desired::Weights(weights)),
    ]
}

#[test]
fn what_is_written_reads_back_as_the_same_record_also_through_json() {
    for record in records() {
        let actor = Actor { name: "node-a".into(), epoch: 3 };
        let mut written = Intervention::of(&record, None, actor, Reason::BreachConfirmed);
        assert_eq!(written.record(), Ok(record.clone()));
        written.status = Some(InterventionStatus {
            phase: Some(InterventionPhase::Applied),
            applied: Some(written.spec.desired.clone()),
            ..InterventionStatus::default()
        });
        let json = serde_json::to_value(&written).unwrap();
        let read: Intervention = serde_json::from_value(json).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.record(), Ok(Record { phase: InterventionPhase::Applied, ..record }));
    }
}

#[test]
fn each_slot_has_one_name_that_kubernetes_takes() {
    let names: std::collections::BTreeSet<_> = records().iter().map(|record| name_of(&record.slot)).collect();
    assert_eq!(names.len(), records().len());
    let long = Slot::Weights {
        route: RouteKey {
            namespace: "trading".into(),
            virtual_service: format!("A.{}", "very-long-".repeat(20)),
            name: None,
            matches: None,
        },
    };
    for name in names.into_iter().chain([name_of(&long)]) {
        assert!(name.len() <= 63, "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        assert!(!name.ends_with('-') && !name.contains("--"), "{name}");
    }
}

#[test]
fn a_record_that_a_foreign_hand_broke_is_an_error_that_names_the_field() {
    let record = records().remove(0);
    let good = Intervention::of(&record, None, Actor::default(), Reason::BreachConfirmed);
    let broken = |edit: fn(&mut Intervention)| {
        let mut intervention = good.clone();
        edit(&mut intervention);
        intervention.record().unwrap_err().path
    };
    assert_eq!(broken(|i| i.spec.slot.workload = None), "spec.slot.workload");
    assert_eq!(broken(|i| i.spec.slot.kind = "magic".into()), "spec.slot.kind");
    assert_eq!(broken(|i| i.spec.holder.action = "magic".into()), "spec.holder.action");
    assert_eq!(broken(|i| i.spec.desired = DesiredSpec::default()), "spec.desired");
    assert_eq!(broken(|i| i.metadata.namespace = Some("other".into())), "spec.slot");
}

#[test]
fn only_the_last_ten_episodes_are_kept() {
    let mut status = InterventionStatus::default();
    for number in 0..13 {
        status.record(Episode { episode: format!("e-{number}"), ..Episode::default() });
    }
    assert_eq!(status.episodes.len(), EPISODES);
    assert_eq!(status.episodes.first().unwrap().episode, "e-3");
}

#[test]
fn an_intent_that_status_does_not_know_of_yet_is_pending() {
    let record = records().remove(0);
    let mut intervention = Intervention::of(&record, None, Actor::default(), Reason::BreachConfirmed);
    assert_eq!(intervention.phase(), InterventionPhase::Pending);
    let stands = Some(intervention.spec.desired.clone());
    intervention.status = Some(InterventionStatus {
        phase: Some(InterventionPhase::Applied),
        applied: stands,
        ..InterventionStatus::default()
    });
    assert_eq!(intervention.phase(), InterventionPhase::Applied);
    intervention.spec.desired.isolated = Some(vec!["p-0".into(), "p-1".into()]);
    assert_eq!(intervention.phase(), InterventionPhase::Pending);

    intervention.metadata.generation = Some(4);
    intervention.status = Some(InterventionStatus {
        phase: Some(InterventionPhase::Restored),
        observed_generation: Some(3),
        ..Default::default()
    });
    assert_eq!(intervention.phase(), InterventionPhase::Pending);
    intervention.metadata.generation = Some(3);
    assert_eq!(intervention.phase(), InterventionPhase::Restored);
}
