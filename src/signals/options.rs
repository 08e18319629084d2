//! The `signals:` section of the configuration: backends and templates, as written and as checked.
//!
//! Policies name backends and templates; URLs and credentials stand here alone. Secrets are paths of files, read
//! anew for each round, so that they rotate without a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::template::{self, Endpoint, Named, Template};
use crate::model::problem::Problem;
use crate::model::quantity::{EXPECTED_UNITS, Unit};
use crate::model::time;

/// The section as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Options {
    /// The backend of policies that name none; may be left out where there is only one.
    pub default_backend: Option<String>,
    /// The template of policies whose tenant names none either; default `istio`.
    pub default_template: Option<String>,
    /// Where metrics come from, by name.
    pub backends: BTreeMap<String, Backend>,
    /// Templates beside, or instead of, the built-in `istio`, `opentelemetry` and `plain`.
    pub templates: BTreeMap<String, CustomTemplate>,
}

/// One source of metrics.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Backend {
    /// A server with the Prometheus HTTP API (Prometheus, Thanos, Mimir, VictoriaMetrics).
    Prometheus(Prometheus),
    /// The Pods themselves.
    Scrape(Scrape),
}

/// A server with the Prometheus HTTP API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Prometheus {
    /// Base URL, with a path prefix if there is one; `/api/v1/query` is appended.
    pub url: String,
    /// Further headers (`X-Scope-OrgID`).
    pub headers: BTreeMap<String, String>,
    /// Further form fields (`partial_response: "false"` for Thanos).
    pub params: BTreeMap<String, String>,
    /// File with a bearer token.
    pub bearer_token_file: Option<PathBuf>,
    /// HTTP basic authentication.
    pub basic: Option<Basic>,
    /// PEM file with the only authorities to trust; default: the system's.
    pub ca_file: Option<PathBuf>,
    /// Longest time for one query; default `5s`, at most `10s`.
    pub timeout: Option<String>,
    /// Longest answer that is read, in bytes; default 32 MiB.
    pub max_bytes: Option<usize>,
    /// Queries under way at once; default 4, at most 10.
    pub max_concurrent: Option<usize>,
}

/// HTTP basic authentication.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Basic {
    /// User name.
    pub username: String,
    /// File with the password.
    pub password_file: PathBuf,
}

/// Scraping Pods directly.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scrape {
    /// Port of the Pods, unless the template says; default 8080.
    pub port: Option<u16>,
    /// Path, unless the template says; default `/metrics`.
    pub path: Option<String>,
    /// Time between two scrapes of a Pod; default `5s`.
    pub interval: Option<String>,
    /// Longest time for one scrape; default `3s`, at most the interval.
    pub timeout: Option<String>,
    /// Longest body that is read, in bytes; default 16 MiB.
    pub max_bytes: Option<usize>,
    /// Most series that one Pod may have; default 10,000.
    pub max_series: Option<usize>,
    /// Scrapes under way at once; default 16.
    pub max_concurrent: Option<usize>,
    /// Whether Pods may have a loopback address, as they have where engine and Pods share a host; default false.
    pub allow_loopback: bool,
}

/// A template of the configuration's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomTemplate {
    /// Name of the classic histogram, without `_bucket`.
    pub metric: String,
    /// Unit of the edges; needed where the metric's suffix does not tell.
    pub unit: Option<String>,
    /// Labels that every series must have.
    #[serde(default)]
    pub matchers: BTreeMap<String, String>,
    /// Labels that name namespace, workload and Pod.
    #[serde(default)]
    pub labels: TemplateLabels,
    /// Whose name stands in `labels.name`: `target` (default) or `workload`.
    pub named: Option<Named>,
    /// Port of the Pods for scraping.
    pub port: Option<u16>,
    /// Path for scraping; default `/metrics`, read only beside `port`.
    pub path: Option<String>,
}

/// Labels of a template.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TemplateLabels {
    /// Default `namespace`.
    pub namespace: String,
    /// Default `service`.
    pub name: String,
    /// Default `pod`.
    pub pod: String,
}

impl Default for TemplateLabels {
    fn default() -> Self {
        Self { namespace: "namespace".to_owned(), name: "service".to_owned(), pod: "pod".to_owned() }
    }
}

/// The section, checked.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub default_backend: Option<Arc<str>>,
    pub default_template: String,
    pub backends: BTreeMap<Arc<str>, CheckedBackend>,
    pub templates: BTreeMap<String, Template>,
}

#[derive(Clone, Debug)]
pub(crate) enum CheckedBackend {
    Prometheus(CheckedPrometheus),
    Scrape(CheckedScrape),
}

