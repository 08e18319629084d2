//! Renders shared queries: pure text from a template, a window and a selection of workloads.
//!
//! The two queries of a shape, for one workload of the `plain` template:
//!
//! ```text
//! sum by (le, namespace, service, pod) (rate(http_request_duration_seconds_bucket{namespace="a",service="b"}[1m]))
//! max by (namespace, service, pod) (timestamp(http_request_duration_seconds_bucket{le="+Inf",namespace="a",service="b"}))
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use super::template::Template;

/// Which workloads a query is restricted to. Names are exact; what a product of the two lists matches beyond what is
/// governed, the reader of the answer discards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection<'a> {
    /// These names in these namespaces.
    Names { namespaces: Vec<&'a str>, names: Vec<&'a str> },
    /// Everything in these namespaces.
    Namespaces(Vec<&'a str>),
    /// Everything.
    All,
}

/// The rates of all buckets of the selection, per Pod.
pub(crate) fn bucket_query(template: &Template, selection: &Selection<'_>, window: Duration) -> String {
    format!(
        "sum by (le, {}, {}, {}) (rate({}[{}]))",
        template.namespace_label,
        template.name_label,
        template.pod_label,
        selector(template, selection, None),
        window_text(window),
    )
}

/// When the newest sample of each Pod was taken. The `+Inf` bucket stands for all: every histogram has it, and it is
/// the only edge that every server spells the same.
pub(crate) fn freshness_query(template: &Template, selection: &Selection<'_>) -> String {
    format!(
        "max by ({}, {}, {}) (timestamp({}))",
        template.namespace_label,
        template.name_label,
        template.pod_label,
        selector(template, selection, Some("+Inf")),
    )
}

fn selector(template: &Template, selection: &Selection<'_>, edge: Option<&str>) -> String {
    let mut text = format!("{}_bucket{{", template.metric);
    let mut separator = "";
    let mut put = |label: &str, matcher: String| {
        let _ = write!(text, "{separator}{label}{matcher}");
        separator = ",";
    };
    if let Some(edge) = edge {
        put("le", equals(edge));
    }
    for (label, value) in &template.matchers {
        put(label, equals(value));
    }
    match selection {
        Selection::Names { namespaces, names } => {
            put(&template.namespace_label, one_of(namespaces));
            put(&template.name_label, one_of(names));
        }
        Selection::Namespaces(namespaces) => put(&template.namespace_label, one_of(namespaces)),
        Selection::All => put(&template.namespace_label, "!=\"\"".to_owned()),
    }
    text.push('}');
    text
}

fn equals(value: &str) -> String {
    format!("=\"{}\"", quoted(value))
}

fn one_of(values: &[&str]) -> String {
    if let [value] = values {
        return equals(value);
    }
    let mut alternatives = String::new();
    for value in values {
        if !alternatives.is_empty() {
            alternatives.push('|');
        }
        for c in value.chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                alternatives.push('\\');
            }
            alternatives.push(c);
        }
    }
    format!("=~\"{}\"", quoted(&alternatives))
}

/// `value` as it stands between double quotes in PromQL.
pub(crate) fn quoted(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text
}

/// A duration in PromQL's own grammar: whole numbers, longest unit first, each once; rounded up to a millisecond.
pub(crate) fn window_text(window: Duration) -> String {
    let mut millis = window.as_nanos().div_ceil(1_000_000).max(1);
    let mut text = String::new();
    for (unit, length) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if millis >= length {
            let _ = write!(text, "{}{unit}", millis / length);
            millis %= length;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::template::built_in;

    #[test]
    fn one_workload_is_matched_exactly() {
        let templates = built_in();
        let selection = Selection::Names { namespaces: vec!["trading"], names: vec!["core-trading"] };
        let window = Duration::from_mins(1);
        assert_eq!(
            bucket_query(&templates["istio"], &selection, window),
            "sum by (le, destination_workload_namespace, destination_workload, pod) \
             (rate(istio_request_duration_milliseconds_bucket{reporter=\"destination\",\
             destination_workload_namespace=\"trading\",destination_workload=\"core-trading\"}[1m]))"
        );
        assert_eq!(
            freshness_query(&templates["istio"], &selection),
            "max by (destination_workload_namespace, destination_workload, pod) \
             (timestamp(istio_request_duration_milliseconds_bucket{le=\"+Inf\",reporter=\"destination\",\
             destination_workload_namespace=\"trading\",destination_workload=\"core-trading\"}))"
        );
        assert_eq!(
            bucket_query(&templates["opentelemetry"], &selection, window),
            "sum by (le, k8s_namespace_name, service_name, k8s_pod_name) \
             (rate(http_server_request_duration_seconds_bucket{k8s_namespace_name=\"trading\",\
             service_name=\"core-trading\"}[1m]))"
        );
        assert_eq!(
            bucket_query(&templates["plain"], &selection, window),
            "sum by (le, namespace, service, pod) \
             (rate(http_request_duration_seconds_bucket{namespace=\"trading\",service=\"core-trading\"}[1m]))"
        );
    }

    #[test]
    fn several_workloads_are_one_escaped_alternation() {
        let selection = Selection::Names { namespaces: vec!["a", "b"], names: vec!["x.y", "z"] };
        assert_eq!(
            selector(&built_in()["plain"], &selection, None),
            r#"http_request_duration_seconds_bucket{namespace=~"a|b",service=~"x\\.y|z"}"#
        );
        assert_eq!(
            selector(&built_in()["plain"], &Selection::Namespaces(vec!["a", "b"]), None),
            r#"http_request_duration_seconds_bucket{namespace=~"a|b"}"#
        );
        assert_eq!(
            selector(&built_in()["plain"], &Selection::All, None),
            r#"http_request_duration_seconds_bucket{namespace!=""}"#
        );
    }

    #[test]
    fn nothing_breaks_out_of_a_quoted_value() {
        assert_eq!(equals("a\"} or up{x=\"\\\n"), r#"="a\"} or up{x=\"\\\n""#);
    }

    #[test]
    fn windows_are_written_in_promql_grammar() {
        for (millis, text) in [
            (60_000, "1m"),
            (90_000, "1m30s"),
            (1_500, "1s500ms"),
            (5_400_000, "1h30m"),
            (90_000_000, "25h"),
            (250, "250ms"),
        ] {
            assert_eq!(window_text(Duration::from_millis(millis)), text);
        }
        assert_eq!(window_text(Duration::from_nanos(1)), "1ms");
    }
}
