//! Others who write over an effect: reverts with growing pauses, foreign values, and who is let alone.

use chrono::TimeDelta;
use serde_json::{Value, json};
use tradeguard::{
    effects::{Actor, Outcome, Wanted},
    model::{effect::InterventionPhase, reason::Reason},
};

use super::stage::{Stage, holder, isolated, isolation_slot, mode, mode_slot, weights, weights_slot};

fn at(stage: &Stage, seconds: i64) -> Outcome {
    Outcome::Waiting(stage.start + TimeDelta::seconds(seconds))
}

#[tokio::test(start_paused = true)]
async fn a_revert_is_made_again_after_10_s_1_min_and_5_min_and_then_contested() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(0, 100));
    assert_eq!(stage.drive(&slot, Some(&wanted), 0).await, Outcome::Applied);
    let mut now = 100;
    for pause in [10, 60, 300] {
        stage.set_weights(100, Value::Null).await;
        assert_eq!(stage.drive(&slot, Some(&wanted), now).await, at(&stage, now + pause));
        assert_eq!(stage.drive(&slot, Some(&wanted), now + pause - 1).await, at(&stage, now + pause), "counted once");
        assert_eq!(stage.weights().await, (json!(100), Value::Null), "not before its time");
        now += pause;
        assert_eq!(stage.drive(&slot, Some(&wanted), now).await, Outcome::Reasserted);
        assert_eq!(stage.weights().await, (json!(0), json!(100)));
        assert_eq!(stage.drive(&slot, Some(&wanted), now).await, Outcome::Unchanged);
    }
    stage.set_weights(100, Value::Null).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), now).await, Outcome::Contested);
    let before = stage.snapshot();
    assert_eq!(stage.drive(&slot, Some(&weights(10, 90)), now + 10_000).await, Outcome::Contested);
    assert_eq!(stage.snapshot(), before, "hands off");
    let status = stage.record(&slot).await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.reverts), (Some(InterventionPhase::Contested), 4));

    assert_eq!(stage.drive(&slot, None, now + 20_000).await, Outcome::Restored);
    assert_eq!(stage.snapshot(), before, "what others put there stays");
    assert_eq!(stage.owned_by_us(), Vec::<String>::new());
    assert_eq!(
        stage.drive(&slot, Some(&wanted), now + 30_000).await,
        Outcome::Applied,
        "the next episode starts afresh"
    );
    assert_eq!(stage.record(&slot).await.unwrap().status.unwrap().reverts, 0);
}

#[tokio::test(start_paused = true)]
async fn another_policy_is_not_held_to_the_contest_of_the_one_before() {
    let stage = Stage::open().await;
    let (slot, wanted) = (mode_slot(), mode("cache-only"));
    stage.drive(&slot, Some(&wanted), 0).await;
    for now in [0, 1_000, 2_000, 3_000] {
        stage
            .edit(
                &stage.targets(),
                "core-trading",
                json!({"metadata": {"annotations": {"policy.trade.io/mode": null}}}),
            )
            .await;
        stage.drive(&slot, Some(&wanted), now).await;
        stage.drive(&slot, Some(&wanted), now + 500).await;
    }
    assert_eq!(stage.record(&slot).await.unwrap().phase(), InterventionPhase::Contested);
    let other = holder("order-intake");
    let driven = stage.drive_as(1, &slot, Some((&other, &mode("read-only"))), 4_000).await.unwrap();
    assert_eq!(driven.outcome, Outcome::Applied);
    assert_eq!(driven.record.unwrap().status.unwrap().reverts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_value_becomes_the_original_is_overlaid_and_counts() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(0, 100));
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.set_weights(60, json!(40)).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 20).await, at(&stage, 30));
    assert_eq!(stage.record(&slot).await.unwrap().status.unwrap().reverts, 1);
    assert_eq!(stage.drive(&slot, Some(&wanted), 30).await, Outcome::Reasserted);
    assert_eq!(stage.weights().await, (json!(0), json!(100)));
    assert_eq!(stage.drive(&slot, None, 40).await, Outcome::Restored);
    assert_eq!(stage.weights().await, (json!(60), json!(40)), "what Git says now, not what it said at first");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_total_is_kept() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(10, 90));
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.set_weights(3, json!(1)).await;
    stage.drive(&slot, Some(&wanted), 10).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 20).await, Outcome::Reasserted);
    assert_eq!(stage.weights().await, (json!(0), json!(4)), "10:90 of a total of four");
    assert_eq!(stage.drive(&slot, Some(&wanted), 20).await, Outcome::Unchanged);
    assert_eq!(stage.drive(&slot, None, 40).await, Outcome::Restored);
    assert_eq!(stage.weights().await, (json!(3), json!(1)));
}

