//! What one question to the shipped latency rule costs, by bytecode, by interpreter, and, where `opa` is on the PATH
//! (`make measure` sees to that), beside `opa bench` on the same input in the same run.
//!
//! Ours is the whole of an evaluation: building the input, running the rule, reading the verdict. `opa bench` has its
//! input parsed before it starts the clock.

// A benchmark reports on standard output.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use chrono::{DateTime, Utc};
use criterion::Criterion;
use tokio::time::Instant;
use tradeguard::model::phase::Phase;
use tradeguard::model::policy::{SignalSource, SignalSpec};
use tradeguard::model::quantity::{BaseUnit, Threshold};
use tradeguard::model::reading::{PodName, Reading, Readings, SignalName};
use tradeguard::rego::{Document, Input, LATENCY_BUDGET_ENTRYPOINT, LATENCY_BUDGET_PATH, Rule};

/// A policy of two quantiles over five Pods, as the demo has it, or without what the series know of Pods.
struct Question {
    name: &'static str,
    policy: Document,
    tenant: Document,
    target: Document,
    signals: BTreeMap<SignalName, SignalSpec>,
    readings: Readings,
    pods: BTreeMap<PodName, Readings>,
}

impl Question {
    fn new(name: &'static str, p99: f64, pods: usize) -> Self {
        let spec = serde_json::json!({
            "kind": "LatencyBudgetPolicy", "namespace": "trading", "name": "order-processing",
            "spec": {
                "targetRef": {"apiVersion": "trade.io/v1", "kind": "OrderService", "name": "core-trading"},
                "thresholds": {"p50": "100ms", "p99": "800ms", "duration": "2m"},
                "actions": [{"type": "circuit-breaker", "config": {"timeout": "30s", "fallback": "cache-only"}}],
            },
        });
        let target = serde_json::json!({
            "apiVersion": "trade.io/v1", "kind": "OrderService", "metadata": {"name": "core-trading"},
        });
        let tenant = serde_json::json!({"name": "core-trading", "class": "core", "priority": 100});
        Self {
            name,
            policy: Document::from_json(&spec),
            tenant: Document::from_json(&tenant),
            target: Document::from_json(&target),
            signals: BTreeMap::from([signal("p50", 0.5, "100ms"), signal("p99", 0.99, "800ms")]),
            readings: readings(p99),
            pods: (0..pods)
                .map(|pod| (format!("core-trading-{pod}"), readings(p99 * (pod + 1) as f64 / 4.0)))
                .collect(),
        }
    }

    fn input(&self) -> Input<'_> {
        Input {
            policy: &self.policy,
            tenant: &self.tenant,
            target: &self.target,
            signals: &self.signals,
            readings: &self.readings,
            pods: &self.pods,
            phase: Phase::Healthy,
            now: DateTime::<Utc>::UNIX_EPOCH,
        }
    }
}

fn signal(name: &str, quantile: f64, threshold: &str) -> (SignalName, SignalSpec) {
    let threshold = Threshold::latency(threshold).expect("a Go duration");
    let spec = SignalSpec { source: SignalSource::Quantile(quantile), threshold: Some(threshold), optional: false };
    (name.to_owned(), spec)
}

fn readings(p99: f64) -> Readings {
    let reading =
        |value| Ok(Reading { value, unit: BaseUnit::Seconds, age_seconds: 3.0, series: 5, requests: Some(1_234.0) });
    BTreeMap::from([("p50".to_owned(), reading(0.05)), ("p99".to_owned(), reading(p99))])
}

fn main() {
    let questions = [
        Question::new("within", 0.4, 0),
        Question::new("within, 5 pods", 0.4, 5),
        Question::new("breached, 5 pods", 1.2, 5),
    ];
    let bytecode = Rule::shipped_latency_budget();
    assert!(bytecode.is_bytecode(), "the shipped rule fell back to the interpreter");
    let interpreter = bytecode.interpreted();
    let mut criterion = Criterion::default().configure_from_args();
    for question in &questions {
        let mut group = criterion.benchmark_group(question.name);
        group.bench_function("input", |bencher| bencher.iter(|| black_box(question.input().document())));
        group.bench_function("bytecode", |bencher| bencher.iter(|| black_box(bytecode.evaluate(&question.input()))));
        group.bench_function("interpreter", |bencher| {
            bencher.iter(|| black_box(interpreter.evaluate(&question.input())));
        });
        group.finish();
        against_opa(question, &bytecode, &interpreter);
    }
    criterion.final_summary();
}

/// How often each of the three is timed; the best counts, since a neighbour on the machine can only make it worse.
const RUNS: u32 = 3;

/// Times the three in turn on the same question, in the same minute, and says how they compare.
fn against_opa(question: &Question, bytecode: &Rule, interpreter: &Rule) {
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rule.input.json");
    std::fs::write(&input, question.input().to_json().to_string()).expect("the target directory is writable");
    let mut best = [Duration::MAX; 3];
    for _ in 0..RUNS {
        let Some(opa) = opa(&input) else {
            println!("{}: no opa on the PATH to compare with; `make measure` brings it", question.name);
            return;
        };
        let times = [opa, timed(bytecode, question), timed(interpreter, question)];
        best.iter_mut().zip(times).for_each(|(best, time)| *best = time.min(*best));
    }
    let [opa, bytecode, interpreter] = best.map(|time| time.as_secs_f64() * 1e6);
    println!(
        "{}: opa {opa:.1} µs, bytecode {bytecode:.1} µs = {:.2} of it, interpreter {interpreter:.1} µs = {:.2} of it",
        question.name,
        bytecode / opa,
        interpreter / opa
    );
}

/// One evaluation, on average over a second, as `opa bench` has it: a best of shorter batches would flatter us.
fn timed(rule: &Rule, question: &Question) -> Duration {
    const BATCH: u32 = 100;
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < Duration::from_secs(1) {
        for _ in 0..BATCH {
            black_box(rule.evaluate(&question.input()));
        }
        count += BATCH;
    }
    started.elapsed() / count
}

/// What `opa bench` says of one evaluation; none where there is no opa.
fn opa(input: &Path) -> Option<Duration> {
    let output = Command::new("opa")
        .args(["bench", "--format", "json", "--data", LATENCY_BUDGET_PATH, "--input"])
        .arg(input)
        .arg(LATENCY_BUDGET_ENTRYPOINT)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    assert!(output.status.success(), "opa bench: {}", String::from_utf8_lossy(&output.stderr));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).expect("opa writes JSON");
    let field = |name: &str| run[name].as_f64().expect("opa bench gives N and T");
    Some(Duration::from_secs_f64(field("T") / field("N") / 1e9))
}
