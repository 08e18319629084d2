//! Parses arguments, calls the command line, maps to an exit code.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use tradeguard::cli;

fn main() -> ExitCode {
    // Not locked: the terminal of `demo` and the logs of `run` write while a command runs.
    cli::main(std::env::args_os(), &mut cli::Streams { out: &mut stdout(), err: &mut stderr() }).into()
}
