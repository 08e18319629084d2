use proptest::prelude::*;
use serde_json::json;

use super::*;

fn any_time() -> impl Strategy<Value = DateTime<Utc>> {
    (0_i64..4_000_000_000, 0_u32..1_000_000_000).prop_map(|(s, ns)| DateTime::from_timestamp(s, ns).unwrap())
}

fn any_reason() -> impl Strategy<Value = Option<Reason>> {
    prop::option::of(prop::sample::select(Reason::ALL))
}

fn any_pods() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-z]{1,5}-[0-9]", 0..4)
}

fn any_clock() -> impl Strategy<Value = UsableClock> {
    (0_u64..1_000_000, 0_u32..1_000_000_000, prop::option::of(any_time()))
        .prop_map(|(s, ns, ran_until)| UsableClock { run: Duration::new(s, ns), ran_until })
}

fn any_state() -> impl Strategy<Value = State> {
    let standing = (
        prop::sample::select(vec![Phase::Healthy, Phase::Pending, Phase::Active, Phase::Recovering]),
        any_time(),
        prop::option::of(prop::sample::select(vec![Stage::Probe, Stage::Half, Stage::All])),
        any_clock(),
        prop::option::of(any_time()),
        0_u32..5,
    );
    let sight = (prop::option::of(any_time()), any_time(), any_reason(), any_reason());
    let episode = (
        any_pods(),
        any_pods(),
        "[a-z0-9]{0,8}",
        prop::option::of(Just(json!([{"type": "notify", "config": {"sink": "sre"}}]))),
    );
    (standing, sight, episode).prop_map(
        |(
            (phase, since, stage, clock, opened_at, reopened),
            (last_usable, judged_since, blind, held),
            (suspects, returned, episode, replacement),
        )| State {
            phase,
            since,
            stage,
            clock,
            opened_at,
            reopened,
            last_usable,
            judged_since,
            blind,
            suspects,
            returned,
            episode,
            replacement,
            held,
        },
    )
}

proptest! {
    #[test]
    fn a_restart_finds_the_state_as_it_was(state in any_state()) {
        let written = serde_json::to_value(PolicyStatus::default().with_state(&state)).unwrap();
        let read: PolicyStatus = serde_json::from_value(written).unwrap();
        prop_assert_eq!(read.state(), Some(state));
    }
}

#[test]
fn a_policy_that_was_never_judged_has_no_state() {
    assert_eq!(PolicyStatus::default().state(), None);
}

#[test]
fn a_reason_of_a_later_version_still_leaves_the_policy_blind() {
    let now = DateTime::<Utc>::UNIX_EPOCH;
    let state = State { blind: Some(Reason::NoData), ..State::new(now) };
    let mut status = PolicyStatus::default().with_state(&state);
    status.blind = Some("SolarFlare".to_owned());
    assert_eq!(status.state().unwrap().blind, Some(Reason::Blind));
}

#[test]
fn what_is_no_part_of_the_state_stays() {
    let status = PolicyStatus { observed: Some("p99 1.2s".to_owned()), ..PolicyStatus::default() };
    let status = status.with_state(&State::new(DateTime::UNIX_EPOCH));
    assert_eq!(status.observed.as_deref(), Some("p99 1.2s"));
}

#[test]
fn only_the_last_twenty_changes_are_kept() {
    let mut status = PolicyStatus::default();
    for number in 0..25 {
        status.record(Change { decision_id: number.to_string(), ..Change::default() });
    }
    assert_eq!(status.history.len(), HISTORY);
    assert_eq!(status.history.first().unwrap().decision_id, "5");
}
