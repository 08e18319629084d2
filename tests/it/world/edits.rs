//! Policies that are edited while they hold something.

use serde_json::json;

use super::scene::{POLICIES, Scene, breaker};

#[tokio::test(start_paused = true)]
async fn suspended_while_active_all_is_undone_and_it_is_judged_no_more() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    scene.edit("orders", json!({"suspend": true})).await;
    scene.until_untouched(20).await;
    scene.until("it holds nothing", 20, || scene.finalizers("orders").is_empty()).await;
    assert!(scene.condition("orders", "Suspended").starts_with("True Suspended"));
    scene.rest(120).await;
    assert!(scene.is_untouched() && scene.phase("orders") == "Healthy", "the fault lasts, and it rests");
    scene.edit("orders", json!({"suspend": false})).await;
    let waited = scene.until("the breaker is open", 90, || scene.stands()).await;
    assert!(waited >= 18, "the breach has to last for `duration`: {waited} s");
    assert!(scene.condition("orders", "Suspended").starts_with("False"));
}

#[tokio::test(start_paused = true)]
async fn an_edit_that_is_not_valid_keeps_the_last_good_text_and_its_effects() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "1m")).await;
    scene.until_open("orders").await;
    let before = scene.counts();
    let bad = json!({"type": "circuit-breaker", "config": {"timeout": "1m", "fallback": "read-only"}});
    scene.edit("orders", json!({"actions": [bad]})).await;
    scene.until("it is refused", 10, || scene.condition("orders", "Accepted").starts_with("False")).await;
    let accepted = scene.condition("orders", "Accepted");
    assert!(accepted.contains("spec.actions[0].config.fallback") && accepted.contains("read-only"), "{accepted}");
    assert!(accepted.contains("the last valid text stays in force"), "{accepted}");
    scene.rest(20).await;
    assert!(scene.stands());
    assert_eq!(scene.effect_writes(&before), 0, "nothing of it is touched");
    // It goes on by the good text, through recovery to the end.
    scene.well_again();
    scene.until("it has recovered", 300, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
    // A good edit takes force at once.
    scene.edit("orders", json!({"actions": [{"type": "mode", "config": {"mode": "cache-only"}}]})).await;
    let waited = scene.until("it is accepted", 10, || scene.condition("orders", "Accepted").starts_with("True")).await;
    assert!(waited <= 1, "an edit takes effect within a second: {waited} s");
    scene.breach();
    scene.until("the mode stands", 90, || scene.mode().as_deref() == Some("cache-only")).await;
    assert_eq!(scene.weights(), (100, 0), "by the new text");
}

#[tokio::test(start_paused = true)]
async fn new_actions_are_planned_anew_while_active() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    let opened = scene.status("orders")["since"].clone();
    scene.edit("orders", json!({"actions": [{"type": "mode", "config": {"mode": "cache-only"}}]})).await;
    scene.until("the weights are back", 10, || scene.weights() == (100, 0)).await;
    assert_eq!(scene.mode().as_deref(), Some("cache-only"), "what both texts want stays");
    assert_eq!((scene.phase("orders").as_str(), &scene.status("orders")["since"]), ("Active", &opened));
    let half = json!({"type": "route-weight", "config": {"destination": "cache-only", "weight": 50}});
    scene.edit("orders", json!({"actions": [half]})).await;
    scene.until("half is diverted", 10, || scene.weights() == (50, 50)).await;
    scene.until("the mode is lifted", 10, || scene.mode().is_none() && scene.pods_in("cache-only").is_empty()).await;
    assert_eq!(scene.phase("orders"), "Active");
    scene.delete_policy("orders").await;
    scene.until("it is gone", 30, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched(), "from what was found first");
}

#[tokio::test(start_paused = true)]
async fn other_thresholds_keep_the_phase_and_start_its_clock_anew() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.breach();
    scene.until("it is Pending", 60, || scene.phase("orders") == "Pending").await;
    let since = scene.status("orders")["since"].clone();
    scene.rest(14).await;
    scene.edit("orders", json!({"thresholds": {"p99": "700ms"}})).await;
    scene.rest(2).await;
    assert_eq!((scene.phase("orders").as_str(), &scene.status("orders")["since"]), ("Pending", &since));
    let waited = scene.until("it is Active", 60, || scene.phase("orders") == "Active").await;
    assert!((17..=26).contains(&waited), "`duration` runs from the edit: {waited} s");
    scene.until("the breaker is open", 10, || scene.stands()).await;
    let before = scene.counts();
    scene.edit("orders", json!({"thresholds": {"p99": "5s"}})).await;
    scene.rest(10).await;
    assert!(scene.phase("orders") == "Active" && scene.stands(), "a laxer threshold is no evidence by itself");
    assert_eq!(scene.effect_writes(&before), 0);
    scene.until("it has recovered by it", 300, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
}

#[tokio::test(start_paused = true)]
async fn another_workload_undoes_first_and_starts_anew() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    scene.edit("orders", json!({"workload": {"podSelector": {"matchLabels": {"version": "primary"}}}})).await;
    scene.until_untouched(10).await;
    scene
        .until("the breaker is open for the new one", 120, || {
            scene.phase("orders") == "Active" && scene.pods_in("cache-only").len() == 5
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn dry_run_and_warn_judge_and_tell_and_change_nothing() {
    for (enforcement, told) in [("dryRun", "DryRun"), ("warn", "Warn")] {
        let scene = Scene::open();
        let _engine = scene.acting_engine("a").await;
        let mut policy = breaker("orders", "10m");
        policy["spec"]["enforcementAction"] = json!(enforcement);
        scene.apply(&policy).await;
        let before = scene.counts();
        scene.breach();
        scene.until("it is Active", 120, || scene.phase("orders") == "Active").await;
        scene.rest(30).await;
        assert!(scene.is_untouched() && scene.interventions().is_empty());
        assert_eq!(scene.effect_writes(&before), 0);
        assert_eq!(scene.finalizers("orders"), [""; 0], "it holds nothing");
        assert!(scene.condition("orders", "Enforced").starts_with(&format!("False {told}")));
        let events = scene.world.events();
        assert!(events.iter().any(|event| event.to_string().contains("BreachConfirmed")), "it is told: {events:?}");
        // Enforced from now on, it acts by the state that it has.
        scene.edit("orders", json!({"enforcementAction": "enforce"})).await;
        scene.until("the breaker is open", 15, || scene.stands()).await;
        scene.edit("orders", json!({"enforcementAction": enforcement})).await;
        scene.until_untouched(15).await;
        scene.until("it holds nothing", 15, || scene.finalizers("orders").is_empty()).await;
    }
}

/// Nothing that an engine writes itself makes it look again for ever.
#[tokio::test(start_paused = true)]
async fn an_active_policy_is_written_once_a_minute_at_most_while_nothing_changes() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30m")).await;
    scene.until_open("orders").await;
    scene.rest(30).await;
    let before = scene.counts();
    scene.rest(600).await;
    let since = scene.counts().since(&before);
    assert!(since.by("a").of(POLICIES).writes() <= 11, "{since:?}");
    assert_eq!(scene.effect_writes(&before), 0);
}
