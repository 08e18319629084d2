//! Parses arguments, calls the command line, maps to an exit code.

use std::io::{stderr, stdout};
use std::process::ExitCode;

use mimalloc::MiMalloc;
use tradeguard::cli;

/// The engine allocates much and frees it on other threads, where the C library's allocator took half of a tick.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Not locked: the terminal of `demo` and the logs of `run` write while a command runs.
    cli::main(std::env::args_os(), &mut cli::Streams { out: &mut stdout(), err: &mut stderr() }).into()
}
