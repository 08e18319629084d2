//! A rule's first compilation happens in a child process with a deadline: whatever it makes the parser or the
//! evaluator do, it costs a child and not the engine.
//!
//! Parent and child are the same binary. The child reads a [`Request`] as JSON from its standard input and answers
//! with an [`Answer`] as one line of JSON on its standard output.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::model::policy::OwnRule;
use crate::rego::{Limits, Module, Rule};

/// The hidden subcommand of the binary that runs [`serve`].
pub const SUBCOMMAND: &str = "trial";

/// How long a child may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a rule did not pass its trial.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The gate refused it; the text names file, line and column.
    #[error("{0}")]
    Refused(String),
    /// The child did not come to an end in time.
    #[error("compiling it took longer than {0:?}; expected a simpler module")]
    TooLong(Duration),
    /// The child crashed: the module makes the evaluator abort.
    #[error("compiling it ended the trial process ({0}); expected a simpler module")]
    Crashed(String),
    /// The child could not be started.
    #[error("the trial process could not be started: {0}")]
    Start(#[source] std::io::Error),
}

#[derive(Serialize, Deserialize)]
struct Request {
    path: String,
    module: String,
    entrypoint: String,
}

#[derive(Serialize, Deserialize)]
struct Answer {
    problem: Option<String>,
}

/// Tries a rule in a child of `program`, or in this process where there is no program to run (tests and embedders
/// that bring only rules they trust).
pub async fn run(program: Option<&Path>, rule: &OwnRule) -> Result<(), Error> {
    let request =
        Request { path: "rule.rego".into(), module: rule.module.clone(), entrypoint: rule.entrypoint.clone() };
    match program {
        None => answer(&request).problem.map_or(Ok(()), |problem| Err(Error::Refused(problem))),
        Some(program) => in_child(program, &request, DEADLINE).await,
    }
}

async fn in_child(program: &Path, request: &Request, deadline: Duration) -> Result<(), Error> {
    let mut child = Command::new(program)
        .arg(SUBCOMMAND)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Error::Start)?;
    let mut stdin = child.stdin.take();
    let written = serde_json::to_vec(request).unwrap_or_default();
    let talk = async move {
        if let Some(stdin) = &mut stdin {
            // A child that dies early closes the pipe; its exit status says more.
            let _ = stdin.write_all(&written).await;
        }
        drop(stdin);
        child.wait_with_output().await
    };
    // Dropping the future on timeout kills the child.
    let output = tokio::time::timeout(deadline, talk).await.map_err(|_| Error::TooLong(deadline))?;
    let output = output.map_err(Error::Start)?;
    if !output.status.success() {
        return Err(Error::Crashed(output.status.to_string()));
    }
    let answer: Answer = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::Crashed(format!("its answer cannot be read: {error}")))?;
    answer.problem.map_or(Ok(()), |problem| Err(Error::Refused(problem)))
}

/// The child's side.
pub fn serve(mut input: impl Read, mut output: impl Write) -> std::io::Result<()> {
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text)?;
    serde_json::to_writer(&mut output, &answer(&request))?;
    output.flush()
}

fn answer(request: &Request) -> Answer {
    let module = Module { path: request.path.clone(), text: request.module.clone() };
    let tried = Rule::compile(&[module], &request.entrypoint, &Limits::default());
    Answer { problem: tried.err().map(|error| error.to_string()) }
}

/// This binary, for [`run`].
pub fn this_program() -> Option<PathBuf> {
    std::env::current_exe().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(module: &str) -> OwnRule {
        OwnRule { module: module.into(), entrypoint: "data.lab.verdict".into() }
    }

    #[tokio::test]
    async fn a_good_rule_passes_and_a_bad_one_says_where() {
        assert!(run(None, &rule("package lab\n\nverdict := {\"breached\": false}\n")).await.is_ok());
        let error = run(None, &rule("package lab\n\nverdict := {\n")).await.unwrap_err().to_string();
        assert!(error.contains("rule.rego:"), "{error}");
    }

    #[test]
    fn the_child_answers_in_json() {
        let request = Request { path: "r.rego".into(), module: "package lab\nv := 1".into(), entrypoint: "x".into() };
        let mut answered = Vec::new();
        serve(serde_json::to_vec(&request).unwrap().as_slice(), &mut answered).unwrap();
        assert!(serde_json::from_slice::<Answer>(&answered).unwrap().problem.is_some());
    }

    #[tokio::test]
    async fn a_child_that_never_ends_is_killed_at_its_deadline() {
        let request = Request { path: String::new(), module: String::new(), entrypoint: String::new() };
        let endless = Path::new("/usr/bin/yes");
        let error = in_child(endless, &request, Duration::from_millis(200)).await.unwrap_err();
        assert!(matches!(error, Error::TooLong(_) | Error::Crashed(_)), "{error}");
    }
}
