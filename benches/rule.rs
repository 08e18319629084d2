//! What one question to the shipped latency rule costs, by bytecode, by interpreter, and, where `opa` is on the PATH
//! (`make measure` sees to that), by `opa bench` on the same input in the same run.
//!
//! Ours is the whole of an evaluation: building the input, running the rule, reading the verdict. `opa bench` has its
//! input parsed before it starts the clock.

// A benchmark reports on standard output.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};

use chrono::{DateTime, Utc};
use criterion::Criterion;
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
        opa(question);
    }
    criterion.final_summary();
}

/// What `opa bench` says of the same question: the best of three runs.
fn opa(question: &Question) {
    let input = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rule.input.json");
    std::fs::write(&input, question.input().to_json().to_string()).expect("the target directory is writable");
    let output = Command::new("opa")
        .args(["bench", "--format", "json", "--count", "3", "--data", LATENCY_BUDGET_PATH, "--input"])
        .arg(&input)
        .arg(LATENCY_BUDGET_ENTRYPOINT)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        println!("{}/opa: no opa on the PATH; `make measure` brings it", question.name);
        return;
    };
    assert!(output.status.success(), "opa bench: {}", String::from_utf8_lossy(&output.stderr));
    let runs = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    let times = runs.filter_map(|run| {
        let run = run.ok()?;
        Some(run.get("T")?.as_f64()? / run.get("N")?.as_f64()?)
    });
    let best = times.fold(f64::INFINITY, f64::min);
    println!("{}/opa             time:   {:.2} µs (opa bench, best of 3)", question.name, best / 1e3);
}
