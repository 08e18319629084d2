use std::path::Path;
use std::time::Duration;

use super::Config;

fn messages(text: &str) -> Vec<String> {
    let problems = Config::parse("config.yaml", text).err().unwrap_or_default();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn the_example_is_accepted_and_names_every_field() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/config.yaml");
    let config = Config::load(&path).unwrap();
    assert_eq!(config.targets[0].plural, "orderservices");
    assert_eq!(config.lease_duration, Duration::from_secs(15));
    let text = std::fs::read_to_string(path).unwrap();
    for field in [
        "clusterName",
        "namespace",
        "targets",
        "apiVersion",
        "kind",
        "plural",
        "modes",
        "sinks",
        "url",
        "timeout",
        "headers",
        "bearerTokenFile",
        "allEvents",
        "budgets",
        "effectsPerMinute",
        "labSharePercent",
        "maxIsolatedPercent",
        "minHealthy",
        "namespaceIsolatedPercent",
        "clusterIsolatedPercent",
        "lease",
        "name",
        "duration",
        "listen",
        "stateDir",
        "metrics",
        "signals",
        "defaultBackend",
        "defaultTemplate",
        "backends",
        "headers",
        "params",
        "bearerTokenFile",
        "basic",
        "passwordFile",
        "caFile",
        "maxBytes",
        "maxConcurrent",
        "templates",
        "metric",
        "unit",
        "matchers",
        "labels",
        "named",
        "port",
        "path",
        "policyLabel",
        "maxPolicySeries",
    ] {
        assert!(text.contains(&format!("{field}:")), "deploy/config.yaml does not show `{field}`");
    }
}

#[test]
fn an_empty_file_means_the_defaults() {
    let config = Config::parse("config.yaml", "{}").unwrap();
    assert!(config.targets.is_empty() && config.sinks.is_empty());
    assert_eq!(config.listen, ["127.0.0.1:9650".parse().unwrap()]);
    assert_eq!(config.budgets.effects_per_minute, 10);
}

#[test]
fn each_problem_names_its_field() {
    for (text, path) in [
        ("targets: [{apiVersion: trade.io/v1, kind: '*'}]", "targets[0].kind"),
        ("targets: [{apiVersion: '*/v1', kind: A}]", "targets[0].apiVersion"),
        ("targets: [{apiVersion: trade.io, kind: A}]", "targets[0].apiVersion"),
        ("targets: [{apiVersion: v1, kind: A, plural: '*'}]", "targets[0].plural"),
        ("targets: [{apiVersion: v1, kind: A}, {apiVersion: v1, kind: A}]", "targets[1]"),
        ("modes: [cache-only, Read Only]", "modes[1]"),
        ("sinks: {sre: {url: 'sre:80'}}", "sinks.sre.url"),
        ("sinks: {sre: {url: 'http://sre', timeout: 5}}", "sinks.sre.timeout"),
        ("sinks: {sre: {url: 'http://sre', headers: {'a b': c}}}", "sinks.sre.headers.a b"),
        ("budgets: {labSharePercent: 101}", "budgets.labSharePercent"),
        ("lease: {duration: 1min}", "lease.duration"),
        ("lease: {duration: 1s}", "lease.duration"),
        ("lease: {name: A}", "lease.name"),
        ("listen: ['localhost:9650']", "listen[0]"),
        ("listen: ['127.0.0.1']", "listen[0]"),
        ("clusterName: a/b", "clusterName"),
        ("signals: {backends: {main: {kind: prometheus, url: prometheus}}}", "signals.backends.main.url"),
        ("signals: {defaultTemplate: other}", "signals.defaultTemplate"),
    ] {
        let found = messages(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with(&format!("config.yaml: {path}: ")), "{text}: {found:?}");
    }
}

#[test]
fn every_problem_is_told_at_once() {
    assert_eq!(messages("{modes: [A, B], lease: {duration: -5m}}").len(), 3);
}

#[test]
fn what_is_no_configuration_is_refused_with_its_line() {
    for (text, told) in [
        ("modes: []\ntarget: []\n", "config.yaml:2:1: unknown field `target`"),
        ("budgets:\n  effectsPerMinute: many\n", "config.yaml:2:"),
        ("budgets: {labSharePercent: 300}", "config.yaml:1:"),
        ("targets: [{kind: A}]", "missing field `apiVersion`"),
        ("modes: [a\nlisten: []", "config.yaml:"),
    ] {
        let found = messages(text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("config.yaml") && found[0].contains(told), "{text}: {found:?}");
    }
}
