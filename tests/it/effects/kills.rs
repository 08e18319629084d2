//! Death before and after every single write of making, handing over and undoing, for every kind of slot.

use serde_json::json;
use tradeguard::{
    effects::Outcome,
    model::{
        effect::{Desired, Holder, InterventionPhase},
        slot::Slot,
    },
};

use super::stage::{Stage, holder, isolated, isolation_slot, mode, mode_slot, weights, weights_slot};

/// A kind of slot with values that it may be given one after the other.
struct Case {
    slot: Slot,
    first: Desired,
    second: Desired,
    third: Desired,
}

fn cases() -> Vec<Case> {
    vec![
        Case { slot: weights_slot(), first: weights(0, 100), second: weights(10, 90), third: weights(50, 50) },
        Case { slot: mode_slot(), first: mode("cache-only"), second: mode("read-only"), third: mode("drill") },
        Case {
            slot: isolation_slot(),
            first: isolated(&["orders-0", "orders-1"]),
            second: isolated(&["orders-1"]),
            third: isolated(&["orders-0"]),
        },
        Case {
            slot: isolation_slot(),
            first: isolated(&["gated", "orders-1"]),
            second: isolated(&["orders-1", "orders-2"]),
            third: isolated(&["gated"]),
        },
    ]
}

async fn stage() -> Stage {
    let stage = Stage::open().await;
    stage.add_pod("gated", true).await;
    let pods = [std::sync::Arc::new(stage.pod("gated").await)];
    assert_eq!(stage.effects.open_gates(&pods, stage.start).await.unwrap(), 1);
    // One with a mode of its own: putting that back makes us an owner of the field.
    stage.edit_pod("gated", json!({"metadata": {"annotations": {"policy.trade.io/mode": "normal"}}})).await;
    stage
}

/// Drives until there is nothing left to do, as a new actor would after a crash.
async fn finish(stage: &Stage, epoch: i64, slot: &Slot, wanted: Option<(&Holder, &Desired)>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for _ in 0..6 {
        let driven = stage.drive_as(epoch, slot, wanted, 5).await.unwrap();
        outcomes.push(driven.outcome);
        if driven.outcome == Outcome::Unchanged {
            return outcomes;
        }
    }
    panic!("{slot} does not come to rest: {outcomes:?}");
}

/// Kills the engine at each write of `step` in turn; then another actor, which wants `then`, finishes.
async fn at_every_write(
    case: &Case,
    prepare: &[Option<&Desired>],
    step: Option<(&Holder, &Desired)>,
    then: Option<(&Holder, &Desired)>,
) {
    let first = holder("order-processing");
    for lands in [false, true] {
        for write in 1.. {
            let stage = stage().await;
            let clean = stage.snapshot();
            for wanted in prepare {
                finish(&stage, 1, &case.slot, wanted.map(|desired| (&first, desired))).await;
            }
            if lands {
                stage.faults.kill_after_write(write);
            } else {
                stage.faults.kill_before_write(write);
            }
            let died = stage.drive_as(1, &case.slot, step, 1).await.is_err();
            if !died {
                assert!(write > 2, "{}: the step has only {} writes", case.slot, write - 1);
                break;
            }
            stage.faults.clear();
            // Somebody edits what is not ours while the engine is down.
            stage.edit(&stage.virtual_services(), "core-trading", json!({"metadata": {"labels": {"by": "git"}}})).await;
            stage.edit(&stage.targets(), "core-trading", json!({"spec": {"replicas": 4}})).await;
            stage.edit_pod("orders-0", json!({"metadata": {"annotations": {"note": "seen"}}})).await;

            finish(&stage, 2, &case.slot, then).await;
            let place = format!("{}, write {write}, lands: {lands}", case.slot);
            if let Some((holder, desired)) = then {
                let record = stage.record(&case.slot).await.unwrap();
                assert_eq!(record.phase(), InterventionPhase::Applied, "{place}");
                let read = record.record().unwrap();
                assert_eq!((&read.holder, &read.desired), (holder, desired), "{place}");
                assert_eq!(record.status.as_ref().unwrap().reverts, 0, "{place}: our own writes are no reverts");
                finish(&stage, 2, &case.slot, None).await;
            }
            match stage.record(&case.slot).await {
                Some(record) => {
                    assert_eq!(record.phase(), InterventionPhase::Restored, "{place}");
                    // An undoing that was finished but for the answer, and then wanted again, is a second one.
                    let episodes = record.status.unwrap().episodes.len();
                    assert!(episodes == 1 || (episodes == 2 && step.is_none()), "{place}: {episodes} episodes");
                }
                None => assert!(write == 1 && !lands && then.is_none(), "{place}: no record"),
            }
            assert_eq!(stage.owned_by_us(), Vec::<String>::new(), "{place}: field ownership");
            assert_eq!(
                stage.virtual_services().get("core-trading").await.unwrap().metadata.labels.unwrap()["by"],
                "git"
            );
            assert_eq!(stage.targets().get("core-trading").await.unwrap().data["spec"]["replicas"], 4);
            assert_eq!(stage.pod("orders-0").await.metadata.annotations.unwrap()["note"], "seen", "{place}");
            stage.edit(&stage.virtual_services(), "core-trading", json!({"metadata": {"labels": null}})).await;
            stage.edit(&stage.targets(), "core-trading", json!({"spec": {"replicas": 3}})).await;
            stage.edit_pod("orders-0", json!({"metadata": {"annotations": {"note": null}}})).await;
            assert_eq!(stage.snapshot(), clean, "{place}: the original is back to the byte");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_write_of_making_an_effect_is_finished_once() {
    let holder = holder("order-processing");
    for case in cases() {
        at_every_write(&case, &[], Some((&holder, &case.first)), Some((&holder, &case.first))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_write_of_a_hand_over_keeps_the_original() {
    let successor = holder("order-intake");
    for case in cases() {
        let step = Some((&successor, &case.second));
        at_every_write(&case, &[Some(&case.first)], step, step).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_write_of_undoing_still_undoes_all_of_it() {
    for case in cases() {
        at_every_write(&case, &[Some(&case.first)], None, None).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_wants_something_else_after_a_kill_never_takes_our_value_for_the_original() {
    let (holder, successor) = (holder("order-processing"), holder("order-intake"));
    for case in cases() {
        let (first, second) = (Some((&holder, &case.first)), Some((&successor, &case.second)));
        at_every_write(&case, &[], first, None).await;
        at_every_write(&case, &[], first, second).await;
        at_every_write(&case, &[Some(&case.first)], second, None).await;
        at_every_write(&case, &[Some(&case.first)], second, Some((&holder, &case.third))).await;
        at_every_write(&case, &[Some(&case.first)], None, second).await;
    }
}
