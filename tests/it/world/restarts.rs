//! An engine that is killed and started again: it goes on where status and records say it stood.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::scene::{LEASE, POLICIES, Scene, breaker};

/// The moves that status remembers: (reason, when).
fn history(scene: &Scene, name: &str) -> Vec<(String, DateTime<Utc>)> {
    let status = scene.status(name);
    let moves = status["history"].as_array().cloned().unwrap_or_default();
    let text = |change: &Value, field: &str| change[field].as_str().unwrap_or_default().to_owned();
    moves.iter().map(|change| (text(change, "reason"), text(change, "time").parse().expect("is a time"))).collect()
}

fn reasons(scene: &Scene, name: &str) -> Vec<String> {
    history(scene, name).into_iter().map(|(reason, _)| reason).collect()
}

/// Promise 6.
#[tokio::test(start_paused = true)]
async fn killed_while_active_it_repeats_nothing_and_the_original_comes_back() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "2m")).await;
    scene.until_open("orders").await;
    let before = scene.counts();
    engine.kill();
    scene.rest(5).await;
    let engine = scene.acting_engine("b").await;
    scene.rest(60).await;
    assert_eq!(scene.effect_writes(&before), 0);
    assert!(scene.stands());
    scene.well_again();
    scene.until("it has recovered", 600, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
    assert_eq!(
        reasons(&scene, "orders"),
        ["BreachPending", "BreachConfirmed", "HalfOpen", "ProbeOk", "ProbeOk", "Recovered"]
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn killed_while_pending_the_time_away_counts_as_a_gap() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    let mut policy = breaker("orders", "2m");
    policy["spec"]["thresholds"]["duration"] = json!("2m");
    scene.apply(&policy).await;
    scene.breach();
    scene.until("it is Pending", 60, || scene.phase("orders") == "Pending").await;
    // Long enough that a refresh of status has kept some of the clock.
    scene.rest(75).await;
    engine.kill();
    let engine = scene.acting_engine("b").await;
    assert_eq!(scene.phase("orders"), "Pending", "it goes on where it stood");
    scene.until("it is Active", 200, || scene.phase("orders") == "Active").await;
    let history = history(&scene, "orders");
    let [(first, pending), (second, active)] = history.as_slice() else { panic!("two moves: {history:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("BreachPending", "BreachConfirmed"));
    let took = active.signed_duration_since(*pending).num_seconds();
    let away = LEASE.as_secs().cast_signed();
    assert!(took >= 120 + away, "time away does not count: {took} s");
    assert!(took < 120 + away + 75, "what status kept of the clock counts: {took} s");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn killed_while_recovering_it_goes_on_at_its_stage() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.until_open("orders").await;
    scene.well_again();
    scene.until("half is back", 300, || scene.weights() == (50, 50)).await;
    let before = scene.counts();
    engine.kill();
    let engine = scene.acting_engine("b").await;
    assert_eq!(scene.weights(), (50, 50));
    assert_eq!(scene.effect_writes(&before), 0);
    scene.until("it has recovered", 300, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
    assert_eq!(
        reasons(&scene, "orders"),
        ["BreachPending", "BreachConfirmed", "HalfOpen", "ProbeOk", "ProbeOk", "Recovered"],
        "no stage is gone through twice"
    );
    engine.stop().await;
}

/// Status is written before the first effect: whatever moment a kill hits, the reason of what stands is there.
#[tokio::test(start_paused = true)]
async fn killed_at_any_write_of_the_opening_the_next_engine_finishes_it_and_all_comes_back() {
    for write in 1..=14 {
        let scene = Scene::open();
        let engine = scene.acting_engine("a").await;
        scene.apply(&breaker("orders", "30s")).await;
        scene.breach();
        scene.until("it is Pending", 60, || scene.phase("orders") == "Pending").await;
        engine.faults.kill_after_write(write);
        scene.until("the kill struck", 120, || engine.faults.is_dead()).await;
        engine.kill();
        let engine = scene.acting_engine("b").await;
        scene.until("the breaker is open", 120, || scene.phase("orders") == "Active" && scene.stands()).await;
        scene.delete_policy("orders").await;
        scene.until("it is gone", 60, || scene.policy("orders").is_none()).await;
        assert!(scene.is_untouched(), "after write {write}");
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_while_no_engine_runs_its_effects_are_undone_by_the_next() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    engine.stop().await;
    scene.delete_policy("orders").await;
    scene.rest(30).await;
    assert!(scene.policy("orders").is_some() && scene.stands(), "the finalizer waits for an engine");
    let engine = scene.acting_engine("b").await;
    scene.until("the policy is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched(), "it goes last");
    engine.stop().await;
}

/// The newest text is not valid and the good one is known to nobody any more: what stands, stands.
#[tokio::test(start_paused = true)]
async fn a_restart_upon_a_text_that_is_not_valid_takes_nothing_away() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.until_open("orders").await;
    scene.edit("orders", json!({"actions": [{"type": "mode", "config": {"mode": "read-only"}}]})).await;
    scene.until("it is refused", 10, || scene.condition("orders", "Accepted").starts_with("False")).await;
    engine.kill();
    let before = scene.counts();
    let engine = scene.acting_engine("b").await;
    scene.well_again();
    scene.rest(300).await;
    assert!(scene.stands());
    assert_eq!(scene.effect_writes(&before), 0);
    assert_eq!(scene.phase("orders"), "Active");
    assert!(scene.counts().since(&before).of(POLICIES).writes() <= 10, "and it is not written over and over");
    let good = breaker("orders", "30s")["spec"]["actions"].clone();
    scene.edit("orders", json!({ "actions": good })).await;
    scene.until("it has recovered", 300, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
    engine.stop().await;
}
