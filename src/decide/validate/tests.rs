use crate::model::policy::{
    DraftAction, DraftSignal, Enforcement, IsolationLimits, OnNoData, Origin, OwnRule, PolicyKey, SignalSource,
    TargetRef,
};
use crate::model::quantity::{BaseUnit, Percent};

use super::*;

fn surroundings() -> Surroundings {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Surroundings {
        modes: set(&["read-only"]),
        sinks: set(&["sre"]),
        backends: set(&["prometheus"]),
        templates: set(&["istio"]),
        target_kinds: [("trade.io/v1".to_owned(), "OrderService".to_owned())].into(),
    }
}

fn breaker() -> DraftAction {
    DraftAction {
        kind: "circuit-breaker".to_owned(),
        timeout: Some("30s".to_owned()),
        fallback: Some("cache-only".to_owned()),
        ..DraftAction::default()
    }
}

fn p99() -> DraftSignal {
    DraftSignal {
        path: "spec.thresholds.p99".to_owned(),
        name: "p99".to_owned(),
        quantile: Some(0.99),
        query: None,
        unit: None,
        threshold: Some("800ms".to_owned()),
        optional: false,
    }
}

/// The seed policy.
fn seed() -> Draft {
    Draft {
        key: PolicyKey {
            kind: PolicyKind::LatencyBudgetPolicy,
            namespace: "trading".to_owned(),
            name: "order-processing".to_owned(),
        },
        uid: String::new(),
        generation: 0,
        changed_at: DateTime::UNIX_EPOCH,
        origin: Origin::default(),
        target_ref: TargetRef {
            api_version: "trade.io/v1".to_owned(),
            kind: "OrderService".to_owned(),
            name: "core-trading".to_owned(),
        },
        suspend: false,
        enforcement: Enforcement::Enforce,
        interval: None,
        window: None,
        stale_after: None,
        on_no_data: OnNoData::Hold,
        min_requests: None,
        duration: "2m".to_owned(),
        recovery: None,
        signals: vec![p99()],
        signal_template: None,
        backend: None,
        pod_selector: None,
        exceptions: Vec::new(),
        actions: vec![breaker()],
        rule: None,
    }
}

fn governance(signal: DraftSignal) -> Draft {
    let key = PolicyKey { kind: PolicyKind::GovernancePolicy, ..seed().key };
    let rule = OwnRule { module: "package lab".to_owned(), entrypoint: "data.lab.verdict".to_owned() };
    Draft { key, signals: vec![signal], actions: Vec::new(), rule: Some(rule), ..seed() }
}

fn refused(draft: &Draft) -> (Reason, Vec<String>) {
    refused_for(draft, &Tenant::built_in())
}

fn refused_for(draft: &Draft, tenant: &Tenant) -> (Reason, Vec<String>) {
    match validate(draft, &surroundings(), tenant) {
        Ok(policy) => panic!("is valid: {policy:?}"),
        Err(invalid) => (invalid.reason, invalid.problems.into_iter().map(|problem| problem.path).collect()),
    }
}

fn refused_action(action: DraftAction) -> (Reason, Vec<String>) {
    refused(&Draft { actions: vec![action], ..seed() })
}

#[test]
fn the_seed_policy_is_valid_and_what_it_leaves_out_has_its_default() {
    let policy = validate(&seed(), &surroundings(), &Tenant::built_in()).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!((policy.duration, policy.recovery), (seconds(120), seconds(120)));
    assert_eq!((policy.interval, policy.window, policy.stale_after), (seconds(10), seconds(60), seconds(60)));
    assert_eq!(policy.min_requests, 10);
    let Action::CircuitBreaker { timeout, fallback, isolation, probe, .. } = &policy.actions[0] else {
        panic!("{:?}", policy.actions)
    };
    assert_eq!((*timeout, fallback.as_str()), (seconds(30), "cache-only"));
    assert_eq!(*isolation, IsolationLimits::default());
    assert_eq!(probe.get(), 10);
}

