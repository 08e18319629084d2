//! The budget of new effects: at most ten a minute in the cluster, half of that for lab tenants, whatever happens at once.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tradeguard::demo::world::SERVICE;
use tradeguard::memkube::fault::{Fault, Matching};

use super::scene::{Scene, breaker};

/// The tests' tenant is the built-in one, which is lab.
const LAB_A_MINUTE: usize = 5;

fn add_target(scene: &Scene, name: &str) {
    let spec = json!({"selector": {"app": SERVICE}});
    let metadata = json!({"name": name, "namespace": "trading"});
    let target = json!({"apiVersion": "trade.io/v1", "kind": "OrderService", "metadata": metadata, "spec": spec});
    scene.world.memkube.load(&target.to_string()).expect("is loaded");
}

/// A policy that is breached as long as there is any traffic, over a target of its own.
fn impatient(name: &str) -> Value {
    let mut policy = breaker(name, "10m");
    policy["spec"]["targetRef"]["name"] = json!(name);
    policy["spec"]["interval"] = json!("1s");
    policy["spec"]["thresholds"] = json!({"p99": "1ms", "duration": "3s"});
    policy["spec"]["actions"] = json!([{"type": "mode", "config": {"mode": "cache-only"}}]);
    policy
}

/// When effects began, by the records.
fn starts(scene: &Scene) -> Vec<DateTime<Utc>> {
    let mut starts: Vec<DateTime<Utc>> = Vec::new();
    for record in scene.interventions() {
        let earlier = record["spec"]["earlierStarts"].as_array().cloned().unwrap_or_default();
        let all = earlier.iter().chain([&record["spec"]["startedAt"]]).filter_map(Value::as_str);
        starts.extend(all.map(|at| at.parse::<DateTime<Utc>>().expect("is a time")));
    }
    starts.sort();
    starts
}

fn most_in_a_minute(starts: &[DateTime<Utc>]) -> usize {
    let within = |from: &DateTime<Utc>| {
        starts.iter().filter(|at| *at >= from && at.signed_duration_since(*from) < TimeDelta::minutes(1)).count()
    };
    starts.iter().map(within).max().unwrap_or(0)
}

/// Promise 8.
#[tokio::test(start_paused = true)]
async fn many_policies_at_once_never_begin_more_than_the_budget() {
    let scene = Scene::open();
    let _engine = scene.acting_engine("a").await;
    scene.rest(30).await;
    for number in 10..30 {
        add_target(&scene, &format!("orders-{number}"));
        scene.apply(&impatient(&format!("orders-{number}"))).await;
    }
    for _ in 0..300 {
        scene.rest(1).await;
        let most = most_in_a_minute(&starts(&scene));
        assert!(most <= LAB_A_MINUTE, "{most} in a minute");
    }
    assert_eq!(scene.interventions().len(), 20, "each has its turn");
    let told = scene.condition("orders-29", "Enforced");
    assert!(told.starts_with("True"), "{told}");
}

/// A better claim comes while others are let begin and have not written their records yet.
#[tokio::test(start_paused = true)]
async fn a_better_claim_does_not_begin_beside_those_that_are_under_way() {
    let scene = Scene::open();
    let engine = scene.acting_engine("a").await;
    scene.rest(30).await;
    // The newest of lab tenants is the best. Each is Active before the next one comes.
    let slowly = Matching { resource: Some("interventions".to_owned()), ..Matching::default() };
    engine.faults.inject(slowly, Fault::Delay(Duration::from_secs(6)));
    for number in 10..22 {
        add_target(&scene, &format!("orders-{number}"));
        scene.apply(&impatient(&format!("orders-{number}"))).await;
        scene.rest(1).await;
    }
    for _ in 0..240 {
        scene.rest(1).await;
        let most = most_in_a_minute(&starts(&scene));
        assert!(most <= LAB_A_MINUTE, "{most} in a minute");
    }
    assert_eq!(scene.interventions().len(), 12, "each has its turn");
}
