//! The command line: a file per subcommand, and what they share: exit codes, streams, the way errors are told.
//!
//! Commands call the same functions as the controller does; nothing is decided here. Only this room prints.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::model::problem::Problem;

mod bundle;
pub mod cases;
mod cluster;
pub mod config;
mod crd;
mod demo;
mod eval;
mod explain;
mod install;
mod lint;
mod policy_file;
mod readings;
mod release;
mod run;
mod source;
mod test;
mod trial;

/// TradeGuard: policy governance for services on Kubernetes.
///
/// A policy names a target, signals with thresholds, and actions. TradeGuard measures, decides with Rego, acts, records
/// what it did, and undoes it when there is evidence of recovery.
///
/// Exit codes: 0 ok; 1 the answer is no (a breached or unknown verdict, a failed case, a demo that did not recover,
/// a bad signature);
/// 2 wrong usage or input; 3 something could not be reached.
#[derive(Debug, Parser)]
#[command(
    name = "tradeguard",
    version,
    max_term_width = 110,
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Demo(demo::Args),
    Eval(eval::Args),
    Test(test::Args),
    Lint(lint::Args),
    Explain(explain::Args),
    Source(source::Args),
    Release(release::Args),
    Bundle(bundle::Args),
    Crd(crd::Args),
    Install(install::Args),
    /// Compile a rule that stands on standard input; the engine calls this.
    #[command(hide = true)]
    Trial,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, and the answer is yes.
    Ok,
    /// Done, and the answer is no.
    No,
    /// Wrong usage or input; the user must change it.
    Usage,
    /// Something could not be reached; trying again may help.
    Unreachable,
}

impl Exit {
    /// The process's exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not give an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the user gave is wrong.
    #[error("{0}")]
    Usage(String),
    /// Files or fields that the user must change, never empty.
    #[error("{}", listed(.0))]
    Input(Vec<Problem>),
    /// A server that does not answer, or refuses us.
    #[error("{0}")]
    Unreachable(String),
    /// The answer could not be written.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

/// What commands return.
pub type Result<T = Exit, E = Error> = std::result::Result<T, E>;

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Self::Input(vec![problem])
    }
}

impl From<Vec<Problem>> for Error {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Input(problems)
    }
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Input(_) => Exit::Usage,
            Self::Unreachable(_) | Self::Write(_) => Exit::Unreachable,
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Where a command writes: answers to `out`, everything else to `err`.
pub struct Streams<'a> {
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl fmt::Debug for Streams<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// How an answer looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document.
    Json,
}

/// Runs the command that `args` name (the first is the program's own name).
pub fn main(args: impl IntoIterator<Item = impl Into<OsString> + Clone>, streams: &mut Streams<'_>) -> Exit {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error, streams),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(*args, streams),
        Command::Demo(args) => demo::run(&args, streams),
        Command::Eval(args) => eval::run(&args, streams),
        Command::Test(args) => test::run(&args, streams),
        Command::Lint(args) => lint::run(&args, streams),
        Command::Explain(args) => explain::run(&args, streams),
        Command::Source(args) => source::run(&args, streams),
        Command::Release(args) => release::run(&args, streams),
        Command::Bundle(args) => bundle::run(&args, streams),
        Command::Crd(args) => crd::run(&args, streams),
        Command::Install(args) => install::run(&args, streams),
        Command::Trial => trial::run(streams),
    };
    match result {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough: `tradeguard crd print | head`.
        Err(Error::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            let lines = error.to_string();
            for line in lines.lines() {
                // Where even stderr is gone, the exit code still tells.
                let _ = writeln!(streams.err, "error: {line}");
            }
            error.exit()
        }
    }
}

/// Runs what waits for a network, for commands that do nothing else meanwhile.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // Whoever embeds us may have chosen one already; any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::Unreachable(format!("this machine gives no event loop: {error}")))?;
    runtime.block_on(work)
}

/// Help and version are answers, everything else that clap says is wrong usage.
fn refuse(error: &clap::Error, streams: &mut Streams<'_>) -> Exit {
    let text = error.render();
    if error.use_stderr() {
        let _ = write!(streams.err, "{text}");
        Exit::Usage
    } else {
        let _ = write!(streams.out, "{text}");
        Exit::Ok
    }
}

#[cfg(test)]
mod tests;
