//! `tradeguard source`: what came from where, and going back to what was good.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use clap::Subcommand;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Error, Exit, Output, Result, Streams, cluster};
use crate::api::policy_source::{Accept, PartStatus, Pin, PolicySource, Rejected};
use crate::clock::Clock;
use crate::model::problem::Problem;
use crate::model::reason::Reason;
use crate::model::time;

/// See where policies come from, and go back to an earlier revision.
///
/// Examples:
///
///   tradeguard source list
///   tradeguard source history lab
///   tradeguard source rollback lab --part research/limits --reason "the new limits fire on every deploy"
///   tradeguard source rollback lab --part research/limits --unpin
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// The cluster; default: as kubectl finds it.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// How the answer is printed.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every source: what is in force, what is not and why.
    ///
    /// Exit code: 0 all policies are in force as written, 1 some are not, 3 the API server could not be reached.
    List,
    /// The parts of a source and the revisions that each can go back to.
    History {
        /// Name of the PolicySource.
        name: String,
    },
    /// Hold an earlier revision of one part of a source until somebody lets go of it.
    ///
    /// The newest text stays where it is and is not used; the PolicySource shows the pin.
    Rollback {
        /// Name of the PolicySource.
        name: String,
        /// The part, `namespace/name` of a ConfigMap; default: the only one, or the only one that was refused.
        #[arg(long, value_name = "NAMESPACE/NAME")]
        part: Option<String>,
        /// The revision; default: the one in force if a newer text was refused, else the one before it.
        #[arg(long, value_name = "REVISION", conflicts_with = "unpin")]
        to: Option<String>,
        /// Why; it stands in the PolicySource for whoever comes later.
        #[arg(long, value_name = "TEXT", default_value = "rolled back by hand", conflicts_with = "unpin")]
        reason: String,
        /// For how long, such as `2h`; default: until --unpin.
        #[arg(long = "for", value_name = "DURATION", conflicts_with = "unpin")]
        lasts: Option<String>,
        /// Let go: the newest text comes into force again.
        #[arg(long)]
        unpin: bool,
    },
    /// Take a revision that waits for a person: one that does not descend from the commit in force, or that removes more than
    /// half of the source's policies.
    Accept {
        /// Name of the PolicySource.
        name: String,
        /// The revision; default: the one that waits.
        revision: Option<String>,
        /// Why; it stands in the PolicySource for whoever comes later.
        #[arg(long, value_name = "TEXT", default_value = "accepted by hand")]
        reason: String,
    },
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let kubeconfig = args.kubeconfig.as_deref();
    match &args.command {
        Command::List => list(kubeconfig, args.output, streams),
        Command::History { name } => history(kubeconfig, name, args.output, streams),
        Command::Rollback { name, part, to, reason, lasts, unpin } => {
            let now = Clock::system().now();
            let until = lasts.as_deref().map(|text| end_of(text, now)).transpose()?;
            let source = read(kubeconfig, name)?;
            let part = part_of(&source, part.as_deref())?;
            let pin = if *unpin {
                None
            } else {
                let revision = revision_of(&part, to.as_deref())?;
                Some(Pin { part: part.part.clone(), revision, reason: reason.clone(), until })
            };
            let others = source.spec.pins.iter().filter(|other| other.part != part.part).cloned();
            let pins: Vec<Pin> = others.chain(pin.clone()).collect();
            write(kubeconfig, &source, &json!({ "pins": pins }))?;
            tell(&part, pin.as_ref(), args.output, streams)
        }
        Command::Accept { name, revision, reason } => {
            let source = read(kubeconfig, name)?;
            let revision = waiting(&source, revision.as_deref())?;
            let accept = Accept { revision, reason: reason.clone() };
            write(kubeconfig, &source, &json!({ "accept": accept }))?;
            match args.output {
                Output::Json => writeln!(streams.out, "{:#}", json!({ "source": name, "accept": accept }))?,
                Output::Text => writeln!(streams.out, "{name}: revision {} is accepted", accept.revision)?,
            }
            Ok(Exit::Ok)
        }
    }
}

