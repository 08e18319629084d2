//! `tradeguard test`: runs case files and tells what went otherwise than expected.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cases::{self, Report};
use super::policy_file;
use super::{Error, Exit, Output, Result, Streams};
use crate::model::problem::Problem;
use crate::model::time::Written;

/// Run case files: timelines of readings against the production code, with a clock that the case moves.
///
/// A case names a policy, a target and steps in time, and what it expects there: phases, verdicts, claims, reasons.
/// docs/cases.md describes the format. Exit code: 0 all passed, 1 some failed, 2 a file could not be read.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files, or directories whose *.yaml and *.yml files are run, in order of name.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How the results are printed.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    let mut files = Vec::new();
    for path in &args.paths {
        let before = files.len();
        collect(path, &mut files)?;
        if files.len() == before {
            return Err(Problem::expected(path.display().to_string(), "holds no case file", "*.yaml or *.yml").into());
        }
    }
    let mut reports = Vec::new();
    for file in &files {
        let name = file.display().to_string();
        let bytes = policy_file::bytes(file)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::from(Problem::expected(&name, "is not UTF-8", "YAML in UTF-8")))?;
        let report = cases::run(&text, &name);
        if args.output == Output::Text {
            write!(streams.out, "{report}")?;
        }
        reports.push(report);
    }
    let ran: usize = reports.iter().map(|report| report.cases.len()).sum();
    let passed = reports.iter().flat_map(|report| &report.cases).filter(|case| case.passed()).count();
    match args.output {
        Output::Text => writeln!(streams.out, "{passed} of {ran} cases passed")?,
        Output::Json => writeln!(streams.out, "{:#}", json_of(&reports, passed, ran))?,
    }
    Ok(if !reports.iter().all(Report::is_readable) {
        Exit::Usage
    } else if passed == ran {
        Exit::Ok
    } else {
        Exit::No
    })
}

/// Case files below `path`, those of a directory in order of name.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Problem> {
    let unread = |error: std::io::Error| Problem::at(path.display().to_string(), format!("cannot be read: {error}"));
    if !fs::metadata(path).map_err(unread)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>).map_err(unread)?;
    let mut entries: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let is_case = entry.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if entry.is_dir() || is_case {
            collect(&entry, files)?;
        }
    }
    Ok(())
}

fn json_of(reports: &[Report], passed: usize, ran: usize) -> Value {
    let case = |path: &str, case: &cases::CaseReport| {
        let differences = case.differences.iter().map(|difference| {
            json!({
                "at": Written(difference.at).to_string(),
                "policy": difference.policy,
                "field": difference.field,
                "expected": difference.expected,
                "actual": difference.actual,
            })
        });
        json!({
            "path": path,
            "name": case.name,
            "passed": case.passed(),
            "problems": case.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "differences": differences.collect::<Vec<_>>(),
        })
    };
    let cases = reports.iter().flat_map(|report| report.cases.iter().map(|one| case(&report.path, one)));
    json!({"passed": passed, "failed": ran - passed, "cases": cases.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests;
