//! What a round costs, as CPU time of the whole process divided by the policies in it, and how much memory ten thousand
//! policies take.
//!
//! The engine is that of production, on an API in memory and a Prometheus in process whose answers are made beforehand; time
//! is tokio's, paused, so that a tick runs as fast as it can. So the CPU time holds everything: what the loop does, the parsing of
//! answers, the rule, the view, and the little that the two simulated servers do. `judge` is the pure chain alone, on as many
//! policies, so that caches are as cold as they are in a tick. Wall time would measure the neighbours on a shared machine.

// A benchmark reports on standard output.
#![allow(clippy::print_stdout)]

#[path = "../tests/it/support/fleet.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod fleet;
#[path = "tick/process.rs"]
mod process;
#[path = "tick/turns.rs"]
mod turns;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, SamplingMode, measurement::WallTime};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;
use tradeguard::api::LatencyBudgetPolicy;
use tradeguard::decide::Origin;

use fleet::{Engine, Fleet, INTERVAL, Size, name, namespace};
use process::{cpu_time, resident_megabytes};
use turns::Turns;

/// That of production.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICIES: usize = 10_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    judge(&mut criterion);
    tick(&mut criterion);
    criterion.final_summary();
}

/// The pure chain.
fn judge(criterion: &mut Criterion) {
    let turns = Turns::new(POLICIES);
    let mut group = group(criterion, "judge, of one policy");
    for (name, varies, expected) in [("varying", true, Origin::Evaluated), ("unchanged", false, Origin::Reused)] {
        let mut round = 0;
        each(&mut group, name, POLICIES, || {
            round += 1;
            let origin = turns.judge(if varies { round } else { 0 });
            assert_eq!(black_box(origin), expected);
        });
    }
    group.finish();
}

/// The engine as a whole.
fn tick(criterion: &mut Criterion) {
    let runtime = runtime();
    let _inside = runtime.enter();
    let fleet = Fleet::new(Size { policies: POLICIES, pods: 1, foreign: 0 });
    let before = resident_megabytes();
    let engine = runtime.block_on(fleet.start_and_settle());
    runtime.block_on(tokio::time::sleep(INTERVAL * 3));
    println!("memory: {:.0} MB of the engine, beside {before:.0} MB of the cluster", resident_megabytes() - before);

    let mut ticks = group(criterion, "tick, of one policy");
    each(&mut ticks, "unchanged", POLICIES, || runtime.block_on(tokio::time::sleep(INTERVAL)));
    fleet.prometheus.vary(true);
    // Both variants of the answers are made before anything is measured.
    runtime.block_on(tokio::time::sleep(INTERVAL * 2));
    each(&mut ticks, "varying", POLICIES, || runtime.block_on(tokio::time::sleep(INTERVAL)));
    ticks.finish();
    report(&runtime, &fleet, &engine);
    println!("memory: {:.0} MB of the engine after it", resident_megabytes() - before);

    let mut reconciles = group(criterion, "reconcile, of one policy");
    each(&mut reconciles, "with the engine", 100, || runtime.block_on(touch(&fleet, 100)));
    runtime.block_on(engine.stop());
    // On the objects as the engine leaves them: with a status, a write costs the API more.
    each(&mut reconciles, "the API alone", 100, || runtime.block_on(touch(&fleet, 100)));
    reconciles.finish();
}

/// Says what a tick asked for.
fn report(runtime: &Runtime, fleet: &Fleet, engine: &Engine) {
    let counts = || (fleet.prometheus.queries(), engine.metric("tradeguard_verdicts_total{origin=\"evaluated\"}"));
    let (queries, evaluated) = counts();
    runtime.block_on(tokio::time::sleep(INTERVAL));
    let (queries_after, evaluated_after) = counts();
    println!("tick: {} queries, {} evaluations", queries_after - queries, evaluated_after - evaluated);
}

/// So many policies' objects change in nothing that matters, one after the other; the engine looks at each.
async fn touch(fleet: &Fleet, count: usize) {
    let client = fleet.memkube.client("user");
    let version = fleet.memkube.version();
    for number in 0..count {
        let number = number * (POLICIES / count);
        let policies = Api::<LatencyBudgetPolicy>::namespaced(client.clone(), &namespace(number));
        let label = json!({"metadata": {"labels": {"seen": version.to_string()}}});
        policies.patch(&name(number), &PatchParams::default(), &Patch::Merge(&label)).await.expect("is there");
        // Paused time moves on when nothing is left to do: the engine has looked at this one.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // A thread that ends takes its CPU time with it.
        .thread_keep_alive(Duration::from_secs(3_600))
        .build()
        .expect("this machine gives an event loop")
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    // A round is long beside what criterion thinks of as one iteration.
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    group.warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(8));
    group
}

/// Measures the CPU time of `round`, which does `count` of what an iteration is.
fn each(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, count: usize, mut round: impl FnMut()) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let rounds = iterations.div_ceil(count as u64);
            let before = cpu_time();
            (0..rounds).for_each(|_| round());
            cpu_time().saturating_sub(before).mul_f64(iterations as f64 / (rounds * count as u64) as f64)
        });
    });
}
