//! Single steps: what is written, what is left alone, what happens when objects go.

use std::sync::Arc;

use chrono::TimeDelta;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tradeguard::{
    api::{Intervention, marks::FINALIZER},
    effects::{Class, Error, Outcome, is_in_service},
    memkube::fault::{Fault, Matching},
    model::{
        effect::{Desired, InterventionPhase},
        slot::{RouteKey, Slot},
    },
};

use super::stage::{
    MANAGER, NAMESPACE, Stage, holder, isolated, isolation_slot, mode, mode_slot, weights, weights_slot,
};

fn every_slot() -> [(Slot, Desired); 3] {
    [(weights_slot(), weights(0, 100)), (mode_slot(), mode("cache-only")), (isolation_slot(), isolated(&["orders-1"]))]
}

#[tokio::test(start_paused = true)]
async fn while_all_stands_nothing_is_asked_and_nothing_written() {
    let stage = Stage::open().await;
    for (slot, wanted) in every_slot() {
        assert_eq!(stage.drive(&slot, Some(&wanted), 0).await, Outcome::Applied);
        let before = stage.memkube.counts();
        assert_eq!(stage.drive(&slot, Some(&wanted), 10).await, Outcome::Unchanged);
        assert_eq!(stage.memkube.counts().since(&before).by("engine").total(), 0, "{slot}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_record_is_there_before_the_effect() {
    for (slot, wanted) in every_slot() {
        let stage = Stage::open().await;
        let before = stage.snapshot();
        stage.faults.kill_after_write(1);
        let holder = holder("order-processing");
        assert!(stage.drive_as(1, &slot, Some((&holder, &wanted)), 0).await.is_err());
        assert_eq!(stage.snapshot(), before, "{slot}: no effect yet");
        let record = stage.record(&slot).await.unwrap();
        assert_eq!((record.phase(), &record.spec.actor.name), (InterventionPhase::Pending, &"engine-1".to_owned()));
        assert!(record.spec.original.is_some(), "{slot}");
    }
}

#[tokio::test(start_paused = true)]
async fn weights_are_changed_and_nothing_beside_them() {
    let stage = Stage::open().await;
    let mut expected = stage.virtual_services().get("core-trading").await.unwrap().data;
    stage.drive(&weights_slot(), Some(&weights(0, 100)), 0).await;
    expected["spec"]["http"][1]["route"][0]["weight"] = json!(0);
    expected["spec"]["http"][1]["route"][1]["weight"] = json!(100);
    assert_eq!(stage.virtual_services().get("core-trading").await.unwrap().data, expected);
}

#[tokio::test(start_paused = true)]
async fn an_isolated_pod_is_selected_by_no_service_and_comes_back() {
    let stage = Stage::open().await;
    stage.add_pod("gated", true).await;
    stage.effects.open_gates(&[Arc::new(stage.pod("gated").await)], stage.start).await.unwrap();
    let slot = isolation_slot();
    let services = stage.seen(&slot).await.services;
    let names = ["gated", "orders-1"];
    for name in names {
        assert!(is_in_service(&stage.pod(name).await, &services), "{name}");
    }
    stage.drive(&slot, Some(&isolated(&names)), 0).await;
    for name in names {
        assert!(!is_in_service(&stage.pod(name).await, &services), "{name}");
    }
    assert!(is_in_service(&stage.pod("orders-0").await, &services));
    assert_eq!(stage.pod("gated").await.labels()["track"], "live", "a gate spares the labels");
    stage.drive(&slot, None, 10).await;
    for name in names {
        assert!(is_in_service(&stage.pod(name).await, &services), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_is_opened_once_and_never_by_force() {
    let stage = Stage::open().await;
    stage.add_pod("gated", true).await;
    let pods = [Arc::new(stage.pod("gated").await), Arc::new(stage.pod("orders-0").await)];
    assert_eq!(stage.effects.open_gates(&pods, stage.start).await.unwrap(), 1);
    assert_eq!(stage.effects.open_gates(&pods, stage.start).await.unwrap(), 0, "what was read is old");
    stage.drive(&isolation_slot(), Some(&isolated(&["gated"])), 0).await;
    let pods = [Arc::new(stage.pod("gated").await)];
    assert_eq!(stage.effects.open_gates(&pods, stage.start).await.unwrap(), 0, "an isolated Pod stays so");
}

#[tokio::test(start_paused = true)]
async fn new_pods_get_the_mode_too() {
    let stage = Stage::open().await;
    let (slot, wanted) = (mode_slot(), mode("cache-only"));
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.add_pod("orders-3", false).await;
    assert_eq!(stage.drive(&slot, Some(&wanted), 100).await, Outcome::Applied);
    assert_eq!(stage.pod("orders-3").await.annotations()["policy.trade.io/mode"], "cache-only");
    assert_eq!(stage.record(&slot).await.unwrap().status.unwrap().reverts, 0, "a new Pod is no revert");
    stage.drive(&slot, None, 200).await;
    assert!(stage.pod("orders-3").await.annotations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_gone_does_not_keep_its_pods_from_being_undone() {
    let stage = Stage::open().await;
    let (slot, wanted) = (mode_slot(), mode("cache-only"));
    stage.edit_pod("orders-0", json!({"metadata": {"annotations": {"policy.trade.io/mode": "normal"}}})).await;
    let clean = stage.pod("orders-0").await.metadata.annotations;
    stage.drive(&slot, Some(&wanted), 0).await;
    stage.targets().delete("core-trading", &DeleteParams::default()).await.unwrap();
    assert_eq!(stage.drive(&slot, Some(&wanted), 10).await, Outcome::ObjectGone);
    assert_eq!(stage.pod("orders-0").await.metadata.annotations, clean, "a Pod's own mode is back");
    assert!(stage.pod("orders-1").await.annotations().is_empty());
    assert_eq!(stage.owned_by_us(), Vec::<String>::new());
    assert_eq!(stage.drive(&slot, Some(&wanted), 20).await, Outcome::ObjectGone, "and there is nothing to set it on");
    assert_eq!(stage.drive(&slot, None, 30).await, Outcome::Unchanged);
}

#[tokio::test(start_paused = true)]
async fn a_virtual_service_made_anew_never_gets_a_stale_weight() {
    for finishing in [None, Some(weights(0, 100))] {
        let stage = Stage::open().await;
        stage.drive(&weights_slot(), Some(&weights(0, 100)), 0).await;
        let mut anew = stage.virtual_services().get("core-trading").await.unwrap();
        stage.virtual_services().delete("core-trading", &DeleteParams::default()).await.unwrap();
        anew.metadata =
            ObjectMeta { name: anew.metadata.name, namespace: anew.metadata.namespace, ..ObjectMeta::default() };
        // It holds by chance exactly what we had set.
        stage.virtual_services().create(&PostParams::default(), &anew).await.unwrap();
        assert_eq!(stage.drive(&weights_slot(), finishing.as_ref(), 10).await, Outcome::ObjectGone);
        assert_eq!(stage.weights().await, (json!(0), json!(100)), "not touched");
        let record = stage.record(&weights_slot()).await.unwrap();
        assert_eq!(record.phase(), InterventionPhase::Restored);
        assert_eq!(record.status.unwrap().reason.as_deref(), Some("ObjectGone"));
        if let Some(wanted) = finishing {
            assert_eq!(
                stage.drive(&weights_slot(), Some(&wanted), 20).await,
                Outcome::Applied,
                "a new episode of its own"
            );
            stage.drive(&weights_slot(), None, 30).await;
            assert_eq!(stage.weights().await, (json!(0), json!(100)), "with the new object's own original");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_anew_while_isolated_is_another_pod() {
    let stage = Stage::open().await;
    let slot = isolation_slot();
    stage.drive(&slot, Some(&isolated(&["orders-0", "orders-1"])), 0).await;
    stage.pods().delete("orders-0", &DeleteParams::default()).await.unwrap();
    stage.add_pod("orders-0", false).await;
    stage.edit_pod("orders-0", json!({"metadata": {"labels": {"track": null}}})).await;
    assert_eq!(stage.drive(&slot, None, 10).await, Outcome::Restored);
    assert!(!stage.pod("orders-0").await.labels().contains_key("track"), "the new one is as its owner made it");
    assert_eq!(stage.pod("orders-1").await.labels()["track"], "live");
    assert_eq!(stage.drive(&slot, Some(&isolated(&["orders-2"])), 20).await, Outcome::Applied);
    stage.pods().delete("orders-2", &DeleteParams::default()).await.unwrap();
    assert_eq!(stage.drive(&slot, None, 30).await, Outcome::ObjectGone);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_its_replica_set_has_replaced_is_deleted_instead_of_put_back() {
    let stage = Stage::open().await;
    let services: Api<DynamicObject> = stage.api("", "v1", "Service", "services");
    // Now only `app` is needed, which the ReplicaSet selects too.
    services.delete("orders-metrics", &DeleteParams::default()).await.unwrap();
    stage.edit(&services, "orders", json!({"spec": {"selector": {"track": null}}})).await;
    let slot = isolation_slot();
    stage.drive(&slot, Some(&isolated(&["orders-0", "orders-1"])), 0).await;
    let entry = stage.record(&slot).await.unwrap().spec.original.unwrap().isolated.unwrap().remove(0);
    assert_eq!((entry.key.as_deref(), entry.replaced), (Some("app"), Some(true)));
    // As the ReplicaSet's controller does with a Pod that it selects no longer.
    stage.edit_pod("orders-0", json!({"metadata": {"ownerReferences": null}})).await;
    assert_eq!(stage.drive(&slot, None, 10).await, Outcome::Restored);
    assert!(stage.pods().get_opt("orders-0").await.unwrap().is_none(), "its replacement runs");
    assert_eq!(stage.pod("orders-1").await.labels()["app"], "orders", "not let go yet: put back");
}

#[tokio::test(start_paused = true)]
async fn a_later_actor_fences_an_earlier_one() {
    for (slot, wanted) in every_slot() {
        let stage = Stage::open().await;
        let holder = holder("order-processing");
        stage.drive_as(7, &slot, Some((&holder, &wanted)), 0).await.unwrap();
        let before = stage.memkube.version();
        for late in [None, Some((&holder, &wanted))] {
            let error = stage.drive_as(6, &slot, late, 10).await.unwrap_err();
            assert!(matches!(error, Error::Fenced { theirs: 7, ours: 6, .. }), "{error}");
        }
        assert_eq!(stage.memkube.version(), before, "{slot}: nothing was written");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_write_of_a_successor_fences_its_predecessor() {
    for (slot, wanted) in every_slot() {
        let stage = Stage::open().await;
        let holder = holder("order-processing");
        stage.drive_as(1, &slot, Some((&holder, &wanted)), 0).await.unwrap();
        stage.faults.kill_after_write(1);
        assert!(stage.drive_as(2, &slot, None, 10).await.is_err(), "{slot}: it dies while undoing");
        stage.faults.clear();
        let error = stage.drive_as(1, &slot, Some((&holder, &wanted)), 20).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { theirs: 2, ours: 1, .. }), "{slot}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_not_there_is_an_error_and_nothing_is_written() {
    let stage = Stage::open().await;
    let route = RouteKey {
        namespace: NAMESPACE.to_owned(),
        virtual_service: "core-trading".to_owned(),
        name: Some("ordres".to_owned()),
        matches: None,
    };
    let (slot, wanted, holder) = (Slot::Weights { route }, weights(0, 100), holder("order-processing"));
    let before = stage.memkube.version();
    let error = stage.drive_as(1, &slot, Some((&holder, &wanted)), 0).await.unwrap_err();
    assert!(matches!(error, Error::NothingMatched { .. }), "{error}");
    assert_eq!((error.class(), error.reason().as_str()), (Class::Invalid, "EffectRefused"));
    assert_eq!(stage.memkube.version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_refused_effect_stands_in_the_record_and_is_tried_again() {
    let stage = Stage::open().await;
    let (slot, wanted, holder) = (weights_slot(), weights(0, 100), holder("order-processing"));
    let refusal = tradeguard::memkube::Failure::new(403, "Forbidden", "virtualservices is forbidden");
    let only = Matching { writes: true, resource: Some("virtualservices".to_owned()), ..Matching::default() };
    stage.faults.inject_times(only, Fault::Refuse(refusal), 1);
    let error = stage.drive_as(1, &slot, Some((&holder, &wanted)), 0).await.unwrap_err();
    assert!(matches!(error, Error::Refused { code: 403, .. }), "{error}");
    assert_eq!(error.class(), Class::Transient, "rights may be granted");
    let record = stage.record(&slot).await.unwrap();
    assert_eq!(record.phase(), InterventionPhase::Failed);
    assert!(record.status.unwrap().message.unwrap().contains("forbidden"));
    assert_eq!(stage.drive(&slot, Some(&wanted), 10).await, Outcome::Applied);
    assert_eq!(stage.record(&slot).await.unwrap().phase(), InterventionPhase::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_busy_object_is_read_again_and_a_server_that_is_away_is_transient() {
    let stage = Stage::open().await;
    let (slot, wanted, holder) = (weights_slot(), weights(0, 100), holder("order-processing"));
    let only = Matching { writes: true, resource: Some("virtualservices".to_owned()), ..Matching::default() };
    stage.faults.inject_times(only, Fault::conflict(), 2);
    assert_eq!(stage.drive(&slot, Some(&wanted), 0).await, Outcome::Applied);
    stage.faults.inject(Matching::default(), Fault::Unreachable);
    let error = stage.drive_as(1, &slot, Some((&holder, &weights(10, 90))), 0).await.unwrap_err();
    assert_eq!((error.class(), error.reason().as_str()), (Class::Transient, "EffectFailed"));
}

#[tokio::test(start_paused = true)]
async fn a_gitops_tool_can_apply_again_once_we_are_done() {
    let stage = Stage::open().await;
    let api = stage.virtual_services();
    let mut config = serde_json::to_value(api.get("core-trading").await.unwrap()).unwrap();
    config["metadata"] = json!({"name": "core-trading", "namespace": NAMESPACE});
    let apply = async |config: &Value, force: bool| {
        let params = PatchParams { force, ..PatchParams::apply("argocd") };
        api.patch("core-trading", &params, &Patch::Apply(config)).await
    };
    apply(&config, true).await.unwrap();
    stage.drive(&weights_slot(), Some(&weights(0, 100)), 0).await;
    let refused = apply(&config, false).await.unwrap_err().to_string();
    assert!(refused.contains(MANAGER), "the tool learns who holds it: {refused}");
    stage.drive(&weights_slot(), None, 10).await;
    config["spec"]["http"][1]["route"][0]["weight"] = json!(80);
    config["spec"]["http"][1]["route"][1]["weight"] = json!(20);
    apply(&config, false).await.unwrap();
    assert_eq!(stage.weights().await, (json!(80), json!(20)));
}

#[tokio::test(start_paused = true)]
async fn release_undoes_everything_without_an_engine() {
    let stage = Stage::open().await;
    for definition in tradeguard::api::crd::all() {
        stage.memkube.load(&tradeguard::api::crd::to_yaml(&definition)).unwrap();
    }
    let clean = stage.snapshot();
    let policy = json!({
        "apiVersion": "policy.trade.io/v1alpha2", "kind": "LatencyBudgetPolicy",
        "metadata": {"name": "order-processing", "namespace": NAMESPACE, "finalizers": ["other.io/x", FINALIZER]},
        "spec": {"targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": "core-trading"},
            "thresholds": {"p99": "800ms", "duration": "2m"}, "actions": []},
    });
    stage.memkube.load(&policy.to_string()).unwrap();
    for (slot, wanted) in every_slot() {
        stage.drive(&slot, Some(&wanted), 0).await;
    }
    let now = stage.start + TimeDelta::seconds(60);
    let released = stage.effects.release_all(now).await.unwrap();
    assert_eq!(released.len(), 4, "three slots and a finalizer: {released:?}");
    assert!(released.iter().all(|one| matches!(one.result, Ok(Outcome::Restored))), "{released:?}");
    let policies = stage.api("policy.trade.io", "v1alpha2", "LatencyBudgetPolicy", "latencybudgetpolicies");
    assert_eq!(policies.get("order-processing").await.unwrap().finalizers(), ["other.io/x"]);
    stage.edit(&policies, "order-processing", json!({"metadata": {"finalizers": null}})).await;
    policies.delete("order-processing", &DeleteParams::default()).await.unwrap();
    assert_eq!(stage.snapshot(), clean);
    assert_eq!(stage.owned_by_us(), Vec::<String>::new());
    assert!(stage.effects.release_all(now).await.unwrap().is_empty(), "once is enough");
}

#[tokio::test(start_paused = true)]
async fn finished_records_stay_for_a_day_with_their_last_ten_episodes() {
    let stage = Stage::open().await;
    let (slot, wanted) = (weights_slot(), weights(0, 100));
    for round in 0..12 {
        stage.drive(&slot, Some(&wanted), round * 100).await;
        assert_eq!(stage.drive(&slot, None, round * 100 + 50).await, Outcome::Restored);
    }
    stage.drive(&mode_slot(), Some(&mode("cache-only")), 0).await;
    let api: Api<Intervention> = Api::namespaced(stage.outsider.clone(), NAMESPACE);
    let records = async || -> Vec<Arc<Intervention>> {
        api.list(&ListParams::default()).await.unwrap().items.into_iter().map(Arc::new).collect()
    };
    let status = stage.record(&slot).await.unwrap().status.unwrap();
    assert_eq!(status.episodes.len(), 10);
    assert_eq!(status.episodes[9].restored_at, Some(stage.start + TimeDelta::seconds(1_150)));
    let day = TimeDelta::days(1);
    assert_eq!(stage.effects.sweep(&records().await, stage.start + day).await.unwrap(), 0);
    let old = records().await;
    assert_eq!(stage.effects.sweep(&old, stage.start + day * 2).await.unwrap(), 1);
    assert_eq!(stage.effects.sweep(&old, stage.start + day * 2).await.unwrap(), 0, "it is gone already");
    assert_eq!(records().await.len(), 1, "what stands is not swept, however old");
}
