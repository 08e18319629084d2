//! The promise of the README, in the simulated world: a latency policy that measures, decides, acts, and undoes on
//! evidence, and the controls that show it does nothing else. Time is simulated: it jumps to whatever happens next.

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
use tradeguard::rego::{LATENCY_BUDGET, Rule};

/// What a story came to.
struct Outcome {
    document: Document,
    world: World,
    route_before: Arc<Value>,
    /// The share of the primary's weight at each second.
    primary_share: Vec<f64>,
}

const LIMIT: Duration = Duration::from_secs(3_600);

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
    let mut primary_share = Vec::new();
    while !run.is_over() {
        run.go_on().await;
        let weights: Vec<f64> = world.traffic().destinations.iter().map(|(weight, _)| *weight).collect();
        primary_share.push(weights.first().copied().unwrap_or(0.0) / weights.iter().sum::<f64>());
    }
    let recorder = run.stop().await;
    Outcome { document: recorder.document(), world, route_before, primary_share }
}

async fn with_seed(fault: Fault) -> Outcome {
    story(fault, SEED_POLICY, Rule::shipped_latency_budget(), LIMIT).await
}

fn phases(document: &Document) -> Vec<Phase> {
    let mut phases: Vec<Phase> = document.timeline.iter().map(|moment| moment.phase).collect();
    phases.dedup();
    phases
}

/// The VirtualService without what every write moves.
fn route_of(outcome: &Outcome) -> Value {
    Value::clone(&outcome.world.object("VirtualService", SERVICE).expect("is still there"))
}

#[tokio::test(start_paused = true)]
async fn the_seed_policy_goes_through_all_phases_and_everything_comes_back() {
    let outcome = with_seed(Fault::Story).await;
    let document = &outcome.document;
    let expected = [Phase::Healthy, Phase::Pending, Phase::Active, Phase::Recovering, Phase::Healthy];
    assert_eq!(phases(document), expected, "{:#?}", document.summary);
    assert!(document.is_success(), "{document:#?}");
    let mut slots: Vec<&str> = document.interventions.iter().map(|one| one.slot.as_str()).collect();
    slots.sort_unstable();
    assert_eq!(slots, ["isolation", "mode", "weights"]);
    assert_eq!(route_of(&outcome)["spec"], outcome.route_before["spec"], "the route is as it was");
    let target = outcome.world.object("OrderService", SERVICE).expect("is still there");
    assert!(target["metadata"]["annotations"].is_null(), "no annotation is left: {target:#}");
    for kind in ["VirtualService", "OrderService"] {
        let object = outcome.world.object(kind, SERVICE).expect("is still there");
        let fields = object["metadata"]["managedFields"].to_string();
        assert!(!fields.contains("tradeguard"), "no field ownership is left on the {kind}: {fields}");
    }
    assert!(outcome.world.events().len() >= 10, "transitions and effects were told");
}

#[tokio::test(start_paused = true)]
async fn a_breach_becomes_active_after_its_duration_and_at_most_two_intervals_later() {
    for fault in [Fault::Pod, Fault::Service] {
        let outcome = with_seed(fault).await;
        let summary = &outcome.document.summary;
        let seconds = summary.breach_to_active_seconds.expect("was activated");
        assert!((120.0..=140.0).contains(&seconds), "{fault:?}: {seconds}");
        assert!(outcome.document.is_success(), "{fault:?}: {summary:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn traffic_comes_back_step_by_step() {
    let outcome = with_seed(Fault::Service).await;
    let mut steps = outcome.primary_share.clone();
    steps.dedup();
    assert_eq!(steps, [1.0, 0.0, 0.1, 0.5, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_pod_is_the_only_one_isolated_and_comes_back() {
    let outcome = with_seed(Fault::Pod).await;
    let isolation = outcome.document.interventions.iter().find(|one| one.slot == "isolation").expect("was isolated");
    let applied = isolation.applied.as_ref().and_then(|applied| applied.isolated.clone()).expect("Pods are named");
    assert_eq!(applied, [tradeguard::demo::fault::SLOW_POD]);
    assert!(isolation.restored);
}

#[tokio::test(start_paused = true)]
async fn without_a_fault_nothing_happens() {
    let outcome = with_seed(Fault::None).await;
    assert_eq!(phases(&outcome.document), [Phase::Healthy]);
    assert!(!outcome.document.summary.activated);
    assert!(outcome.document.interventions.is_empty());
    assert_eq!(route_of(&outcome), *outcome.route_before);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_kept_never_leaves_healthy() {
    let policy = SEED_POLICY.replace("800ms", "5s");
    let outcome = story(Fault::Story, &policy, Rule::shipped_latency_budget(), LIMIT).await;
    assert_eq!(phases(&outcome.document), [Phase::Healthy]);
    assert!(!outcome.document.is_success());
}

#[tokio::test(start_paused = true)]
async fn without_the_breaker_the_route_stays_as_it_is_to_the_byte() {
    let (head, _) = SEED_POLICY.split_once("    - type:").expect("the seed has an action");
    let policy = format!("{head}    - type: \"notify\"\n      config: {{sink: \"sre-platform\"}}\n");
    let outcome = story(Fault::Service, &policy, Rule::shipped_latency_budget(), LIMIT).await;
    assert!(outcome.document.summary.activated, "it is breached all the same");
    assert_eq!(route_of(&outcome), *outcome.route_before);
}

#[tokio::test(start_paused = true)]
async fn with_a_rule_that_never_breaches_nothing_happens() {
    let edited = LATENCY_BUDGET.replace("\"breached\": ", "\"breached\": false, \"was\": ");
    assert_ne!(edited, LATENCY_BUDGET, "the edit found its place");
    let rule = Rule::compile_shipped_from(&edited).expect("the edited rule compiles");
    let outcome = story(Fault::Story, SEED_POLICY, rule, LIMIT).await;
    assert_eq!(phases(&outcome.document), [Phase::Healthy]);
    assert!(outcome.document.interventions.is_empty());
}

/// Promise 11, first half. The second half is every other story here.
#[tokio::test(start_paused = true)]
async fn a_fault_that_outlasts_ten_times_recovery_never_gets_full_traffic() {
    let recovery = 120;
    let limit = Duration::from_secs(30 + 140 + 10 * recovery + 600);
    let outcome = story(Fault::Endless, SEED_POLICY, Rule::shipped_latency_budget(), limit).await;
    let summary = &outcome.document.summary;
    assert!(summary.activated && !summary.restored, "{summary:?}");
    let opened = outcome.primary_share.iter().position(|share| *share < 1.0).expect("the weights moved");
    let after = &outcome.primary_share[opened..];
    let most = after.iter().copied().fold(0.0, f64::max);
    assert!(most <= 0.1, "only the probe's share ever returns: {most}");
    assert!(after.contains(&0.1), "it was tried");
}
