//! `tradeguard lint`: everything that is wrong with files, before a cluster sees them.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::config::Config;
use super::{Error, Exit, Output, Result, Streams, policy_file};
use crate::api::documents::{self, Positions};
use crate::api::marks::SOURCE_LABEL;
use crate::api::{AnyPolicy, GROUP, admission};
use crate::bundle::{self, Accepted, Trust};
use crate::clock::Clock;
use crate::decide::Surroundings;
use crate::model::policy::PolicyKind;
use crate::model::problem::Problem;
use crate::model::tenant::Tenant;
use crate::rego::{self, Module, gate};
use crate::sources::config_map;
use crate::sources::snapshot::{self, Scope};

/// Check files as the engine and the API server would: policies, Tenants, PolicySources, ConfigMaps with policies, Rego,
/// bundles, and the engine's configuration.
///
/// A directory is walked; files of other kinds are passed over. Findings read `file:line:column: what; expected what`.
/// Exit code: 0 nothing is wrong, 1 something is, 2 a path cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tradeguard lint deploy/
  tradeguard lint policy.yaml limits.yaml --config config.yaml
  tradeguard lint bundles/ --output json")]
pub(super) struct Args {
    /// Files and directories.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The engine's configuration, for the modes, sinks, backends, templates and target kinds that policies name; default:
    /// an empty one, under which every target kind may be governed.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the findings are printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// What was looked at and what is wrong with it.
#[derive(Default)]
struct Report {
    checked: usize,
    findings: Vec<Problem>,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)?;
    let lint = Lint { surroundings: config.surroundings(), now: Clock::system().now() };
    let mut report = Report::default();
    for path in &args.paths {
        for file in files_below(path)? {
            lint.file(&file, &mut report)?;
        }
    }
    match args.output {
        Output::Json => {
            let finding = |problem: &Problem| json!({"at": problem.path, "message": problem.message});
            let findings: Vec<Value> = report.findings.iter().map(finding).collect();
            writeln!(streams.out, "{:#}", json!({ "checked": report.checked, "findings": findings }))?;
        }
        Output::Text => {
            for finding in &report.findings {
                writeln!(streams.out, "{finding}")?;
            }
            let (checked, found) = (report.checked, report.findings.len());
            writeln!(streams.err, "{checked} files checked, {found} findings")?;
        }
    }
    Ok(if report.findings.is_empty() { Exit::Ok } else { Exit::No })
}

/// The files below a path, in order; hidden ones are left out.
fn files_below(path: &Path) -> Result<Vec<PathBuf>> {
    let unread = |at: &Path, error: std::io::Error| {
        Error::from(Problem::at(at.display().to_string(), format!("cannot be read: {error}")))
    };
    if !path.is_dir() {
        fs::metadata(path).map_err(|error| unread(path, error))?;
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let mut entries: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unread(path, error))? {
        entries.push(entry.map_err(|error| unread(path, error))?.path());
    }
    entries.sort();
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    for entry in entries.into_iter().filter(|entry| !is_hidden(entry) && !entry.is_symlink()) {
        if entry.is_dir() {
            files.extend(files_below(&entry)?);
        } else {
            files.push(entry);
        }
    }
    Ok(files)
}

struct Lint {
    surroundings: Surroundings,
    now: DateTime<Utc>,
}

