//! The engine in a real cluster: the whole story, and what it survives.

use std::time::Duration;

use crate::real::scene::{POLICY, Scene};
use crate::support::wait::holds_for;

/// Far above the threshold of every policy here.
const SLOW: Duration = Duration::from_millis(1_500);
const FAST: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_slow_service_is_relieved_and_gets_its_traffic_back() {
    let scene = Scene::open().await;
    let original = scene.standing().await.unwrap();
    let _engine = scene.engine("one");
    scene.apply(POLICY).await;
    scene.until_phase("Healthy").await;

    scene.slow_primary(SLOW);
    scene.until_phase("Active").await;
    scene.until_applied().await;
    holds_for("a fault that lasts gets no full traffic", Duration::from_secs(20), async || {
        let weights = scene.standing().await?.weights;
        if weights[0] < 100 { Ok(()) } else { Err(format!("{weights:?}")) }
    })
    .await;

    scene.slow_primary(FAST);
    scene.until_phase("Healthy").await;
    scene.until_restored(&original).await;
    for (slot, record) in scene.interventions().await.unwrap() {
        assert_eq!(record["status"]["phase"], "Restored", "{slot}: {record:#}");
    }
    let events = scene.platform.received();
    for phase in ["Pending", "Active", "Recovering", "Healthy"] {
        assert!(events.iter().any(|event| event["data"]["to"] == phase), "no event says {phase}: {events:#?}");
    }
}
