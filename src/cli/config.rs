//! The configuration file of `run`, `eval` and `install print`: as written ([`File`]) and as checked ([`Config`]).
//!
//! YAML; an unknown field is an error, and every problem names its field. deploy/config.yaml shows every field.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use url::Url;

use crate::controller::GitCredentials;
use crate::decide::{Budgets, Surroundings};
use crate::model::policy::IsolationLimits;
use crate::model::problem::Problem;
use crate::model::quantity::Percent;
use crate::model::time;
use crate::signals;
use crate::telemetry::metrics;

/// The file as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    cluster_name: Option<String>,
    namespace: Option<String>,
    targets: Vec<TargetFile>,
    modes: Vec<String>,
    signals: signals::Options,
    sinks: BTreeMap<String, SinkFile>,
    budgets: BudgetsFile,
    lease: LeaseFile,
    listen: Option<Vec<String>>,
    state_dir: Option<PathBuf>,
    metrics: MetricsFile,
    git_credentials: BTreeMap<String, GitCredentialsFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GitCredentialsFile {
    username: String,
    password_file: PathBuf,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TargetFile {
    api_version: String,
    kind: String,
    plural: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SinkFile {
    url: String,
    timeout: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    bearer_token_file: Option<PathBuf>,
    #[serde(default)]
    all_events: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct BudgetsFile {
    effects_per_minute: Option<u32>,
    lab_share_percent: Option<u8>,
    max_isolated_percent: Option<u8>,
    min_healthy: Option<usize>,
    namespace_isolated_percent: Option<u8>,
    cluster_isolated_percent: Option<u8>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct LeaseFile {
    name: Option<String>,
    duration: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct MetricsFile {
    policy_label: Option<bool>,
    max_policy_series: Option<usize>,
}

/// The configuration, every field checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// `clusterName`: stands in the source of events.
    pub cluster_name: String,
    /// `namespace`: the engine's own; its Lease and the freeze lie there.
    pub namespace: String,
    /// `targets`: the kinds that policies may govern.
    pub targets: Vec<TargetKind>,
    /// `modes` that services know beside `normal` and `cache-only`.
    pub modes: BTreeSet<String>,
    /// `signals`: backends and templates.
    pub signals: signals::Options,
    /// `sinks` for events.
    pub sinks: BTreeMap<String, Sink>,
    /// `budgets` over all policies; the freeze is not a matter of configuration.
    pub budgets: Budgets,
    /// `lease.name`.
    pub lease_name: String,
    /// `lease.duration`: how long an instance that stopped renewing keeps the lease.
    pub lease_duration: Duration,
    /// `listen`: addresses of the HTTP surface.
    pub listen: Vec<SocketAddr>,
    /// `stateDir`: events wait there.
    pub state_dir: PathBuf,
    /// `metrics`.
    pub metrics: metrics::Options,
    /// `gitCredentials`: who asks for repositories, by the name that PolicySources give.
    pub git_credentials: BTreeMap<String, GitCredentials>,
}

/// A kind that policies may govern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetKind {
    /// `trade.io/v1`.
    pub api_version: String,
    /// `OrderService`.
    pub kind: String,
    /// `orderservices`, for the ClusterRole.
    pub plural: String,
}

impl TargetKind {
    /// The API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Where CloudEvents are posted.
    pub url: Url,
    /// How long one delivery may take.
    pub timeout: Duration,
    /// Sent along.
    pub headers: BTreeMap<String, String>,
    /// A file with a bearer token, read anew each time.
    pub bearer_token_file: Option<PathBuf>,
    /// Whether it gets every event, or only those of policies that name it in `notify`.
    pub all_events: bool,
}

/// The port on which everything is served to the host itself.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:9650";

impl Config {
    /// Reads and checks a file. A problem's path is the file's name for what is no YAML, else the field.
    pub fn load(path: &Path) -> Result<Self, Vec<Problem>> {
        let name = path.display().to_string();
        let bytes =
            std::fs::read(path).map_err(|error| vec![Problem::at(&name, format!("cannot be read: {error}"))])?;
        let text =
            String::from_utf8(bytes).map_err(|_| vec![Problem::expected(&name, "is not UTF-8", "YAML in UTF-8")])?;
        Self::parse(&name, &text)
    }

    /// Checks the text of a file called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column()));
            let message = error.without_snippet().to_string();
            let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
            vec![Problem::at(format!("{name}{}", place.unwrap_or_default()), message)]
        })?;
        check(file).map_err(|problems| {
            let in_file = |problem: Problem| Problem::at(format!("{name}: {}", problem.path), problem.message);
            problems.into_iter().map(in_file).collect()
        })
    }
}

