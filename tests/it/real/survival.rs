//! What the running engine survives in a real cluster: its own end, and that of everything it works with.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::Value;

use crate::real::scene::{NAMESPACE, POLICY, SOON, Scene, Standing};
use crate::support::engine::Engine;
use crate::support::wait::{holds_for, wait_until};

/// Far above the threshold of the policy.
const SLOW: Duration = Duration::from_millis(1_500);
const FAST: Duration = Duration::from_millis(20);
/// Several leases, intervals and timeouts of the policy.
const A_WHILE: Duration = Duration::from_secs(12);

/// A scene in which the breaker is open, and how it was before.
struct Breach {
    scene: Scene,
    before: Standing,
}

impl Breach {
    /// Under this policy, with the engines that `start` gives.
    async fn open<E>(policy: &str, start: impl FnOnce(&Scene) -> E) -> (Self, E) {
        let scene = Scene::open().await;
        let before = scene.standing().await.unwrap();
        let engines = start(&scene);
        scene.apply(policy).await;
        scene.until_phase("Healthy").await;
        scene.slow_primary(SLOW);
        scene.until_phase("Active").await;
        scene.until_applied().await;
        (Self { scene, before }, engines)
    }

    /// The fault ends, and with it everything that was done.
    async fn end(&self) {
        self.scene.slow_primary(FAST);
        self.scene.until_phase("Healthy").await;
        self.scene.until_restored(&self.before).await;
    }

    /// What the versions say for a while.
    async fn nothing_is_written(&self, versions: &[String]) {
        holds_for("nothing is written again", A_WHILE, async || {
            let now = self.scene.versions().await?;
            if now == versions { Ok(()) } else { Err(format!("{now:?} instead of {versions:?}")) }
        })
        .await;
    }
}

