//! `tradeguard bundle`: from a directory of rules to a signed bundle, and back.

use clap::Subcommand;

use super::{Result, Streams};

mod build;
mod disk;
mod inspect;
mod keygen;
mod sign;
mod verify;

/// Make, sign and check policy bundles, in OPA's format.
///
/// A bundle is built from a directory, signed with a private key, and taken by sources that trust the public one.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Keygen(keygen::Args),
    Build(build::Args),
    Sign(sign::Args),
    Verify(verify::Args),
    Inspect(inspect::Args),
}

pub(super) fn run(args: &Args, streams: &mut Streams<'_>) -> Result {
    match &args.command {
        Command::Keygen(args) => keygen::run(args, streams),
        Command::Build(args) => build::run(args, streams),
        Command::Sign(args) => sign::run(args, streams),
        Command::Verify(args) => verify::run(args, streams),
        Command::Inspect(args) => inspect::run(args, streams),
    }
}

#[cfg(test)]
mod tests;