impl Config {
    /// What validation needs to know of it.
    pub fn surroundings(&self) -> Surroundings {
        let kind = |target: &TargetKind| (target.api_version.clone(), target.kind.clone());
        Surroundings {
            modes: self.modes.clone(),
            sinks: self.sinks.keys().cloned().collect(),
            backends: self.signals.backend_names().into_iter().collect(),
            templates: self.signals.template_names().into_iter().collect(),
            target_kinds: self.targets.iter().map(kind).collect(),
        }
    }
}

impl Default for Config {
    /// What an empty file means: no targets, no sinks.
    fn default() -> Self {
        check(File::default()).expect("an empty file has no field that could be wrong")
    }
}

/// Where findings go while a file is read.
#[derive(Default)]
struct Findings(Vec<Problem>);

impl Findings {
    fn expected(&mut self, path: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) {
        self.0.push(Problem::expected(path, found, expected));
    }

    fn duration(&mut self, path: &str, written: Option<&str>, default: Duration) -> Duration {
        match written.map_or(Ok(default), time::parse_duration) {
            Ok(duration) => duration,
            Err(error) => {
                self.expected(path, error, time::EXPECTED);
                default
            }
        }
    }

    fn percent(&mut self, path: &str, written: Option<u8>, default: Percent) -> Percent {
        let Some(written) = written else { return default };
        Percent::new(written).unwrap_or_else(|| {
            self.expected(path, format!("{written} is too much"), "0 to 100");
            default
        })
    }

    fn label(&mut self, path: &str, text: &str) {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if text.is_empty()
            || text.len() > 63
            || !text.chars().all(plain)
            || text.starts_with('-')
            || text.ends_with('-')
        {
            let expected = "lower case letters, digits and `-`, at most 63";
            self.expected(path, format!("`{text}` is no name"), expected);
        }
    }
}

fn check(file: File) -> Result<Config, Vec<Problem>> {
    let mut findings = Findings::default();
    let config = Config {
        cluster_name: file.cluster_name.unwrap_or_else(|| "cluster".to_owned()),
        namespace: file.namespace.unwrap_or_else(|| "tradeguard-system".to_owned()),
        targets: check_targets(file.targets, &mut findings),
        modes: file.modes.iter().cloned().collect(),
        signals: file.signals,
        sinks: check_sinks(file.sinks, &mut findings),
        budgets: check_budgets(&file.budgets, &mut findings),
        lease_name: file.lease.name.unwrap_or_else(|| "tradeguard-actor".to_owned()),
        lease_duration: findings.duration("lease.duration", file.lease.duration.as_deref(), Duration::from_secs(15)),
        listen: check_listen(file.listen, &mut findings),
        state_dir: file.state_dir.unwrap_or_else(|| PathBuf::from("/var/lib/tradeguard")),
        git_credentials: file
            .git_credentials
            .into_iter()
            .map(|(name, one)| (name, GitCredentials { username: one.username, password_file: one.password_file }))
            .collect(),
        metrics: metrics::Options {
            policy_label: file.metrics.policy_label.unwrap_or(true),
            max_policy_series: file.metrics.max_policy_series.unwrap_or(metrics::Options::default().max_policy_series),
        },
    };
    if config.cluster_name.trim().is_empty() || config.cluster_name.contains(['/', ' ']) {
        findings.expected("clusterName", format!("`{}` is no name", config.cluster_name), "a name without `/`");
    }
    findings.label("namespace", &config.namespace);
    findings.label("lease.name", &config.lease_name);
    for (index, mode) in file.modes.iter().enumerate() {
        findings.label(&format!("modes[{index}]"), mode);
    }
    findings.0.extend(config.signals.problems("signals"));
    let shortest = Duration::from_secs(3);
    if config.lease_duration < shortest {
        // Renewals are a fifth of it apart; below that a busy API server alone would cost the lease.
        findings.expected(
            "lease.duration",
            format!("`{}` is too short", time::Written(config.lease_duration)),
            "at least `3s`",
        );
    }
    if findings.0.is_empty() { Ok(config) } else { Err(findings.0) }
}