#[test]
fn each_duration_is_checked_at_its_own_path() {
    for bad in ["1h30", "1min", "1.5", "-5m", "0s", "", "800"] {
        let some = || Some(bad.to_owned());
        for (draft, path) in [
            (Draft { duration: bad.to_owned(), recovery: Some("1m".to_owned()), ..seed() }, "spec.thresholds.duration"),
            (Draft { recovery: some(), ..seed() }, "spec.thresholds.recovery"),
            (Draft { interval: some(), ..seed() }, "spec.interval"),
            (Draft { window: some(), ..seed() }, "spec.window"),
            (Draft { stale_after: some(), ..seed() }, "spec.staleAfter"),
            (
                Draft { actions: vec![DraftAction { timeout: some(), ..breaker() }], ..seed() },
                "spec.actions[0].config.timeout",
            ),
            (Draft { signals: vec![DraftSignal { threshold: some(), ..p99() }], ..seed() }, "spec.thresholds.p99"),
        ] {
            assert_eq!(refused(&draft), (Reason::InvalidPolicy, vec![path.to_owned()]), "`{bad}`");
        }
    }
}

#[test]
fn a_message_says_what_was_found_and_what_is_expected() {
    let invalid = validate(&Draft { duration: "1h30".to_owned(), ..seed() }, &surroundings(), &Tenant::built_in());
    let words = "spec.thresholds.duration: `1h30` has no unit; expected a Go duration greater than zero, such as `2m`, \
                 `1h30m`, `800ms` or `1.5s`";
    assert_eq!(invalid.unwrap_err().to_string(), words);
}

#[test]
fn reasons_of_their_own_win_over_the_general_one() {
    let mut draft = seed();
    draft.target_ref.kind = "Deployment".to_owned();
    draft.interval = Some("1min".to_owned());
    let (reason, paths) = refused(&draft);
    assert_eq!(reason, Reason::TargetKindNotListed);
    assert_eq!(paths, ["spec.targetRef", "spec.interval"]);
    let notify_only = Tenant { allowed_actions: Some(vec![ActionKind::Notify]), ..Tenant::built_in() };
    assert_eq!(refused_for(&seed(), &notify_only).0, Reason::ActionNotAllowed);
    let fallback = DraftAction { fallback: Some("slow".to_owned()), ..breaker() };
    assert_eq!(refused_action(fallback).0, Reason::UnknownMode);
}

#[test]
fn a_field_of_another_action_is_refused_by_name() {
    let mode = DraftAction { kind: "mode".to_owned(), mode: Some("cache-only".to_owned()), ..DraftAction::default() };
    for (action, field) in [
        (DraftAction { timeout: Some("30s".to_owned()), ..mode.clone() }, "timeout"),
        (DraftAction { sink: Some("sre".to_owned()), ..mode.clone() }, "sink"),
        (DraftAction { probe_percent: Some(10), ..mode.clone() }, "halfOpen"),
        (DraftAction { mode: Some("read-only".to_owned()), ..breaker() }, "mode"),
        (DraftAction { weight: Some(3), ..breaker() }, "weight"),
    ] {
        let path = format!("spec.actions[0].config.{field}");
        assert_eq!(refused_action(action), (Reason::InvalidPolicy, vec![path]));
    }
}

#[test]
fn what_an_action_cannot_do_without_is_asked_for() {
    let of = |kind: &str| DraftAction { kind: kind.to_owned(), ..DraftAction::default() };
    for (kind, fields) in [
        ("circuit-breaker", vec!["timeout", "fallback"]),
        ("mode", vec!["mode"]),
        ("route-weight", vec!["destination", "weight"]),
        ("notify", vec!["sink"]),
    ] {
        let paths: Vec<String> = fields.iter().map(|field| format!("spec.actions[0].config.{field}")).collect();
        assert_eq!(refused_action(of(kind)).1, paths, "{kind}");
    }
    assert!(
        validate(&Draft { actions: vec![of("isolate-pods")], ..seed() }, &surroundings(), &Tenant::built_in()).is_ok()
    );
    assert_eq!(refused_action(of("reboot")).1, ["spec.actions[0].type"]);
}

