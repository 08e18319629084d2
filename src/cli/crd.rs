//! `tradeguard crd print`: the custom resource definitions that this binary understands.

use clap::Subcommand;

use super::{Exit, Result, Streams};
use crate::api::crd;

/// Custom resource definitions.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print every CustomResourceDefinition as YAML, ready for `kubectl apply -f -`.
    Print,
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    match args.command {
        Command::Print => {
            for definition in crd::all() {
                write!(streams.out, "---\n{}", crd::to_yaml(&definition))?;
            }
            Ok(Exit::Ok)
        }
    }
}