impl Lint {
    fn file(&self, path: &Path, report: &mut Report) -> Result<()> {
        let name = path.display().to_string();
        let found = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rego") => rego(&name, &policy_file::bytes(path)?),
            Some("gz" | "tgz") => {
                let bytes = fs::read(path)
                    .map_err(|error| Error::from(Problem::at(&name, format!("cannot be read: {error}"))))?;
                self.bundle(&name, &bytes)
            }
            Some("yaml" | "yml" | "json") => match self.documents(&name, &policy_file::bytes(path)?) {
                Some(found) => found,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        report.checked += 1;
        report.findings.extend(found);
        Ok(())
    }

    /// None for a file in which nothing is ours.
    fn documents(&self, name: &str, bytes: &[u8]) -> Option<Vec<Problem>> {
        let documents = match documents::parse_documents(name, bytes) {
            Ok(documents) => documents,
            Err(problem) => return Some(vec![problem]),
        };
        let text = String::from_utf8_lossy(bytes);
        let positions = Positions::of(&text);
        let mut found = Vec::new();
        let mut is_ours = false;
        for (number, document) in documents.into_iter().enumerate() {
            let problems = match kind_of(&document) {
                Kind::Ours => self.object(document),
                Kind::PolicyMap(namespace) => self.policy_map(name, &document, &namespace),
                Kind::Config => Config::parse(name, &text).err().unwrap_or_default(),
                Kind::Foreign => continue,
            };
            is_ours = true;
            found.extend(problems.into_iter().map(|problem| placed(name, &positions, number, problem)));
        }
        is_ours.then_some(found)
    }

    fn object(&self, mut document: Value) -> Vec<Problem> {
        let kind = document["kind"].as_str().unwrap_or_default();
        if PolicyKind::parse(kind).is_none() {
            return admission::admit(&mut document).err().unwrap_or_default();
        }
        match policy_file::admitted(document) {
            Ok(policy) => self.policy(&policy),
            Err(problems) => problems,
        }
    }

    fn policy(&self, policy: &AnyPolicy) -> Vec<Problem> {
        let prepared = policy_file::prepared(policy, Tenant::built_in(), self.surroundings.clone(), self.now);
        prepared.err().unwrap_or_default()
    }

    /// What a source would say of this ConfigMap; the places are those in its own files.
    fn policy_map(&self, name: &str, document: &Value, namespace: &str) -> Vec<Problem> {
        let object: ConfigMap = match serde_json::from_value(document.clone()) {
            Ok(object) => object,
            Err(error) => return vec![Problem::at("", format!("is no ConfigMap: {error}"))],
        };
        let texts = config_map::texts(&object, self.now);
        let inside = |problem: Problem| Problem::at(format!("{name}: data: {}", problem.path), problem.message);
        match snapshot::read(&texts, &Scope::Own(namespace.to_owned())) {
            Err(problems) => problems.into_iter().map(inside).collect(),
            Ok(snapshot) => {
                let texts = &texts;
                let policies = snapshot.policies.values();
                let problems = policies
                    .flat_map(|text| snapshot::in_file(texts, &text.file, text.document, &self.policy(&text.object)));
                problems.map(inside).collect()
            }
        }
    }

    /// Everything about a bundle but who signed it, which `bundle verify` says.
    fn bundle(&self, name: &str, bytes: &[u8]) -> Vec<Problem> {
        let trust = Trust::default();
        let limits = bundle::Limits::default();
        match bundle::open(bytes, &trust, &limits, &Accepted::default(), self.now) {
            Ok(opened) => {
                let modules: Vec<Module> =
                    opened.modules().map(|(path, text)| Module::new(format!("{name}: {path}"), text)).collect();
                gate::check_all(&modules, &rego::Limits::default())
                    .err()
                    .map(|error| located(&error))
                    .into_iter()
                    .collect()
            }
            // A signature that nobody here has a key for is no fault of the file.
            Err(refusal) if refusal.is_distrust() => Vec::new(),
            Err(refusal) => vec![Problem::at(name, refusal.to_string())],
        }
    }
}

enum Kind {
    /// An object of our API group.
    Ours,
    /// A ConfigMap with policies, and the namespace that it lies in.
    PolicyMap(String),
    /// The engine's configuration.
    Config,
    /// Somebody else's.
    Foreign,
}

fn kind_of(document: &Value) -> Kind {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        (version, _) if version.split('/').next() == Some(GROUP) => Kind::Ours,
        ("v1", "ConfigMap") if document["metadata"]["labels"][SOURCE_LABEL].is_string() => {
            Kind::PolicyMap(document["metadata"]["namespace"].as_str().unwrap_or("default").to_owned())
        }
        ("", "") if document["targets"].is_array() && !document["signals"].is_null() => Kind::Config,
        _ => Kind::Foreign,
    }
}

/// A finding about a field, at its place in the file; one that names a file already stays as it is.
fn placed(name: &str, positions: &Positions, document: usize, problem: Problem) -> Problem {
    if problem.path.starts_with(name) {
        return problem;
    }
    let place = positions.at(document, &problem.path).map(|place| format!(":{}:{}", place.line, place.column));
    Problem::at(format!("{name}{}", place.unwrap_or_default()), problem.to_string())
}

fn rego(name: &str, bytes: &[u8]) -> Vec<Problem> {
    let Ok(text) = str::from_utf8(bytes) else {
        return vec![Problem::expected(name, "is not UTF-8", "Rego in UTF-8")];
    };
    // Tests use what only `opa test` has.
    if name.ends_with("_test.rego") {
        return Vec::new();
    }
    let checked = gate::check_all(&[Module::new(name, text)], &rego::Limits::default());
    checked.err().map(|error| located(&error)).into_iter().collect()
}

/// The gate's errors begin with `file:line:column: `.
fn located(error: &rego::Error) -> Problem {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((at, message)) => Problem::at(at, message),
        None => Problem::at("", text),
    }
}

#[cfg(test)]
mod tests;
