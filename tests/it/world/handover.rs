//! Two instances: one acts, the other is warm.

use super::scene::{LEASE, RECORDS, ROUTES, Scene, TARGETS, breaker};

/// Promise 7, and of promise 6 that nothing is repeated.
#[tokio::test(start_paused = true)]
async fn a_successor_waits_a_whole_lease_and_repeats_nothing() {
    let scene = Scene::open();
    let first = scene.acting_engine("first").await;
    let second = scene.engine("second").await;
    scene.apply(&breaker("orders", "2m")).await;
    scene.until_open("orders").await;
    assert!(first.acts() && !second.acts(), "one acts");
    let before = scene.counts();
    first.kill();
    let waited = scene.until("the successor acts", 60, || second.acts()).await;
    let lease = LEASE.as_secs();
    assert!((lease - 3..=lease + 6).contains(&waited), "after a lease from the last renewal it saw: {waited} s");
    scene.rest(60).await;
    let since = scene.counts().since(&before);
    for resource in [ROUTES, TARGETS, "pods", RECORDS] {
        assert_eq!(since.by("second").of(resource).writes(), 0, "{resource}: what stands is not made again");
    }
    scene.well_again();
    scene.until("it has recovered", 600, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
    assert_eq!(scene.finalizers("orders"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_asked_to_stop_lets_its_successor_act_at_once() {
    let scene = Scene::open();
    let first = scene.acting_engine("first").await;
    let second = scene.engine("second").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    let before = scene.counts();
    first.stop().await;
    let waited = scene.until("the successor acts", 60, || second.acts()).await;
    assert!(waited <= 2 * LEASE.as_secs() / 5, "the lease was given up: {waited} s");
    assert_eq!(scene.effect_writes(&before), 0, "what stands, stands");
    assert!(scene.stands());
    scene.rest(30).await;
    assert_eq!(scene.effect_writes(&before), 0, "and is not made again");
}

#[tokio::test(start_paused = true)]
async fn two_instances_never_act_at_the_same_time_and_a_lost_actor_stands_by_on_return() {
    let scene = Scene::open();
    let first = scene.acting_engine("first").await;
    let second = scene.engine("second").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    let before = scene.counts();
    first.lose_api();
    for _ in 0..60 {
        assert!(!(first.acts() && second.acts()), "at most one acts");
        scene.rest(1).await;
    }
    assert!(second.acts(), "the lost actor is replaced");
    assert!(first.view().detached_since.is_some());
    first.faults.clear();
    scene.until("it is back", 60, || first.view().detached_since.is_none()).await;
    scene.rest(60).await;
    assert!(!first.acts() && second.acts(), "whoever acts, goes on");
    assert_eq!(scene.effect_writes(&before), 0, "nothing was made again");
    assert_eq!(second.policy("orders").expect("is shown").phase, first.policy("orders").expect("is shown").phase);
    scene.well_again();
    scene.until("it has recovered", 900, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
}
