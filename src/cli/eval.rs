//! `tradeguard eval`: one verdict on readings from a file, by the chain that the controller runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::config::Config;
use super::policy_file;
use super::readings::{ReadingsFile, readings_of};
use super::{Exit, Output, Result, Streams};
use crate::api::documents;
use crate::clock::Clock;
use crate::decide::{self, Decision, Entry, Plan, Situation};
use crate::model::effect::Records;
use crate::model::facts;
use crate::model::phase::State;
use crate::model::problem::Problem;
use crate::model::reading::{Observation, Readings};
use crate::model::reason::Reason;
use crate::model::tenant::Tenant;
use crate::model::verdict::{Outcome, Verdict};
use crate::rego::Document;

/// Give one verdict on readings from a file, with its reasons
///
/// The policy meets the same checks as in a cluster and the same rule judges. The readings file:
///
///     readings:
///       p99: {value: 1.2, unit: s, ageSeconds: 3, series: 1, requests: 600}
///       p50: {reason: NoData}
///     pods:
///       core-trading-7d9f-abcde:
///         p99: {value: 4100, unit: ms}
///
/// Units convert (1200 ms is 1.2 s). A signal of the policy that the file leaves out counts as not measured.
/// Exit code: 0 ok, 1 breached or unknown, 2 the policy or a file is wrong.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// The policy, as one YAML document.
    #[arg(short = 'f', long = "policy", value_name = "FILE")]
    policy: PathBuf,
    /// What was measured.
    #[arg(long, value_name = "FILE")]
    readings: PathBuf,
    /// The target, which rules see as `input.target`; default: an object without fields.
    #[arg(long, value_name = "FILE")]
    target: Option<PathBuf>,
    /// The Tenant that the policy belongs to; default: the built-in one (lab).
    #[arg(long, value_name = "FILE")]
    tenant: Option<PathBuf>,
    /// The engine's configuration, for modes, sinks, backends, templates and target kinds that the policy names;
    /// default: an empty one, under which every target kind may be governed.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the verdict is printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// The readings file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    readings: ReadingsFile,
    #[serde(default)]
    pods: BTreeMap<String, ReadingsFile>,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let now = Clock::system().now();
    let config = args.config.as_deref().map_or_else(|| Ok(Config::default()), Config::load)?;
    let tenant = args.tenant.as_deref().map_or_else(|| Ok(Tenant::built_in()), policy_file::tenant)?;
    let policy = policy_file::admitted(policy_file::document(&args.policy)?)?;
    let entry = policy_file::prepared(&policy, tenant, config.surroundings(), now)?;
    let observation = observation(&args.readings, &entry, now)?;
    let target = match &args.target {
        Some(path) => Document::from_json(&policy_file::document(path)?),
        None => Document::empty(),
    };
    let facts = unknown_target();
    let decision = decide::decide(&entry, &observation, &target, &facts, &Records::new(), &State::new(now), now);
    let verdict = &decision.judgement.verdict;
    match args.output {
        Output::Json => writeln!(streams.out, "{:#}", json_of(verdict))?,
        Output::Text => write!(streams.out, "{}", text_of(&entry, &observation, &facts, &decision, now))?,
    }
    Ok(if verdict.outcome == Outcome::Ok { Exit::Ok } else { Exit::No })
}

/// A target of which nothing is known but that it exists: a verdict needs no more.
fn unknown_target() -> facts::Target {
    facts::Target {
        uid: Some(String::new()),
        mode: None,
        workload: Err(Reason::NoWorkload),
        route: Err(Reason::NoRoute),
        action_routes: BTreeMap::new(),
    }
}

fn observation(path: &std::path::Path, entry: &Entry, now: DateTime<Utc>) -> Result<Observation, Vec<Problem>> {
    let file_name = path.display().to_string();
    let document = policy_file::document(path).map_err(|problem| vec![problem])?;
    let file: File = documents::read(&file_name, document).map_err(|problem| vec![problem])?;
    let mut problems = Vec::new();
    let mut read = |at: &str, written: &ReadingsFile| {
        for signal in written.keys().filter(|signal| !entry.policy.signals.contains_key(*signal)) {
            let declared = entry.policy.signals.keys().cloned().collect::<Vec<_>>().join(", ");
            let found = "the policy has no such signal";
            problems.push(Problem::expected(format!("{file_name}: {at}.{signal}"), found, declared));
        }
        readings_of(&format!("{file_name}: {at}"), written).unwrap_or_else(|found| {
            problems.extend(found);
            Readings::new()
        })
    };
    let readings = read("readings", &file.readings);
    let pods = file.pods.iter().map(|(pod, written)| (pod.clone(), read(&format!("pods.{pod}"), written))).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let blank = Observation::blank(now, [], crate::model::reading::NoReading::NotMeasured);
    Ok(Observation { readings, pods, ..blank })
}

fn json_of(verdict: &Verdict) -> Value {
    let mut fields = Map::new();
    fields.insert("verdict".to_owned(), json!(verdict.outcome.as_str()));
    fields.insert("severity".to_owned(), json!(verdict.severity));
    fields.insert("reasons".to_owned(), json!(verdict.reasons));
    if let Outcome::Unknown(reason) = verdict.outcome {
        fields.insert("reason".to_owned(), json!(reason.as_str()));
    }
    if !verdict.suspects.is_empty() {
        fields.insert("suspects".to_owned(), json!(verdict.suspects));
    }
    if let Some(actions) = &verdict.actions {
        fields.insert("actions".to_owned(), actions.clone());
    }
    Value::Object(fields)
}

fn text_of(
    entry: &Entry,
    observation: &Observation,
    facts: &facts::Target,
    decision: &Decision,
    now: DateTime<Utc>,
) -> String {
    let plan = Plan::default();
    let explanation = decide::explain(&Situation { entry, observation, facts, decision, plan: &plan, now });
    let verdict = &decision.judgement.verdict;
    let mut lines = vec![match verdict.outcome {
        Outcome::Ok => "ok".to_owned(),
        Outcome::Breached => format!("breached ({})", format!("{:?}", verdict.severity).to_lowercase()),
        Outcome::Unknown(reason) => format!("unknown ({reason}): {}", reason.meaning().trim()),
    }];
    for signal in &explanation.signals {
        let value = signal.value.clone().or_else(|| signal.reason.clone()).unwrap_or_default();
        let threshold = signal.threshold.as_ref().map_or_else(String::new, |written| format!(", threshold {written}"));
        lines.push(format!("  {} {value}{threshold}", signal.name));
    }
    for fired in &explanation.fired {
        lines.push(format!("  {}: {}", fired.code, fired.words));
        lines.extend(fired.line.iter().map(|line| format!("      {line}")));
    }
    if !verdict.suspects.is_empty() {
        lines.push(format!("  suspects: {}", verdict.suspects.join(", ")));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests;
