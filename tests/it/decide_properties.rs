//! What must hold of decisions whatever happens: by property, where a case could only show an example.

mod claims;
mod reuse;
mod timelines;

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, TimeZone, Utc};
use serde_json::json;
use tradeguard::decide::{Entry, Surroundings, prepare};
use tradeguard::model::policy::{
    Draft, DraftAction, DraftSignal, Enforcement, OnNoData, Origin, PolicyKey, PolicyKind, TargetRef,
};
use tradeguard::model::tenant::{Class, Tenant};

fn start() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 1, 1, 0, 0, 0).unwrap()
}

fn at(seconds: i64) -> DateTime<Utc> {
    start() + TimeDelta::seconds(seconds)
}

fn tenant(class: Class, priority: i32) -> Tenant {
    Tenant { name: format!("{}{priority}", class.as_str()), class, priority, ..Tenant::built_in() }
}

fn breaker() -> DraftAction {
    DraftAction {
        kind: "circuit-breaker".to_owned(),
        timeout: Some("30s".to_owned()),
        fallback: Some("cache-only".to_owned()),
        ..DraftAction::default()
    }
}

fn draft(name: &str, target: &str, actions: Vec<DraftAction>) -> Draft {
    let p99 = DraftSignal {
        path: "spec.thresholds.p99".to_owned(),
        name: "p99".to_owned(),
        quantile: Some(0.99),
        query: None,
        unit: None,
        threshold: Some("800ms".to_owned()),
        optional: false,
    };
    Draft {
        key: PolicyKey {
            kind: PolicyKind::LatencyBudgetPolicy,
            namespace: "trading".to_owned(),
            name: name.to_owned(),
        },
        uid: format!("uid-{name}"),
        generation: 1,
        changed_at: start(),
        origin: Origin::default(),
        target_ref: TargetRef {
            api_version: "trade.io/v1".to_owned(),
            kind: "OrderService".to_owned(),
            name: target.to_owned(),
        },
        suspend: false,
        enforcement: Enforcement::Enforce,
        interval: None,
        window: None,
        stale_after: None,
        on_no_data: OnNoData::Hold,
        min_requests: None,
        duration: "30s".to_owned(),
        recovery: None,
        signals: vec![p99],
        signal_template: None,
        backend: None,
        pod_selector: None,
        exceptions: Vec::new(),
        actions,
        rule: None,
    }
}

fn entry(draft: &Draft, tenant: Tenant) -> Entry {
    let surroundings = Surroundings {
        modes: ["read-only".to_owned()].into(),
        target_kinds: [("trade.io/v1".to_owned(), "OrderService".to_owned())].into(),
        ..Surroundings::default()
    };
    prepare(draft, &json!({}), &Arc::new(tenant), &Arc::new(surroundings)).expect("the draft is valid")
}
