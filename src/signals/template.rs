//! Signal templates: where a latency histogram is found and how its series name their workload. Data only.

use std::collections::BTreeMap;

use crate::model::quantity::Unit;

/// Where to find one classic histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// Name of the histogram without `_bucket`.
    pub metric: String,
    /// Unit of its bucket edges.
    pub unit: Unit,
    /// Labels that every series must have, beside those of the workload.
    pub matchers: BTreeMap<String, String>,
    /// Label with the namespace.
    pub namespace_label: String,
    /// Label with the name that tells workloads apart.
    pub name_label: String,
    /// Whose name stands in `name_label`.
    pub named: Named,
    /// Label with the Pod.
    pub pod_label: String,
    /// Where a Pod serves the histogram itself; none: where the scraping backend says.
    pub endpoint: Option<Endpoint>,
}

/// Whose name identifies the series of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Named {
    /// The topmost controller of the Pods, as Istio's `destination_workload`.
    Workload,
    /// The policy's target, as a `service` label.
    Target,
}

/// A port and path on a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Port number.
    pub port: u16,
    /// Path, with its leading slash.
    pub path: String,
}

/// The template that applies when neither policy, tenant nor configuration names one.
pub(super) const DEFAULT: &str = "istio";

/// The templates that are always there, by name; a configuration may redefine each.
pub fn built_in() -> BTreeMap<String, Template> {
    let labels = |namespace: &str, name: &str, pod: &str| (namespace.to_owned(), name.to_owned(), pod.to_owned());
    let make = |metric: &str, unit, matchers: &[(&str, &str)], labels: (String, String, String), named, endpoint| {
        let matchers = matchers.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let (namespace_label, name_label, pod_label) = labels;
        Template { metric: metric.to_owned(), unit, matchers, namespace_label, name_label, named, pod_label, endpoint }
    };
    // The reporter is fixed: with both, requests count twice. `pod` is the label of the scrape.
    let istio = make(
        "istio_request_duration_milliseconds",
        Unit::MILLISECONDS,
        &[("reporter", "destination")],
        labels("destination_workload_namespace", "destination_workload", "pod"),
        Named::Workload,
        Some(Endpoint { port: 15_020, path: "/stats/prometheus".to_owned() }),
    );
    // Resource attributes as Prometheus promotes them when they arrive by OTLP.
    let opentelemetry = make(
        "http_server_request_duration_seconds",
        Unit::SECONDS,
        &[],
        labels("k8s_namespace_name", "service_name", "k8s_pod_name"),
        Named::Target,
        None,
    );
    // Labels as a ServiceMonitor attaches them.
    let plain = make(
        "http_request_duration_seconds",
        Unit::SECONDS,
        &[],
        labels("namespace", "service", "pod"),
        Named::Target,
        None,
    );
    [("istio", istio), ("opentelemetry", opentelemetry), ("plain", plain)]
        .into_iter()
        .map(|(name, template)| (name.to_owned(), template))
        .collect()
}