fn check_targets(written: Vec<TargetFile>, findings: &mut Findings) -> Vec<TargetKind> {
    let mut seen = BTreeSet::new();
    let mut targets = Vec::new();
    for (index, TargetFile { api_version, kind, plural }) in written.into_iter().enumerate() {
        let path = format!("targets[{index}]");
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '.' || c == '-';
        if version.is_empty() || !version.starts_with('v') || group.contains('/') || !group.chars().all(plain) {
            let found = format!("`{api_version}` is no apiVersion");
            findings.expected(&format!("{path}.apiVersion"), found, "`group/version`, or `v1` for the core group");
        }
        if !kind.starts_with(|c: char| c.is_ascii_uppercase()) || !kind.chars().all(|c| c.is_ascii_alphanumeric()) {
            findings.expected(&format!("{path}.kind"), format!("`{kind}` is no kind"), "a CamelCase kind, no wildcard");
            continue;
        }
        let plural =
            plural.unwrap_or_else(|| ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind)).plural);
        if plural.is_empty() || !plural.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-') {
            let found = format!("`{plural}` is no plural");
            findings.expected(&format!("{path}.plural"), found, "lower case letters, as in `kubectl api-resources`");
        }
        if !seen.insert((api_version.clone(), kind.clone())) {
            findings.expected(&path, format!("{api_version} {kind} stands here twice"), "each kind once");
        }
        targets.push(TargetKind { api_version, kind, plural });
    }
    targets
}

fn check_sinks(written: BTreeMap<String, SinkFile>, findings: &mut Findings) -> BTreeMap<String, Sink> {
    let mut sinks = BTreeMap::new();
    for (name, sink) in written {
        let path = format!("sinks.{name}");
        findings.label(&path, &name);
        let timeout = findings.duration(&format!("{path}.timeout"), sink.timeout.as_deref(), Duration::from_secs(5));
        for header in sink.headers.iter().filter(|(name, value)| {
            http::HeaderName::try_from(name.as_str()).is_err() || http::HeaderValue::try_from(value.as_str()).is_err()
        }) {
            findings.expected(
                &format!("{path}.headers.{}", header.0),
                "is no HTTP header",
                "a name and a value of ASCII",
            );
        }
        match Url::parse(&sink.url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                let SinkFile { headers, bearer_token_file, all_events, .. } = sink;
                sinks.insert(name, Sink { url, timeout, headers, bearer_token_file, all_events });
            }
            _ => findings.expected(
                &format!("{path}.url"),
                format!("`{}` is no HTTP URL", sink.url),
                "http:// or https://",
            ),
        }
    }
    sinks
}

fn check_budgets(written: &BudgetsFile, findings: &mut Findings) -> Budgets {
    let default = Budgets::default();
    Budgets {
        effects_per_minute: written.effects_per_minute.unwrap_or(default.effects_per_minute),
        lab_share: findings.percent("budgets.labSharePercent", written.lab_share_percent, default.lab_share),
        workload: IsolationLimits {
            max_percent: findings.percent(
                "budgets.maxIsolatedPercent",
                written.max_isolated_percent,
                default.workload.max_percent,
            ),
            min_healthy: written.min_healthy.unwrap_or(default.workload.min_healthy),
        },
        namespace_percent: findings.percent(
            "budgets.namespaceIsolatedPercent",
            written.namespace_isolated_percent,
            default.namespace_percent,
        ),
        cluster_percent: findings.percent(
            "budgets.clusterIsolatedPercent",
            written.cluster_isolated_percent,
            default.cluster_percent,
        ),
        freeze: default.freeze,
    }
}

fn check_listen(written: Option<Vec<String>>, findings: &mut Findings) -> Vec<SocketAddr> {
    let written = written.unwrap_or_else(|| vec![DEFAULT_LISTEN.to_owned()]);
    let mut addresses = Vec::new();
    for (index, text) in written.iter().enumerate() {
        if let Ok(address) = text.parse() {
            addresses.push(address);
        } else {
            let expected = "an IP address with a port, such as `127.0.0.1:9650`";
            findings.expected(&format!("listen[{index}]"), format!("`{text}` is no address"), expected);
        }
    }
    addresses
}

#[cfg(test)]
mod tests;
