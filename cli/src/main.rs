//! The binary `gaggle`: parses the arguments and runs one command.

mod bench;
mod cli;
mod cluster;
mod failure;
mod increment;
mod output;
#[cfg(feature = "simulator")]
mod simulate;
mod stop;
mod verbosity;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|failure| {
        eprintln!("gaggle: {failure}");
        failure.exit_code()
    })
}