#[derive(Clone, Debug)]
pub(crate) struct CheckedPrometheus {
    /// With `/api/v1/query`.
    pub url: String,
    pub headers: HeaderMap,
    pub params: BTreeMap<String, String>,
    pub bearer_token_file: Option<PathBuf>,
    pub basic: Option<Basic>,
    pub ca_file: Option<PathBuf>,
    pub timeout: Duration,
    pub max_bytes: usize,
    pub max_concurrent: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckedScrape {
    pub endpoint: Endpoint,
    pub interval: Duration,
    pub timeout: Duration,
    pub max_bytes: usize,
    pub max_series: usize,
    pub max_concurrent: usize,
    pub allow_loopback: bool,
}

impl Options {
    /// Names of the templates that policies may use.
    pub fn template_names(&self) -> Vec<String> {
        let mut names: Vec<String> = template::built_in().into_keys().chain(self.templates.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Names of the backends that policies may use.
    pub fn backend_names(&self) -> Vec<String> {
        self.backends.keys().cloned().collect()
    }

    /// What is wrong with the section, by field below `path` (`signals`).
    pub fn problems(&self, path: &str) -> Vec<Problem> {
        self.checked(path).err().unwrap_or_default()
    }

    pub(crate) fn checked(&self, path: &str) -> Result<Checked, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut templates = template::built_in();
        for (name, written) in &self.templates {
            let at = format!("{path}.templates.{name}");
            templates.extend(check_template(&at, written, &mut problems).map(|template| (name.clone(), template)));
        }
        let mut backends = BTreeMap::new();
        for (name, written) in &self.backends {
            let mut field = Field { path: format!("{path}.backends.{name}"), problems: &mut problems };
            let checked = match written {
                Backend::Prometheus(written) => check_prometheus(&mut field, written).map(CheckedBackend::Prometheus),
                Backend::Scrape(written) => check_scrape(&mut field, written).map(CheckedBackend::Scrape),
            };
            backends.extend(checked.map(|backend| (Arc::from(name.as_str()), backend)));
        }
        let default_template = self.default_template.as_deref().unwrap_or(template::DEFAULT);
        if !self.template_names().iter().any(|name| name == default_template) {
            let expected = format!("one of {}", self.template_names().join(", "));
            let found = format!("there is no template `{default_template}`");
            problems.push(Problem::expected(format!("{path}.defaultTemplate"), found, expected));
        }
        let default_backend = self.default_backend.as_deref().or_else(|| match self.backends.len() {
            1 => self.backends.keys().next().map(String::as_str),
            _ => None,
        });
        if let Some(name) = default_backend.filter(|name| !self.backends.contains_key(*name)) {
            let expected = format!("one of {}", self.backend_names().join(", "));
            problems.push(Problem::expected(
                format!("{path}.defaultBackend"),
                format!("there is no backend `{name}`"),
                expected,
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let (default_backend, default_template) = (default_backend.map(Arc::from), default_template.to_owned());
        Ok(Checked { default_backend, default_template, backends, templates })
    }
}

/// Where a check stands, and where it puts what it finds.
struct Field<'a> {
    path: String,
    problems: &'a mut Vec<Problem>,
}

impl Field<'_> {
    fn expected(&mut self, field: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) {
        self.problems.push(Problem::expected(format!("{}.{field}", self.path), found, expected));
    }

    fn duration(&mut self, field: &str, text: Option<&str>, default: Duration, longest: Duration) -> Duration {
        match text.map_or(Ok(default), time::parse_duration) {
            Ok(duration) if duration <= longest => duration,
            Ok(duration) => {
                let found = format!("`{}` is too long", time::Written(duration));
                self.expected(field, found, format!("at most `{}`", time::Written(longest)));
                default
            }
            Err(error) => {
                self.expected(field, error, time::EXPECTED);
                default
            }
        }
    }

    fn count(&mut self, field: &str, value: Option<usize>, default: usize, longest: usize) -> usize {
        match value.unwrap_or(default) {
            value if (1..=longest).contains(&value) => value,
            value => {
                self.expected(field, format!("{value} is out of range"), format!("1 to {longest}"));
                default
            }
        }
    }
}

const MEBI: usize = 1024 * 1024;

fn check_prometheus(field: &mut Field<'_>, written: &Prometheus) -> Option<CheckedPrometheus> {
    let before = field.problems.len();
    let base = written.url.trim_end_matches('/');
    match url::Url::parse(base) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
            field.expected("url", format!("`{base}` is no HTTP URL"), "http://host:port or https://host");
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            field.expected("url", "the URL holds credentials", "`basic` or `bearerTokenFile`");
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            field.expected("url", "the URL has a query or fragment", "a plain URL, with further fields in `params`");
        }
        Ok(_) => {}
        Err(error) => field.expected("url", format!("`{base}` is no URL ({error})"), "http://host:port"),
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &written.headers {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => {
                headers.insert(name, value);
            }
            _ => field.expected(&format!("headers.{name}"), "is no HTTP header", "a header name and a value of ASCII"),
        }
    }
    if written.basic.is_some() && written.bearer_token_file.is_some() {
        field.expected("basic", "stands beside `bearerTokenFile`", "one of the two");
    }
    let ten_seconds = Duration::from_secs(10);
    let checked = CheckedPrometheus {
        url: format!("{base}/api/v1/query"),
        headers,
        params: written.params.clone(),
        bearer_token_file: written.bearer_token_file.clone(),
        basic: written.basic.clone(),
        ca_file: written.ca_file.clone(),
        timeout: field.duration("timeout", written.timeout.as_deref(), Duration::from_secs(5), ten_seconds),
        max_bytes: field.count("maxBytes", written.max_bytes, 32 * MEBI, 256 * MEBI),
        max_concurrent: field.count("maxConcurrent", written.max_concurrent, 4, 10),
    };
    (field.problems.len() == before).then_some(checked)
}

fn check_scrape(field: &mut Field<'_>, written: &Scrape) -> Option<CheckedScrape> {
    let before = field.problems.len();
    let hour = Duration::from_hours(1);
    let interval = field.duration("interval", written.interval.as_deref(), Duration::from_secs(5), hour);
    let default_timeout = interval.min(Duration::from_secs(3));
    let checked = CheckedScrape {
        endpoint: Endpoint {
            port: check_port(field, written.port).unwrap_or(8_080),
            path: check_path(field, written.path.as_deref()),
        },
        interval,
        timeout: field.duration("timeout", written.timeout.as_deref(), default_timeout, interval),
        max_bytes: field.count("maxBytes", written.max_bytes, 16 * MEBI, 256 * MEBI),
        max_series: field.count("maxSeries", written.max_series, 10_000, 1_000_000),
        max_concurrent: field.count("maxConcurrent", written.max_concurrent, 16, 256),
        allow_loopback: written.allow_loopback,
    };
    (field.problems.len() == before).then_some(checked)
}

fn check_port(field: &mut Field<'_>, port: Option<u16>) -> Option<u16> {
    if port == Some(0) {
        field.expected("port", "0 is no port", "1 to 65535");
    }
    port
}

fn check_path(field: &mut Field<'_>, path: Option<&str>) -> String {
    let path = path.unwrap_or("/metrics");
    let plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !path.starts_with('/') || !plain {
        field.expected("path", format!("`{path}` is no URL path"), "a path such as `/metrics`");
    }
    path.to_owned()
}

fn check_template(path: &str, written: &CustomTemplate, problems: &mut Vec<Problem>) -> Option<Template> {
    let mut field = Field { path: path.to_owned(), problems };
    let before = field.problems.len();
    let is_name = |text: &str, further: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || further.contains(c);
        text.chars().all(plain) && text.starts_with(|c: char| !c.is_ascii_digit())
    };
    if !is_name(&written.metric, ":") || written.metric.is_empty() {
        field.expected("metric", format!("`{}` is no metric name", written.metric), "letters, digits, `_` and `:`");
    } else if written.metric.ends_with("_bucket") {
        field.expected("metric", "ends in `_bucket`", "the histogram's name without it");
    }
    let unit = match &written.unit {
        Some(symbol) => Unit::parse(symbol),
        None => Unit::of_metric(&written.metric),
    };
    if unit.is_none() {
        let found = written.unit.as_ref().map_or_else(
            || format!("`{}` does not tell its unit", written.metric),
            |symbol| format!("there is no unit `{symbol}`"),
        );
        field.expected("unit", found, EXPECTED_UNITS);
    }
    let labels = &written.labels;
    let named = [("labels.namespace", &labels.namespace), ("labels.name", &labels.name), ("labels.pod", &labels.pod)];
    for (at, label) in named.into_iter().chain(written.matchers.keys().map(|label| ("matchers", label))) {
        if !is_name(label, "") || label.is_empty() || label == "le" {
            field.expected(at, format!("`{label}` is no label of a workload"), "letters, digits and `_`, and not `le`");
        }
    }
    let path = check_path(&mut field, written.path.as_deref());
    let endpoint = check_port(&mut field, written.port).map(|port| Endpoint { port, path });
    if field.problems.len() > before {
        return None;
    }
    Some(Template {
        metric: written.metric.clone(),
        unit: unit?,
        matchers: written.matchers.clone(),
        namespace_label: labels.namespace.clone(),
        name_label: labels.name.clone(),
        named: written.named.unwrap_or(Named::Target),
        pod_label: labels.pod.clone(),
        endpoint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(yaml: &str) -> Options {
        serde_saphyr::from_str(yaml).unwrap()
    }

    fn paths(yaml: &str) -> Vec<String> {
        options(yaml).problems("signals").into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_whole_section_is_accepted() {
        let checked = options(
            "
defaultTemplate: orders
backends:
  main:
    kind: prometheus
    url: https://prometheus.monitoring:9090/prefix/
    headers: {X-Scope-OrgID: trading}
    params: {partial_response: 'false'}
    bearerTokenFile: /var/run/token
    caFile: /etc/ca.pem
    timeout: 2s
templates:
  orders:
    metric: order_latency
    unit: ms
    matchers: {direction: in}
    labels: {namespace: ns, name: app}
    named: workload
    port: 9102
",
        )
        .checked("signals")
        .unwrap();
        assert_eq!(checked.default_backend.as_deref(), Some("main"));
        let CheckedBackend::Prometheus(main) = &checked.backends["main"] else { panic!() };
        assert_eq!(main.url, "https://prometheus.monitoring:9090/prefix/api/v1/query");
        assert_eq!(main.timeout, Duration::from_secs(2));
        let orders = &checked.templates["orders"];
        assert_eq!((orders.unit, orders.pod_label.as_str()), (Unit::MILLISECONDS, "pod"));
        assert!(checked.templates.contains_key("plain"));
    }

    #[test]
    fn each_problem_names_its_field() {
        let backend = |lines: &str| format!("backends: {{b: {{kind: prometheus, {lines}}}}}");
        for (yaml, path) in [
            (backend("url: 'prometheus:9090'"), "signals.backends.b.url"),
            (backend("url: ''"), "signals.backends.b.url"),
            (backend("url: 'http://u:p@host'"), "signals.backends.b.url"),
            (backend("url: 'http://host?x=1'"), "signals.backends.b.url"),
            (backend("url: 'http://host', timeout: 11s"), "signals.backends.b.timeout"),
            (backend("url: 'http://host', timeout: 1min"), "signals.backends.b.timeout"),
            (backend("url: 'http://host', maxConcurrent: 0"), "signals.backends.b.maxConcurrent"),
            (backend("url: 'http://host', headers: {'a b': c}"), "signals.backends.b.headers.a b"),
            (
                backend("url: 'http://host', bearerTokenFile: a, basic: {username: u, passwordFile: p}"),
                "signals.backends.b.basic",
            ),
            ("backends: {b: {kind: scrape, path: metrics}}".into(), "signals.backends.b.path"),
            ("backends: {b: {kind: scrape, port: 0}}".into(), "signals.backends.b.port"),
            ("backends: {b: {kind: scrape, timeout: 6s}}".into(), "signals.backends.b.timeout"),
            ("defaultTemplate: nope".into(), "signals.defaultTemplate"),
            ("defaultBackend: nope".into(), "signals.defaultBackend"),
            ("templates: {t: {metric: latency}}".into(), "signals.templates.t.unit"),
            ("templates: {t: {metric: latency, unit: parsec}}".into(), "signals.templates.t.unit"),
            ("templates: {t: {metric: 'a b', unit: s}}".into(), "signals.templates.t.metric"),
            ("templates: {t: {metric: a_seconds_bucket}}".into(), "signals.templates.t.metric"),
            ("templates: {t: {metric: a_seconds, labels: {pod: le}}}".into(), "signals.templates.t.labels.pod"),
        ] {
            assert_eq!(paths(&yaml), [path], "{yaml}");
        }
    }

    #[test]
    fn unknown_fields_and_kinds_are_refused() {
        for yaml in [
            "backend: {}",
            "backends: {b: {kind: prometheus, url: 'http://h', tokenFile: x}}",
            "backends: {b: {kind: graphite}}",
            "backends: {b: {url: 'http://h'}}",
            "templates: {t: {metric: a, label: {}}}",
        ] {
            assert!(serde_saphyr::from_str::<Options>(yaml).is_err(), "{yaml}");
        }
    }
}
