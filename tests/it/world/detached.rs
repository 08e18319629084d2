//! The API server goes away and comes back.

use tradeguard::memkube::fault::{Fault, Matching};
use tradeguard::model::phase::Phase;
use tradeguard::model::view::Role;

use super::scene::{LEASE, Scene, breaker};

#[tokio::test(start_paused = true)]
async fn cut_off_it_judges_by_what_it_knew_and_starts_no_effect() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "2m")).await;
    scene.until("it is judged", 30, || scene.phase("orders") == "Healthy").await;
    let before = scene.counts();
    engine.lose_api();
    let waited = scene.until("it knows", 60, || engine.view().detached_since.is_some()).await;
    assert!(waited <= 2 * LEASE.as_secs() / 3 + 5, "after two thirds of a lease it acts no more: {waited} s");
    assert_ne!(engine.view().role, Role::Actor);
    scene.breach();
    scene
        .until("it judges on", 120, || engine.policy("orders").is_some_and(|policy| policy.phase == Phase::Active))
        .await;
    scene.rest(60).await;
    let policy = engine.policy("orders").expect("is served");
    let age = scene.world.clock.now() - policy.judged_at.expect("was judged");
    assert!(age.num_seconds() <= 6, "its readings are new: {age}");
    let since = engine.view().detached_since.expect("still away");
    assert!((scene.world.clock.now() - since).num_seconds() >= 60, "the age of what it knows grows");
    assert!(scene.is_untouched());
    assert_eq!(scene.counts().since(&before).by("a").writes(), 0);
    assert_eq!(scene.phase("orders"), "Healthy", "status says what was last written");
}

#[tokio::test(start_paused = true)]
async fn on_return_phases_and_plan_are_made_anew_from_what_stands() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "2m")).await;
    scene.until("it is judged", 30, || scene.phase("orders") == "Healthy").await;
    engine.lose_api();
    scene.breach();
    scene
        .until("it is Active in its own eyes", 120, || {
            engine.policy("orders").is_some_and(|policy| policy.phase == Phase::Active)
        })
        .await;
    engine.faults.clear();
    scene.until("it acts again", 60, || engine.acts()).await;
    assert!(scene.is_untouched(), "nothing rests on what was judged while cut off");
    let waited = scene.until("the breaker is open", 120, || scene.stands()).await;
    assert!(waited >= 18, "the breach has to last for `duration` again: {waited} s");
    assert!(engine.view().detached_since.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_stands_stays_served_while_the_api_server_is_away_and_recovers_after() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.until_open("orders").await;
    engine.lose_api();
    scene.well_again();
    scene.rest(600).await;
    let view = engine.view();
    let modes: Vec<&str> = view.targets.values().map(|target| target.mode.as_str()).collect();
    assert_eq!(modes, ["cache-only"], "services are told what stands, not what would be");
    assert!(scene.stands());
    engine.faults.clear();
    scene.until("it has recovered", 600, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
}

/// Writes fail now and then, answers are lost: it all comes out right.
#[tokio::test(start_paused = true)]
async fn with_a_server_that_fails_many_writes_all_is_applied_and_restored() {
    const RESOURCES: [&str; 8] = [
        "interventions",
        "interventions/status",
        "latencybudgetpolicies",
        "latencybudgetpolicies/status",
        "virtualservices",
        "orderservices",
        "pods",
        "pods/status",
    ];
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "2m")).await;
    let fail_each_once = |fault: &Fault| {
        for resource in RESOURCES {
            let matching = Matching { writes: true, resource: Some(resource.to_owned()), ..Matching::default() };
            engine.faults.inject_times(matching, fault.clone(), 2);
        }
    };
    for fault in [Fault::LoseAnswer, Fault::conflict(), Fault::unavailable(), Fault::Unreachable] {
        fail_each_once(&fault);
        scene.until_open("orders").await;
        engine.faults.clear();
        fail_each_once(&fault);
        scene.well_again();
        scene.until("it has recovered", 900, || scene.phase("orders") == "Healthy").await;
        scene.until_untouched(120).await;
        engine.faults.clear();
    }
}