#[test]
fn shares_have_their_range() {
    for (action, field) in [
        (DraftAction { max_isolated_percent: Some(101), ..breaker() }, "maxIsolatedPercent"),
        (DraftAction { max_isolated_percent: Some(-1), ..breaker() }, "maxIsolatedPercent"),
        (DraftAction { min_healthy: Some(0), ..breaker() }, "minHealthy"),
        (DraftAction { probe_percent: Some(0), ..breaker() }, "halfOpen.initialWeightPercent"),
        (DraftAction { probe_percent: Some(300), ..breaker() }, "halfOpen.initialWeightPercent"),
    ] {
        assert_eq!(refused_action(action).1, [format!("spec.actions[0].config.{field}")]);
    }
    let loose = DraftAction { max_isolated_percent: Some(100), probe_percent: Some(100), ..breaker() };
    let policy = validate(&Draft { actions: vec![loose], ..seed() }, &surroundings(), &Tenant::built_in()).unwrap();
    let Action::CircuitBreaker { isolation, .. } = &policy.actions[0] else { panic!() };
    assert_eq!(isolation.max_percent, Percent::ALL);
}

#[test]
fn a_querys_unit_is_told_by_its_metric_or_declared() {
    let with = |query: &str, unit: Option<&str>| {
        let signal =
            DraftSignal { quantile: None, query: Some(query.to_owned()), unit: unit.map(str::to_owned), ..p99() };
        validate(&Draft { signals: vec![signal], ..seed() }, &surroundings(), &Tenant::built_in())
    };
    for (query, unit, base, scale) in [
        ("orders_latency_seconds", None, BaseUnit::Seconds, 1.0),
        ("max(orders_latency_milliseconds{pod=~\"a.*\"})", None, BaseUnit::Seconds, 1e-3),
        ("histogram_quantile(0.99, sum by (le) (rate(x_milliseconds_bucket[1m])))", None, BaseUnit::Seconds, 1e-3),
        ("max_over_time((orders_seconds)[5m:])", None, BaseUnit::Seconds, 1.0),
        ("orders_p99", Some("ms"), BaseUnit::Seconds, 1e-3),
    ] {
        match with(query, unit) {
            Ok(policy) => {
                let SignalSource::Query { unit, .. } = policy.signals["p99"].source else { panic!("{query}") };
                assert_eq!((unit.base, unit.scale), (base, scale), "{query}");
            }
            // A subquery's unit is not looked for; it must be declared.
            Err(invalid) => assert!(query.contains("[5m:]") && invalid.reason == Reason::UnknownUnit, "{invalid}"),
        }
    }
    for query in ["orders_p99", "rate(orders_seconds_sum[1m])", "a_seconds / b_seconds", "vector(1)"] {
        assert_eq!(with(query, None).unwrap_err().reason, Reason::UnknownUnit, "{query}");
    }
    assert_eq!(with("sum(rate(", Some("s")).unwrap_err().problems[0].path, "spec.signal.query");
    assert_eq!(with("x", Some("parsec")).unwrap_err().problems[0].path, "spec.signal.unit");
    assert_eq!(with("x", Some("By")).unwrap_err().problems[0].path, "spec.signal.unit");
}

#[test]
fn a_threshold_is_in_its_signals_unit() {
    let signal = |unit: &str, threshold: &str| DraftSignal {
        path: "spec.signals[0]".to_owned(),
        name: "s".to_owned(),
        quantile: None,
        query: Some("q".to_owned()),
        unit: Some(unit.to_owned()),
        threshold: Some(threshold.to_owned()),
        optional: false,
    };
    for (unit, threshold, value, base) in [
        ("ratio", "5%", 0.05, BaseUnit::Ratio),
        ("%", "0.05", 0.05, BaseUnit::Ratio),
        ("1", "1000", 1000.0, BaseUnit::Count),
        ("ms", "800ms", 0.8, BaseUnit::Seconds),
    ] {
        let policy = validate(&governance(signal(unit, threshold)), &surroundings(), &Tenant::built_in()).unwrap();
        let threshold = policy.signals["s"].threshold.as_ref().unwrap();
        assert_eq!((threshold.value, threshold.unit), (value, base));
    }
    for (unit, threshold) in [("ms", "800"), ("ratio", "800ms"), ("By", "5%"), ("1", "many")] {
        assert_eq!(
            refused(&governance(signal(unit, threshold))).1,
            ["spec.signals[0].threshold"],
            "{unit} {threshold}"
        );
    }
}

