//! Parses arguments, calls the command line, maps to an exit code.

fn main() {}
