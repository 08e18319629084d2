//! Several policies that want the same slots.

use serde_json::{Value, json};

use super::scene::{ROUTES, Scene, TARGETS, breaker};

/// A breaker that is breached by any traffic, also while another one keeps the service quick.
fn strict(name: &str) -> Value {
    let mut policy = breaker(name, "10m");
    policy["spec"]["thresholds"]["p99"] = json!("1ms");
    policy
}

fn diverting(name: &str, weight: i64) -> Value {
    let mut policy = strict(name);
    policy["spec"]["actions"] =
        json!([{"type": "route-weight", "config": {"destination": "cache-only", "weight": weight}}]);
    policy
}

fn holder(scene: &Scene, slot: &str) -> String {
    scene.intervention(slot)["spec"]["holder"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Of lab tenants the newest wins. The hand-over is one change; the original stays that of before both.
#[tokio::test(start_paused = true)]
async fn a_slot_is_handed_over_with_its_original_and_returns_when_the_last_claim_is_gone() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("first", "10m")).await;
    scene.until_open("first").await;
    let original = scene.intervention("weights")["spec"]["original"].clone();
    assert_eq!(holder(&scene, "weights"), "first");
    let before = scene.counts();
    scene.apply(&diverting("second", 50)).await;
    scene
        .until("the second one holds the route", 60, || {
            holder(&scene, "weights") == "second" && scene.weights() == (50, 50)
        })
        .await;
    assert_eq!(scene.counts().since(&before).by("a").of(ROUTES).writes(), 1, "one change");
    assert_eq!(scene.intervention("weights")["spec"]["original"], original);
    assert_eq!(holder(&scene, "mode"), "first", "what nobody else wants stays");
    scene.until("the loser is told", 10, || scene.condition("first", "Overridden").starts_with("True")).await;
    let overridden = scene.condition("first", "Overridden");
    assert!(overridden.contains("second"), "the message names the winner: {overridden}");
    assert_eq!(scene.phase("first"), "Active", "being overridden moves no phase");
    let before = scene.counts();
    scene.delete_policy("second").await;
    scene.until("the first one holds it again", 30, || holder(&scene, "weights") == "first").await;
    scene.until("by its own weights", 10, || scene.weights() == (0, 100)).await;
    assert_eq!(scene.counts().since(&before).by("a").of(ROUTES).writes(), 1, "one change, not back and forth");
    assert_eq!(scene.intervention("weights")["spec"]["original"], original);
    scene.until("the second one is gone", 10, || scene.policy("second").is_none()).await;
    scene.until("the first one is told", 10, || scene.condition("first", "Overridden").starts_with("False")).await;
    scene.delete_policy("first").await;
    scene.until("both are gone", 30, || scene.policy("first").is_none()).await;
    assert!(scene.is_untouched());
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_of_the_same_value_writes_the_record_and_not_the_object() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("first", "10m")).await;
    scene.until_open("first").await;
    let before = scene.counts();
    let mut second = strict("second");
    second["spec"]["actions"] = json!([
        {"type": "mode", "config": {"mode": "cache-only"}},
        {"type": "route-weight", "config": {"destination": "cache-only", "weight": 100}},
    ]);
    scene.apply(&second).await;
    let has_both = || holder(&scene, "weights") == "second" && holder(&scene, "mode") == "second";
    scene.until("the second one holds both", 60, has_both).await;
    let since = scene.counts().since(&before).by("a");
    for resource in [ROUTES, TARGETS, "pods"] {
        assert_eq!(since.of(resource).writes(), 0, "{since:#?}");
    }
    scene.rest(10).await;
    scene.delete_policy("first").await;
    scene.until("the loser goes", 30, || scene.policy("first").is_none()).await;
    assert!(scene.stands(), "what the winner holds stays");
    scene.delete_policy("second").await;
    scene.until("the winner goes", 30, || scene.policy("second").is_none()).await;
    assert!(scene.is_untouched());
}

#[tokio::test(start_paused = true)]
async fn one_that_only_computes_displaces_nobody() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("first", "10m")).await;
    scene.until_open("first").await;
    let before = scene.counts();
    let mut second = diverting("second", 50);
    second["spec"]["enforcementAction"] = json!("dryRun");
    scene.apply(&second).await;
    scene.until("it is Active", 60, || scene.phase("second") == "Active").await;
    scene.rest(30).await;
    assert_eq!(holder(&scene, "weights"), "first");
    assert_eq!(scene.effect_writes(&before), 0);
    assert!(scene.condition("first", "Overridden").starts_with("False"));
}