#[tokio::test(start_paused = true)]
async fn what_others_set_before_we_undo_stays() {
    let stage = Stage::open().await;
    stage.drive(&weights_slot(), Some(&weights(0, 100)), 0).await;
    stage.drive(&mode_slot(), Some(&mode("cache-only")), 0).await;
    stage.set_weights(70, json!(30)).await;
    stage
        .edit(&stage.targets(), "core-trading", json!({"metadata": {"annotations": {"policy.trade.io/mode": "drill"}}}))
        .await;
    assert_eq!(stage.drive(&weights_slot(), None, 5).await, Outcome::Restored);
    assert_eq!(stage.drive(&mode_slot(), None, 5).await, Outcome::Restored);
    assert_eq!(stage.weights().await, (json!(70), json!(30)));
    let target = stage.targets().get("core-trading").await.unwrap();
    assert_eq!(target.metadata.annotations.unwrap()["policy.trade.io/mode"], "drill");
    assert_eq!(stage.owned_by_us(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_label_put_back_by_hand_is_a_revert_of_the_isolation() {
    let stage = Stage::open().await;
    let (slot, wanted) = (isolation_slot(), isolated(&["orders-0", "orders-1"]));
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.edit_pod("orders-0", json!({"metadata": {"labels": {"track": "live"}}})).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 20).await, at(&stage, 30));
    stage.edit_pod("orders-0", json!({"metadata": {"labels": {"track": "canary"}}})).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 30).await, Outcome::Reasserted);
    assert!(!stage.pod("orders-0").await.metadata.labels.unwrap().contains_key("track"));
    stage.drive(&slot, None, 40).await;
    assert_eq!(stage.pod("orders-0").await.metadata.labels.unwrap()["track"], "canary");
    assert_eq!(stage.pod("orders-1").await.metadata.labels.unwrap()["track"], "live");
}

#[tokio::test(start_paused = true)]
async fn a_revert_that_ends_by_itself_is_not_answered() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(0, 100));
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.set_weights(100, Value::Null).await;
    stage.drive(&slot, Some(&wanted), 10).await;
    stage.set_weights(0, json!(100)).await;
    stage.drive(&slot, Some(&wanted), 15).await;
    stage.set_weights(100, Value::Null).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 30).await, at(&stage, 90), "a second revert, with its own pause");
}

#[tokio::test(start_paused = true)]
async fn an_old_cache_is_no_revert() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(0, 100));
    let old = stage.seen(&slot).await;
    stage.drive(&slot, Some(&wanted), 0).await;
    let holder = holder("order-processing");
    let asked = Wanted { holder: &holder, desired: &wanted, target: None, reason: Reason::BreachConfirmed };
    let actor = Actor { name: "engine-1".to_owned(), epoch: 1 };
    let record = stage.record(&slot).await;
    let before = stage.memkube.version();
    for record in [record.as_ref(), None] {
        let driven = stage.effects.drive(&actor, &slot, Some(&asked), record, &old, stage.start).await.unwrap();
        assert_eq!(driven.outcome, Outcome::Unchanged);
    }
    assert_eq!(stage.memkube.version(), before, "nothing was written");
}
