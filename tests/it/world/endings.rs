//! Policies, targets and Pods that go while effects stand.

use std::time::Duration;

use serde_json::json;
use tradeguard::demo::simulation::PodModel;
use tradeguard::demo::world::{NAMESPACE, SERVICE};
use tradeguard::memkube::fault::{Fault, Matching};

use super::scene::{Scene, breaker};

const FINALIZER: &str = "policy.trade.io/effects";

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_deleted_while_active_goes_only_after_its_effects() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.breach();
    scene.until("it is Pending", 60, || scene.phase("orders") == "Pending").await;
    assert_eq!(scene.finalizers("orders"), [""; 0], "it holds nothing yet");
    scene.until_open("orders").await;
    assert_eq!(scene.finalizers("orders"), [FINALIZER]);
    // Slower than whatever writes the policy itself.
    let routes = Matching { resource: Some("virtualservices".to_owned()), ..Matching::default() };
    engine.faults.inject(routes, Fault::Delay(Duration::from_secs(3)));
    scene.delete_policy("orders").await;
    let waited = scene.until("it is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched(), "it goes last");
    assert!((3..=20).contains(&waited), "undoing does not wait for evidence: {waited} s");
    scene.rest(120).await;
    assert!(scene.is_untouched(), "and nothing comes back, though the fault lasts");
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_holds_nothing_goes_at_once() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.breach();
    scene.until("it is Pending", 60, || scene.phase("orders") == "Pending").await;
    scene.delete_policy("orders").await;
    assert!(scene.policy("orders").is_none());
    scene.rest(120).await;
    assert!(scene.is_untouched());
}

/// Somebody takes the finalizer away, or the policy with it: the records still say what is to be undone.
#[tokio::test(start_paused = true)]
async fn a_policy_that_is_torn_out_leaves_no_effect_behind() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    scene.delete_policy("orders").await;
    let api = scene.api("policy.trade.io/v1alpha2", "LatencyBudgetPolicy");
    let patch = kube::api::Patch::Merge(json!({"metadata": {"finalizers": []}}));
    let _ = api.patch("orders", &kube::api::PatchParams::default(), &patch).await;
    scene.until_untouched(30).await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_deleted_while_active_ends_its_own_obligation_and_the_rest_is_undone() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    let target = scene.world.object("OrderService", SERVICE).expect("is there");
    scene.delete("trade.io/v1", "OrderService", SERVICE).await;
    scene.until_untouched(30).await;
    assert_eq!(scene.weights(), (100, 0));
    assert_eq!(scene.intervention("mode")["status"]["reason"], "ObjectGone");
    let accepted = scene.condition("orders", "Accepted");
    assert!(accepted.starts_with("False TargetNotFound"), "{accepted}");
    assert!(accepted.contains(SERVICE), "it says which: {accepted}");
    scene.until("it is at rest", 30, || scene.phase("orders") == "Healthy").await;
    scene.until("it holds nothing", 30, || scene.finalizers("orders").is_empty()).await;
    // The target is made anew, with another uid: the policy works on.
    let spec = &target["spec"];
    let again =
        json!({"apiVersion": "trade.io/v1", "kind": "OrderService", "metadata": {"name": SERVICE}, "spec": spec});
    scene.apply(&again).await;
    scene.until("the breaker is open again", 120, || scene.stands()).await;
    assert!(scene.condition("orders", "Accepted").starts_with("True"));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_deleted_while_active_ends_its_own_obligation() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    scene.until_open("orders").await;
    scene.delete("networking.istio.io/v1", "VirtualService", SERVICE).await;
    scene.until("the record ends", 60, || scene.intervention("weights")["status"]["phase"] == "Restored").await;
    assert_eq!(scene.intervention("weights")["status"]["reason"], "ObjectGone");
    assert_eq!(scene.mode().as_deref(), Some("cache-only"), "the other slots stand");
    scene.delete_policy("orders").await;
    scene.until("it is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_replaced_while_isolated_is_forgotten_and_the_new_one_serves() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    let slow = format!("{SERVICE}-primary-2");
    scene.slow_pods(&[&slow]);
    scene.until("the Pod is isolated", 120, || scene.isolated() == [slow.as_str()]).await;
    scene.delete("v1", "Pod", &slow).await;
    let new = format!("{SERVICE}-primary-9");
    scene.world.add_pod(&new, "primary", PodModel { capacity: 120.0, cache_only: false });
    scene
        .until("the record lets go", 60, || {
            let record = scene.intervention("isolation");
            !record["spec"].to_string().contains(&slow) || record["status"]["phase"] == "Restored"
        })
        .await;
    scene.until("the new one follows the mode", 30, || scene.pods_in("cache-only").contains(&new)).await;
    assert_eq!(scene.isolated(), [""; 0], "and serves");
    scene.rest(120).await;
    assert_eq!(scene.isolated(), [""; 0]);
    scene.delete_policy("orders").await;
    scene.until("it is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}

/// As a StatefulSet does it: the new Pod has the name of the one that was isolated.
#[tokio::test(start_paused = true)]
async fn a_new_pod_of_the_same_name_is_not_held_for_the_old_one() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "10m")).await;
    let name = format!("{SERVICE}-primary-2");
    scene.slow_pods(&[&name]);
    scene.until("the Pod is isolated", 120, || scene.isolated() == [name.as_str()]).await;
    scene.well_again();
    scene.delete("v1", "Pod", &name).await;
    scene.world.add_pod(&name, "primary", PodModel { capacity: 120.0, cache_only: false });
    scene.rest(60).await;
    assert_eq!(scene.isolated(), [""; 0], "nobody found it slow");
    scene.delete_policy("orders").await;
    scene.until("it is gone", 60, || scene.policy("orders").is_none()).await;
    assert!(scene.is_untouched());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_without_its_pods_does_not_undo_what_stands_elsewhere() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.apply(&breaker("orders", "30s")).await;
    scene.until_open("orders").await;
    for pod in scene.pods_in("cache-only") {
        scene.delete("v1", "Pod", &pod).await;
    }
    scene.rest(120).await;
    assert_eq!(scene.weights(), (0, 100), "no reading is no evidence of recovery in {NAMESPACE}");
    assert_eq!(scene.mode().as_deref(), Some("cache-only"));
    assert!(scene.condition("orders", "Blind").starts_with("True"), "{}", scene.condition("orders", "Blind"));
}