/// The policy, open so long that no probe comes between.
fn patient_policy() -> String {
    let patient = POLICY.replace(r#"timeout: "5s""#, r#"timeout: "40s""#);
    assert_ne!(patient, POLICY);
    patient
}

async fn until_said(engine: &Engine, message: &str, times: usize) {
    wait_until(&format!("the engine says: {message}"), SOON, async || {
        let said = engine.said(message);
        if said >= times { Ok(()) } else { Err(format!("{said} of {times} times")) }
    })
    .await;
}

const ACTS: &str = "acting on what stands";

#[tokio::test]
async fn a_killed_engine_repeats_nothing_and_brings_the_original_back() {
    let (breach, mut engine) = Breach::open(&patient_policy(), |scene| scene.engine("one")).await;
    let versions = breach.scene.versions().await.unwrap();

    engine.kill9();
    engine.start_again();
    until_said(&engine, ACTS, 2).await;
    breach.nothing_is_written(&versions).await;
    let changes = breach.scene.policy().await.unwrap()["status"]["history"].clone();
    let activations = changes.as_array().unwrap().iter().filter(|change| change["to"] == "Active").count();
    assert_eq!(activations, 1, "{changes:#}");

    breach.end().await;
    for (slot, record) in breach.scene.interventions().await.unwrap() {
        assert_eq!(record["status"]["phase"], "Restored", "{slot}: {record:#}");
    }
    assert!(engine.stop().await.success(), "SIGTERM is a clean end");
}

#[tokio::test]
async fn another_instance_goes_on_where_a_killed_one_stood() {
    let start = |scene: &Scene| ["one", "two"].map(|identity| (identity, scene.engine(identity)));
    let (breach, mut engines) = Breach::open(&patient_policy(), start).await;
    let versions = breach.scene.versions().await.unwrap();
    let actor = breach.scene.actor().await.unwrap();
    let standby = engines.iter().find(|(identity, _)| *identity != actor).unwrap();
    assert_eq!(standby.1.said(ACTS), 0, "one acts, the other watches");

    engines.iter_mut().find(|(identity, _)| *identity == actor).unwrap().1.kill9();
    wait_until("the other one acts", SOON, async || {
        let now = breach.scene.actor().await?;
        if now == actor { Err(now) } else { Ok(()) }
    })
    .await;
    breach.nothing_is_written(&versions).await;
    breach.end().await;
}

#[tokio::test]
async fn what_stands_stands_while_prometheus_is_away() {
    let (mut breach, engine) = Breach::open(POLICY, |scene| scene.engine("one")).await;
    breach.scene.prometheus.stop();
    wait_until("the policy is Blind", SOON, async || {
        let blind = breach.scene.condition("Blind").await?;
        if blind["status"] == "True" { Ok(()) } else { Err(blind.to_string()) }
    })
    .await;
    // A half-open probe may have begun before; without evidence it goes neither on nor back.
    let stood = breach.scene.standing().await.unwrap();
    assert!(stood.weights[0] < 100 && stood.mode.as_deref() == Some("cache-only"), "{stood:?}");
    holds_for("what stands, stands", A_WHILE, async || {
        let standing = breach.scene.standing().await?;
        if standing == stood { Ok(()) } else { Err(format!("{standing:?}")) }
    })
    .await;
    breach.scene.prometheus.start_again().await;
    breach.end().await;
    drop(engine);
}

#[tokio::test]
async fn without_the_api_server_it_serves_what_it_knows_and_plans_anew_on_return() {
    let (mut breach, engine) = Breach::open(POLICY, |scene| scene.engine("one")).await;
    let state = format!("{}/v1/state/{NAMESPACE}/OrderService/core-trading", engine.url().unwrap());
    let ask = async || {
        let answer = reqwest::get(&state).await.map_err(|error| error.to_string())?;
        let body = answer.text().await.map_err(|error| error.to_string())?;
        serde_json::from_str::<Value>(&body).map_err(|error| format!("{error}: {body}"))
    };
    assert_eq!(ask().await.unwrap()["ageSeconds"], 0.0);

    breach.scene.control_plane.stop_apiserver();
    wait_until("its knowledge ages", SOON, async || {
        let answer = ask().await?;
        let aged = answer["ageSeconds"].as_f64().is_some_and(|age| age > 5.0);
        if aged && answer["mode"] == "cache-only" { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    // The service recovers while nothing can be undone.
    breach.scene.slow_primary(FAST);
    holds_for("the mode is served on", A_WHILE, async || {
        let answer = ask().await?;
        if answer["mode"] == "cache-only" { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;

    breach.scene.control_plane.start_apiserver().await;
    until_said(&engine, ACTS, 2).await;
    breach.end().await;
    wait_until("it knows the present again", SOON, async || {
        let answer = ask().await?;
        if answer["ageSeconds"] == 0.0 && answer["mode"] == "normal" { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_target_that_is_deleted_leaves_nothing_behind() {
    let (breach, _engine) = Breach::open(POLICY, |scene| scene.engine("one")).await;
    // Its operator would take the Deployments along; that they stay shows that the Pods are put back.
    breach
        .scene
        .control_plane
        .kubectl(&["delete", "orderservices.trade.io", "core-trading", "-n", NAMESPACE, "--cascade=orphan"])
        .await;
    wait_until("the policy has no target", SOON, async || {
        let accepted = breach.scene.condition("Accepted").await?;
        if accepted["reason"] == "TargetNotFound" { Ok(()) } else { Err(accepted.to_string()) }
    })
    .await;
    wait_until("everything else is undone", SOON, async || {
        let standing = breach.scene.standing().await?;
        if standing == breach.before { Ok(()) } else { Err(format!("{standing:?}")) }
    })
    .await;
    wait_until("no Pod is told a mode", SOON, async || {
        let pods = breach.scene.pods().await?;
        let told = pods.iter().filter(|pod| pod.annotations().contains_key("policy.trade.io/mode")).count();
        if told == 0 { Ok(()) } else { Err(format!("{told} Pods")) }
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_is_deleted_takes_its_effects_along() {
    let (breach, _engine) = Breach::open(POLICY, |scene| scene.engine("one")).await;
    let finalizers = breach.scene.policy().await.unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers.as_array().map(Vec::len), Some(1), "held while it holds something: {finalizers}");
    let delete = ["delete", "lbp", "order-processing", "-n", NAMESPACE, "--timeout=60s"];
    breach.scene.control_plane.kubectl(&delete).await;
    let standing = breach.scene.standing().await.unwrap();
    assert_eq!(standing, breach.before, "the policy is gone only after its effects");
}

#[tokio::test]
async fn a_pod_that_is_replaced_while_isolated_is_forgotten() {
    let (breach, _engine) = Breach::open(&patient_policy(), |scene| scene.engine("one")).await;
    let isolated = breach.scene.standing().await.unwrap().out_of_service.remove(0);
    let delete = ["delete", "pod", &isolated, "-n", NAMESPACE, "--grace-period=0", "--force"];
    breach.scene.control_plane.kubectl(&delete).await;
    wait_until("its record names it no more", SOON, async || {
        let records = breach.scene.interventions().await?;
        let record = records.get("isolation").ok_or("there is no record of an isolation")?;
        if record["spec"].to_string().contains(&isolated) { Err(record.to_string()) } else { Ok(()) }
    })
    .await;
    holds_for("at most one Pod of three is out of service", A_WHILE, async || {
        let out = breach.scene.standing().await?.out_of_service;
        if out.len() <= 1 { Ok(()) } else { Err(format!("{out:?}")) }
    })
    .await;
    breach.end().await;
    assert_eq!(breach.scene.pods().await.unwrap().len(), 3);
}
