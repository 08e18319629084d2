//! What the engine may cost, in counts: queries, bytes, writes and evaluations. Times are measured by benches/, never asserted.

use tradeguard::model::phase::Phase;
use tradeguard::model::verdict::Outcome;

use crate::support::fleet::{ENGINE, Engine, Fleet, INTERVAL, Size, name, namespace};

const POLICIES: usize = 200;
const PODS: usize = 2;
const EVALUATED: &str = "tradeguard_verdicts_total{origin=\"evaluated\"}";
const REUSED: &str = "tradeguard_verdicts_total{origin=\"reused\"}";
/// Series of one Pod in the answer to the query of buckets.
const BUCKETS: usize = 12;

async fn settled(foreign: usize) -> (Fleet, Engine) {
    let fleet = Fleet::new(Size { policies: POLICIES, pods: PODS, foreign });
    let engine = fleet.start_and_settle().await;
    (fleet, engine)
}

/// What happened in so many ticks.
#[derive(Debug, PartialEq)]
struct Ticks {
    evaluated: usize,
    reused: usize,
    queries: u64,
    bytes: u64,
    writes: u64,
    reads: u64,
}

/// Lets so many ticks pass; the Lease's renewals are not counted.
async fn pass(fleet: &Fleet, engine: &Engine, ticks: u32) -> Ticks {
    let look = || {
        let bytes: u64 = engine.signals.stats().values().map(|backend| backend.bytes_received).sum();
        let counts = fleet.memkube.counts().by(ENGINE).only(|access| access.resource != "leases.coordination.k8s.io");
        (engine.metric(EVALUATED), engine.metric(REUSED), fleet.prometheus.queries(), bytes, counts)
    };
    let (evaluated, reused, queries, bytes, counts) = look();
    tokio::time::sleep(INTERVAL * ticks).await;
    let after = look();
    let counts = after.4.since(&counts);
    Ticks {
        evaluated: (after.0 - evaluated) as usize,
        reused: (after.1 - reused) as usize,
        queries: after.2 - queries,
        bytes: after.3 - bytes,
        writes: counts.writes(),
        reads: counts.reads(),
    }
}

#[tokio::test(start_paused = true)]
async fn policies_of_one_shape_share_two_queries_that_fetch_what_is_governed() {
    let (fleet, engine) = settled(400).await;
    let ticks = pass(&fleet, &engine, 3).await;
    assert_eq!(ticks.queries, 2 * 3, "one for the buckets, one for their age");
    // A series of an answer is about 130 bytes long; twice that is still far from what the foreign services would add.
    let series = (POLICIES * PODS * (BUCKETS + 1) * 3) as u64;
    assert!(ticks.bytes / series < 260, "{} bytes for {series} series", ticks.bytes);
    let (_, seen) =
        engine.view.borrow().policies.first_key_value().map(|(k, v)| (k.clone(), v.clone())).expect("exists");
    assert!(seen.signals["p99"].reading.is_ok());
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_reading_that_moves_is_evaluated_and_nothing_is_written() {
    let (fleet, engine) = settled(0).await;
    fleet.prometheus.vary(true);
    pass(&fleet, &engine, 1).await;
    let ticks = pass(&fleet, &engine, 6).await;
    assert_eq!((ticks.evaluated, ticks.reused), (6 * POLICIES, 0));
    assert_eq!((ticks.writes, ticks.reads), (0, 0), "a Healthy policy is written only when it changes");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_on_readings_that_stand_still_is_reused() {
    let (fleet, engine) = settled(0).await;
    let leases = fleet.memkube.counts().by(ENGINE).of("leases.coordination.k8s.io");
    let ticks = pass(&fleet, &engine, 6).await;
    assert_eq!((ticks.evaluated, ticks.reused), (0, 6 * POLICIES));
    assert_eq!((ticks.writes, ticks.reads), (0, 0));
    // But for the Lease, renewed every fifth of its 15 seconds.
    let renewals = fleet.memkube.counts().by(ENGINE).of("leases.coordination.k8s.io").since(&leases).writes();
    assert!((15..=21).contains(&renewals), "{renewals} renewals in a minute");
    // A breach is seen at once, and evaluated for as long as it lasts.
    fleet.prometheus.slow_down(true);
    let ticks = pass(&fleet, &engine, 3).await;
    assert_eq!((ticks.evaluated, ticks.reused), (3 * POLICIES, 0));
    assert!(engine.all_are(POLICIES, Phase::Pending, Outcome::Breached));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_changes_nothing_leads_to_nothing() {
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;
    use tradeguard::api::LatencyBudgetPolicy;

    let (fleet, engine) = settled(0).await;
    let quiet = pass(&fleet, &engine, 1).await;
    let user = fleet.memkube.client("user");
    let policies = Api::<LatencyBudgetPolicy>::namespaced(user, &namespace(0));
    let label = json!({"metadata": {"labels": {"seen": "yes"}}});
    policies.patch(&name(0), &PatchParams::default(), &Patch::Merge(&label)).await.expect("is there");
    let ticks = pass(&fleet, &engine, 1).await;
    assert_eq!(ticks, quiet, "no write, no read, no evaluation more");
    engine.stop().await;
}
