//! What ten thousand policies take, in bytes that are allocated, whatever an allocator makes of them: of the engine, and of
//! the simulated cluster, which keeps what the engine wrote when the engine is gone.

// A benchmark reports on standard output.
#![allow(clippy::print_stdout)]

#[path = "../tests/it/support/fleet.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod fleet;

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use fleet::{Fleet, INTERVAL, Size};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const POLICIES: usize = 10_000;

fn allocated() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("this machine gives an event loop").block_on(measure());
}

async fn measure() {
    let fleet = Fleet::new(Size { policies: POLICIES, pods: 1, foreign: 0 });
    let cluster = allocated();
    let engine = fleet.start_and_settle().await;
    let settled = allocated();
    fleet.prometheus.vary(true);
    tokio::time::sleep(INTERVAL * 6).await;
    let after_ticks = allocated();
    engine.stop().await;
    // What the engine's tasks held goes with them.
    tokio::time::sleep(INTERVAL).await;
    let left = allocated();
    let report = |what: &str, bytes: usize| {
        println!("memory: {:4} MB, {:3} kB a policy: {what}", bytes / 1_000_000, bytes / POLICIES / 1_000);
    };
    report("the cluster before the engine starts", cluster);
    report(
        "what the cluster keeps of the engine's writes, with the answers of Prometheus",
        left.saturating_sub(cluster),
    );
    report("the engine at rest", settled.saturating_sub(left));
    report("the engine after six ticks in which every reading moved", after_ticks.saturating_sub(left));
}