fn end_of(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>> {
    let lasts = time::parse_duration(text).map_err(|error| Problem::expected("--for", error, time::EXPECTED))?;
    Ok(now + lasts)
}

fn tell(part: &PartStatus, pin: Option<&Pin>, output: Output, streams: &mut Streams<'_>) -> Result {
    match (output, pin) {
        (Output::Json, pin) => writeln!(streams.out, "{:#}", json!({ "part": part.part, "pin": pin }))?,
        (Output::Text, Some(pin)) => {
            let until = pin.until.map(|until| format!(" until {}", until.to_rfc3339())).unwrap_or_default();
            writeln!(streams.out, "{} is held at revision {}{until}", pin.part, pin.revision)?;
        }
        (Output::Text, None) => writeln!(streams.out, "{} follows its newest text again", part.part)?,
    }
    Ok(Exit::Ok)
}

fn list(kubeconfig: Option<&Path>, output: Output, streams: &mut Streams<'_>) -> Result {
    let sources = super::block_on(async {
        let client = cluster::client(kubeconfig, None).await?;
        let listed = Api::<PolicySource>::all(client).list(&ListParams::default()).await;
        listed.map(|list| list.items).map_err(|error| cluster::unreachable(&error))
    })?;
    match output {
        Output::Json => {
            let items: Vec<Value> = sources.iter().map(json_of).collect();
            writeln!(streams.out, "{:#}", json!({ "sources": items }))?;
        }
        Output::Text => {
            for source in &sources {
                write_source(source, streams)?;
            }
            if sources.is_empty() {
                writeln!(streams.out, "there is no PolicySource")?;
            }
        }
    }
    let unprocessed = sources.iter().filter_map(|source| source.status.as_ref()).any(|status| status.unprocessed > 0);
    Ok(if unprocessed { Exit::No } else { Exit::Ok })
}

fn json_of(source: &PolicySource) -> Value {
    json!({
        "name": source.name_any(),
        "tenant": source.spec.tenant,
        "pins": source.spec.pins,
        "status": source.status,
    })
}

fn write_source(source: &PolicySource, streams: &mut Streams<'_>) -> Result<()> {
    let status = source.status.clone().unwrap_or_default();
    writeln!(
        streams.out,
        "{} (tenant {}): {} policies in force, {} not as written",
        source.name_any(),
        source.spec.tenant,
        status.policies,
        status.unprocessed
    )?;
    for part in &status.parts {
        write_part(source, part, streams)?;
    }
    Ok(())
}

fn write_part(source: &PolicySource, part: &PartStatus, streams: &mut Streams<'_>) -> Result<()> {
    match &part.active {
        Some(active) => writeln!(
            streams.out,
            "  {}: revision {} with {} policies since {}",
            part.part,
            active.revision,
            active.policies,
            active.since.to_rfc3339()
        )?,
        None => writeln!(streams.out, "  {}: nothing in force", part.part)?,
    }
    if let Some(pin) = source.spec.pins.iter().find(|pin| pin.part == part.part) {
        writeln!(streams.out, "    held at {}: {}", pin.revision, pin.reason)?;
    }
    if let Some(rejected) = &part.rejected {
        writeln!(streams.out, "    refused {} ({}): {}", rejected.revision, rejected.reason, rejected.message)?;
    }
    for line in &part.overridden {
        writeln!(streams.out, "    overridden: {line}")?;
    }
    Ok(())
}

fn history(kubeconfig: Option<&Path>, name: &str, output: Output, streams: &mut Streams<'_>) -> Result {
    let source = read(kubeconfig, name)?;
    match output {
        Output::Json => writeln!(streams.out, "{:#}", json_of(&source))?,
        Output::Text => {
            for part in &source.status.clone().unwrap_or_default().parts {
                write_part(&source, part, streams)?;
                for revision in &part.history {
                    let in_force = part.active.as_ref().is_some_and(|active| active.revision == *revision);
                    writeln!(streams.out, "    {revision}{}", if in_force { "  in force" } else { "" })?;
                }
            }
        }
    }
    Ok(Exit::Ok)
}

fn read(kubeconfig: Option<&Path>, name: &str) -> Result<PolicySource> {
    let found = super::block_on(async {
        let client = cluster::client(kubeconfig, None).await?;
        Api::<PolicySource>::all(client).get_opt(name).await.map_err(|error| cluster::unreachable(&error))
    })?;
    found.ok_or_else(|| Error::Usage(format!("there is no PolicySource {name}; `tradeguard source list` shows all")))
}

/// The part that is meant.
fn part_of(source: &PolicySource, named: Option<&str>) -> Result<PartStatus> {
    let parts = source.status.clone().unwrap_or_default().parts;
    let names = || parts.iter().map(|part| part.part.as_str()).collect::<Vec<_>>().join(", ");
    let refused: Vec<_> = parts.iter().filter(|part| part.rejected.is_some()).collect();
    let meant = match (named, parts.as_slice(), refused.as_slice()) {
        (Some(name), ..) => parts.iter().find(|part| part.part == name),
        (None, [only], _) => Some(only),
        (None, _, [only]) => Some(*only),
        _ => None,
    };
    meant.cloned().ok_or_else(|| {
        let found = named.map_or_else(|| "several parts".to_owned(), |name| format!("`{name}`"));
        Problem::expected("--part", found, format!("one of {}", names())).into()
    })
}

/// The revision that is meant.
fn revision_of(part: &PartStatus, named: Option<&str>) -> Result<String> {
    let in_force = part.active.as_ref().map(|active| &active.revision);
    if let Some(name) = named {
        let matching: Vec<_> = part.history.iter().filter(|revision| revision.starts_with(name)).collect();
        return match matching.as_slice() {
            [only] => Ok((*only).clone()),
            _ => {
                Err(Problem::expected("--to", format!("`{name}`"), format!("one of {}", part.history.join(", ")))
                    .into())
            }
        };
    }
    let default = match (&part.rejected, in_force) {
        (Some(_), Some(in_force)) => Some(in_force),
        _ => part.history.iter().find(|revision| Some(*revision) != in_force),
    };
    default.cloned().ok_or_else(|| Error::Usage(format!("{} has no earlier revision to go back to", part.part)))
}

/// The revision that waits for a person.
fn waiting(source: &PolicySource, named: Option<&str>) -> Result<String> {
    let parts = source.status.clone().unwrap_or_default().parts;
    let rejected = parts.into_iter().filter_map(|part| part.rejected);
    let waits = |rejected: &Rejected| {
        [Reason::NotDescendant, Reason::MassRemoval].iter().any(|r| r.as_str() == rejected.reason)
    };
    let waiting: Vec<String> = rejected.filter(waits).map(|rejected| rejected.revision).collect();
    let meant = waiting.iter().find(|revision| named.is_none_or(|named| revision.starts_with(named)));
    meant.cloned().ok_or_else(|| match (named, waiting.is_empty()) {
        (_, true) => Error::Usage(format!("no revision of {} waits for a person", source.name_any())),
        (named, false) => {
            Problem::expected("REVISION", format!("`{}`", named.unwrap_or_default()), waiting.join(", ")).into()
        }
    })
}

fn write(kubeconfig: Option<&Path>, source: &PolicySource, spec: &Value) -> Result<()> {
    super::block_on(async {
        let client = cluster::client(kubeconfig, None).await?;
        // The version read is named, so that two people who roll back at once do not undo each other's.
        let patch = json!({"metadata": {"resourceVersion": source.resource_version()}, "spec": spec});
        let written = Api::<PolicySource>::all(client)
            .patch(&source.name_any(), &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        written.map(drop).map_err(|error| match &error {
            kube::Error::Api(status) if status.is_conflict() => {
                Error::Unreachable("somebody else changed the PolicySource meanwhile; try again".to_owned())
            }
            _ => cluster::unreachable(&error),
        })
    })
}

#[cfg(test)]
mod tests;
