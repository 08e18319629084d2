//! The promise of the README, in the simulated world: a latency policy that measures, decides, acts, and undoes on
//! evidence. Time is simulated: it jumps to whatever happens next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use serde_json::Value;
use tradeguard::clock::Clock;
use tradeguard::demo::fault::Fault;
use tradeguard::demo::policy_files::apply;
use tradeguard::demo::run::{Run, SEED_POLICY};
use tradeguard::demo::story::Document;
use tradeguard::demo::world::{SERVICE, World};
use tradeguard::model::phase::Phase;
use tradeguard::rego::Rule;

struct Outcome {
    document: Document,
    world: World,
    /// The VirtualService's spec before the story, and the greatest weight of the primary while the fault lasted.
    route_before: Arc<Value>,
}

fn world() -> World {
    let start = DateTime::from_timestamp(1_800_000_000, 0).expect("is a time");
    World::new(Clock::scaled(start, 1.0), 7)
}

async fn story(fault: Fault, policy: &str, rule: Rule, limit: Duration) -> Outcome {
    let state = tempfile::tempdir().expect("a folder for events");
    let world = world();
    let route_before = world.object("VirtualService", SERVICE).expect("the world has a route");
    let mut run = Run::start(world.clone(), fault, rule, state.path(), limit).await.expect("the engine starts");
    let policy: Value = serde_saphyr::from_str(policy).expect("a policy is YAML");
    apply(&world, Path::new("policy.yaml"), &policy).await.expect("the policy is accepted");
    while !run.is_over() {
        run.go_on().await;
    }
    let recorder = run.stop().await;
    Outcome { document: recorder.document(), world, route_before }
}

const LIMIT: Duration = Duration::from_secs(3_600);

fn phases(document: &Document) -> Vec<Phase> {
    let mut phases: Vec<Phase> = document.timeline.iter().map(|moment| moment.phase).collect();
    phases.dedup();
    phases
}

#[tokio::test(start_paused = true)]
async fn the_seed_policy_goes_through_all_phases_and_everything_comes_back() {
    let outcome = story(Fault::Story, SEED_POLICY, Rule::shipped_latency_budget(), LIMIT).await;
    let document = &outcome.document;
    assert_eq!(
        phases(document),
        [Phase::Healthy, Phase::Pending, Phase::Active, Phase::Recovering, Phase::Healthy],
        "{:#?}",
        document.summary
    );
    assert!(document.is_success(), "{document:#?}");
    let breach = document.summary.breach_to_active_seconds.expect("was activated");
    assert!((120.0..=140.0).contains(&breach), "{breach}");
    let mut slots: Vec<&str> = document.interventions.iter().map(|one| one.slot.as_str()).collect();
    slots.sort_unstable();
    assert_eq!(slots, ["isolation", "mode", "weights"]);
    let route = outcome.world.object("VirtualService", SERVICE).expect("is still there");
    assert_eq!(route["spec"], outcome.route_before["spec"], "the route is as it was");
    assert!(!outcome.world.events().is_empty(), "events arrived");
}
