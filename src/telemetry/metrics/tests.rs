use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{
    BackendCounts, CONTENT_TYPE, EvaluationResult, ExecutionResult, Metrics, Options, ReconcileResult, SinkCounts,
};
use crate::model::phase::Phase;
use crate::model::policy::{ActionKind, PolicyKey, PolicyKind};
use crate::model::quantity::{BaseUnit, Threshold};
use crate::model::reading::{NoReading, Reading};
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::model::view::{PolicyView, Processing, SignalView, View};

fn key(name: &str) -> PolicyKey {
    PolicyKey { kind: PolicyKind::LatencyBudgetPolicy, namespace: "trading".into(), name: name.into() }
}

fn policy(phase: Phase) -> PolicyView {
    let reading = Reading { value: 1.2, unit: BaseUnit::Seconds, age_seconds: 3.0, series: 1, requests: None };
    let threshold = Threshold::latency("800ms").ok();
    PolicyView {
        tenant: Arc::new(Tenant { name: "core".into(), ..Tenant::built_in() }),
        target: None,
        processing: Processing::Processed,
        reason: Reason::Accepted,
        phase,
        stage: None,
        since: None,
        blind: None,
        verdict: None,
        judged_at: None,
        signals: BTreeMap::from([
            ("p99".to_owned(), SignalView { reading: Ok(reading), threshold: threshold.clone() }),
            ("p50".to_owned(), SignalView { reading: Err(NoReading::NoData), threshold }),
        ]),
        suspects: Vec::new(),
        explanation: crate::model::view::Explanation::new(|| serde_json::Value::Null),
    }
}

fn scrape_of(view: View, options: Options) -> String {
    let metrics = Metrics::new(options);
    let view = Arc::new(view);
    metrics.observe_view(move || Arc::clone(&view));
    metrics.render()
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "no line `{line}` in\n{text}");
}

#[test]
fn docs_list_every_metric() {
    let mut table = String::from("| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for metric in Metrics::new(Options::default()).catalogue() {
        let labels = metric.labels.join(", ");
        writeln!(table, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind, metric.help).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let start = text.find("| metric |").unwrap_or(text.len());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{}{table}", &text[..start])).unwrap();
        return;
    }
    assert_eq!(&text[start..], table, "docs/metrics.md is not current: run again with UPDATE_GOLDEN=1");
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    for metric in Metrics::new(Options::default()).catalogue() {
        let name = &metric.name;
        let known = ["tradeguard_", "controller_runtime_", "workqueue_", "leader_election_", "rest_client_"];
        assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        assert_eq!(metric.kind == "counter", name.ends_with("_total"), "{name}");
        assert!(!metric.labels.iter().any(|label| label == "namespace"), "{name}: `namespace` is the scraper's label");
    }
}

#[test]
fn the_type_is_the_one_that_prometheus_reads() {
    assert!(CONTENT_TYPE.starts_with("text/plain; version=0.0.4"));
    assert_has(&scrape_of(View::default(), Options::default()), "# TYPE tradeguard_build_info gauge");
}

#[test]
fn every_counter_of_a_tenant_exists_at_zero_before_its_first_event() {
    let metrics = Metrics::new(Options::default());
    metrics.evaluations(
        "core",
        PolicyKind::LatencyBudgetPolicy,
        EvaluationResult::Miss,
        1,
        DateTime::<Utc>::UNIX_EPOCH,
    );
    let text = metrics.render();
    let evaluations = "tradeguard_policy_evaluations_total{policy_kind=\"LatencyBudgetPolicy\"";
    assert_has(&text, &format!("{evaluations},result=\"miss\",tenant=\"core\"}} 1"));
    assert_has(&text, &format!("{evaluations},result=\"error\",tenant=\"core\"}} 0"));
    assert_has(
        &text,
        "tradeguard_policy_executions_total{action=\"circuit-breaker\",result=\"failure\",tenant=\"core\"} 0",
    );
}

