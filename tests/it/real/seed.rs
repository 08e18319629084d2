//! The policy as its author wrote it, to the letter, with the two minutes that it asks for.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::real::scene::{NAMESPACE, SOON, Scene};
use crate::support::wait::wait_until;

const SEED: &str = include_str!("../../../deploy/examples/order-processing.yaml");
const DURATION: Duration = Duration::from_mins(2);
/// The default.
const INTERVAL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_seed_opens_after_two_minutes_and_closes_when_it_is_taken_away() {
    let scene = Scene::open().await;
    let original = scene.standing().await.unwrap();
    let _engine = scene.engine("one");
    scene.apply(SEED).await;
    scene.until_phase("Healthy").await;

    scene.slow_primary(Duration::from_millis(1_500));
    scene.until_phase("Pending").await;
    wait_until("the policy is Active", DURATION + SOON, async || {
        let policy = scene.policy().await?;
        if policy["status"]["phase"] == "Active" { Ok(()) } else { Err(policy["status"].to_string()) }
    })
    .await;
    scene.until_applied().await;
    let history = scene.policy().await.unwrap()["status"]["history"].clone();
    let took = entered(&history, "Active") - entered(&history, "Pending");
    let took = took.to_std().unwrap();
    assert!(took >= DURATION && took <= DURATION + 2 * INTERVAL, "{took:?} from breach to Active: {history:#}");

    scene.control_plane.kubectl(&["delete", "lbp", "order-processing", "-n", NAMESPACE, "--timeout=60s"]).await;
    assert_eq!(scene.standing().await.unwrap(), original);
}

/// When the policy last came into this phase.
fn entered(history: &Value, phase: &str) -> DateTime<Utc> {
    let changes = history.as_array().into_iter().flatten();
    let entry = changes.rev().find(|change| change["to"] == phase);
    let at = entry.and_then(|change| change["time"].as_str()).unwrap_or_else(|| panic!("never {phase}: {history:#}"));
    at.parse().unwrap()
}
