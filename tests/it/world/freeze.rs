//! The freeze: `new` stops new and growing effects, `all` stops every write.

use super::scene::{Scene, breaker};

#[tokio::test(start_paused = true)]
async fn under_a_freeze_of_new_effects_a_breach_is_judged_and_nothing_begins_until_it_is_lifted() {
    for mode in ["new", "all", "sotp"] {
        let scene = Scene::open();
        let _engine = scene.acting_engine("a").await;
        scene.freeze(mode).await;
        scene.apply(&breaker("orders", "10m")).await;
        scene.breach();
        scene.until("it is Active", 120, || scene.phase("orders") == "Active").await;
        scene.rest(60).await;
        assert!(scene.is_untouched() && scene.interventions().is_empty(), "{mode}");
        let enforced = scene.condition("orders", "Enforced");
        assert!(enforced.starts_with("False PartlyEnforced") && enforced.contains("Frozen"), "{mode}: {enforced}");
        assert_eq!(scene.status("orders")["heldBack"][0]["reason"], "Frozen");
        scene.freeze("off").await;
        scene.until("the breaker is open", 10, || scene.stands()).await;
        scene.until("it says so", 10, || !scene.condition("orders", "Enforced").contains("Frozen")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_freeze_of_new_effects_what_stands_stands_and_comes_back() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "2m")).await;
    scene.until_open("orders").await;
    scene.rest(5).await;
    let before = scene.counts();
    scene.freeze("new").await;
    scene.rest(60).await;
    assert!(scene.stands());
    assert_eq!(scene.effect_writes(&before), 0);
    scene.well_again();
    scene.until("it has recovered", 300, || scene.phase("orders") == "Healthy").await;
    scene.until_untouched(30).await;
}

#[tokio::test(start_paused = true)]
async fn under_a_freeze_of_all_nothing_is_undone_either_until_it_is_lifted() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.until_open("orders").await;
    scene.freeze("all").await;
    scene.rest(2).await;
    let before = scene.counts();
    scene.well_again();
    scene.rest(300).await;
    assert!(scene.stands(), "{:?}", scene.weights());
    scene.delete_policy("orders").await;
    scene.rest(60).await;
    assert!(scene.stands() && scene.policy("orders").is_some(), "the finalizer keeps what the freeze keeps");
    assert_eq!(scene.effect_writes(&before), 0);
    scene.freeze("off").await;
    scene.until("it is gone", 30, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}