#[test]
fn a_tenant_that_is_gone_leaves_no_series() {
    let metrics = Metrics::new(Options::default());
    metrics.execution("lab", ActionKind::Mode, ExecutionResult::Success);
    metrics.tenants(["core", "lab"]);
    metrics.tenants(["core"]);
    let text = metrics.render();
    assert!(!text.contains("tenant=\"lab\""));
    assert!(text.contains("tenant=\"core\"") && text.contains("tenant=\"default\""));
}

#[test]
fn a_policy_has_one_phase_and_only_readings_that_exist() {
    let view = View { policies: BTreeMap::from([(key("a"), Arc::new(policy(Phase::Active)))]), ..View::default() };
    let text = scrape_of(view, Options::default());
    assert_has(&text, "tradeguard_policies{reason=\"Accepted\",state=\"processed\",tenant=\"core\"} 1");
    assert_eq!(text.matches("\ntradeguard_policy_phase{").count(), 1, "{text}");
    assert_eq!(text.matches("\ntradeguard_policy_reading{").count(), 1, "no data is not zero: {text}");
    assert_eq!(text.matches("\ntradeguard_policy_threshold{").count(), 2, "{text}");
}

#[test]
fn series_with_a_policys_name_are_capped_and_what_is_left_out_is_counted() {
    let policies = (0..10).map(|n| (key(&n.to_string()), Arc::new(policy(Phase::Healthy)))).collect();
    let view = View { policies, ..View::default() };
    let text = scrape_of(view.clone(), Options { policy_label: true, max_policy_series: 12 });
    assert_eq!(text.matches("\ntradeguard_policy_phase{").count(), 2, "{text}");
    assert_has(&text, "tradeguard_metrics_series_dropped_total 40");
    assert_has(&text, "tradeguard_phases{phase=\"Healthy\",tenant=\"core\"} 10");
    let text = scrape_of(view, Options { policy_label: false, ..Options::default() });
    assert!(!text.contains("tradeguard_policy_phase"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_running_reconcile_is_seen_and_a_cancelled_one_counts_as_no_result() {
    let metrics = Arc::new(Metrics::new(Options::default()));
    metrics.controller("policy");
    let done = metrics.reconcile_started("policy");
    let cancelled = metrics.reconcile_started("policy");
    tokio::time::advance(Duration::from_secs(3)).await;
    let text = metrics.render();
    assert_has(&text, "controller_runtime_active_workers{controller=\"policy\"} 2");
    assert_has(&text, "workqueue_longest_running_processor_seconds{controller=\"policy\",name=\"policy\"} 3");
    assert_has(&text, "workqueue_unfinished_work_seconds{controller=\"policy\",name=\"policy\"} 6");
    done.finish(ReconcileResult::Error);
    drop(cancelled);
    let text = metrics.render();
    assert_has(&text, "controller_runtime_active_workers{controller=\"policy\"} 0");
    assert_has(&text, "controller_runtime_reconcile_total{controller=\"policy\",result=\"error\"} 1");
    assert_has(&text, "controller_runtime_reconcile_total{controller=\"policy\",result=\"success\"} 0");
    assert_has(&text, "controller_runtime_reconcile_errors_total{controller=\"policy\"} 1");
}

#[test]
fn what_other_rooms_count_is_read_at_scrape() {
    let metrics = Metrics::new(Options::default());
    metrics.observe_sinks(|| {
        vec![SinkCounts { sink: "sre".into(), delivered: 3, lost: vec![("overflow", 1), ("refused", 0)] }]
    });
    metrics.observe_backends(|| {
        vec![BackendCounts {
            backend: "main".into(),
            outcomes: vec![("Answered", 7), ("Timeout", 0)],
            ..Default::default()
        }]
    });
    for _ in 0..2 {
        let text = metrics.render();
        assert_has(&text, "tradeguard_events_delivered_total{sink=\"sre\"} 3");
        assert_has(&text, "tradeguard_events_lost_total{reason=\"refused\",sink=\"sre\"} 0");
        assert_has(&text, "tradeguard_metric_queries_total{backend=\"main\",outcome=\"Answered\"} 7");
        assert_has(&text, "tradeguard_metric_query_retries_total{backend=\"main\"} 0");
    }
}
