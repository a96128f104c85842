//! The command line: parse, call, exit code.

mod bench;
mod cli;
mod cluster;
mod failure;
mod increment;
mod output;
#[cfg(feature = "simulator")]
mod simulate;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cli::Cli::parse().run()
}