#[test]
fn a_signal_says_once_how_it_is_measured() {
    let neither = DraftSignal { quantile: None, path: "spec.signals[0]".to_owned(), ..p99() };
    assert_eq!(refused(&governance(neither.clone())).1, ["spec.signals[0]"]);
    let both = DraftSignal { quantile: Some(0.5), query: Some("x_seconds".to_owned()), ..neither.clone() };
    assert_eq!(refused(&governance(both)).1, ["spec.signals[0]"]);
    for quantile in [0.0, 1.0, -0.5, f64::NAN] {
        let signal = DraftSignal { quantile: Some(quantile), ..neither.clone() };
        assert_eq!(refused(&governance(signal)).1, ["spec.signals[0].quantile"]);
    }
    let twice = Draft { signals: vec![p99(), p99()], ..seed() };
    assert_eq!(refused(&twice).1, ["spec.thresholds.p99"]);
}

#[test]
fn an_exception_excepts_something_until_it_expires() {
    let exception =
        |pods: &[&str], from: Option<&str>, until: Option<&str>, expires: &str, reason: &str| DraftException {
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
            from: from.map(str::to_owned),
            until: until.map(str::to_owned),
            reason: reason.to_owned(),
            expires: expires.to_owned(),
        };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00+01:00");
    for (draft, path) in [
        (exception(&[], None, None, late, "why"), "spec.exceptions[0]"),
        (exception(&["a"], Some(early), Some(late), late, "why"), "spec.exceptions[0]"),
        (exception(&[], Some(early), None, late, "why"), "spec.exceptions[0].until"),
        (exception(&[], None, Some(late), late, "why"), "spec.exceptions[0].from"),
        (exception(&[], Some(late), Some(early), late, "why"), "spec.exceptions[0].until"),
        (exception(&["a"], None, None, "tomorrow", "why"), "spec.exceptions[0].expires"),
        (exception(&["a"], None, None, late, " "), "spec.exceptions[0].reason"),
    ] {
        assert_eq!(refused(&Draft { exceptions: vec![draft.clone()], ..seed() }).1, [path], "{draft:?}");
    }
}

#[test]
fn a_rule_belongs_to_the_kind_that_has_one() {
    let rule = governance(p99()).rule;
    assert_eq!(refused(&Draft { rule, ..seed() }).1, ["spec.rule"]);
    assert_eq!(refused(&Draft { rule: None, ..governance(p99()) }).1, ["spec.rule"]);
    assert!(validate(&governance(p99()), &surroundings(), &Tenant::built_in()).is_ok());
}

#[test]
fn an_empty_pod_selector_is_no_selector() {
    let draft = Draft { pod_selector: Some(std::collections::BTreeMap::new()), ..seed() };
    assert_eq!(refused(&draft).1, ["spec.workload.podSelector.matchLabels"]);
}

#[test]
fn a_rules_own_actions_pass_the_same_checks() {
    let check = |json: serde_json::Value| replacement("actions", &json, &surroundings(), &Tenant::built_in());
    let actions = check(serde_json::json!([{"type": "mode", "config": {"mode": "read-only"}}])).unwrap();
    assert_eq!(actions, [Action::Mode("read-only".to_owned())]);
    for (json, path) in [
        (serde_json::json!("mode"), "actions"),
        (serde_json::json!([{"type": "mode", "config": {"mode": "slow"}}]), "actions[0].config.mode"),
        (serde_json::json!([{"type": "mode", "config": {"moed": "cache-only"}}]), "actions[0]"),
        (serde_json::json!([{"type": "isolate-pods"}, {"type": "reboot"}]), "actions[1].type"),
    ] {
        assert_eq!(check(json).unwrap_err().problems[0].path, path);
    }
}
