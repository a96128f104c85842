//! The binary `gaggle`: parses the arguments and runs one command.

mod bench;
mod cert;
mod cli;
mod cluster;
mod duration;
mod failure;
mod operate;
mod output;
mod run;
mod runtime;
mod serve;
mod server_url;
mod stop;
mod utf8;
mod verbosity;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

/// The version of this package, with its commit where that is known.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("GAGGLE_COMMIT"));

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|failure| {
        // A standard error that is closed or full keeps the exit code.
        let _ = writeln!(io::stderr(), "gaggle: {failure}");
        failure.exit_code()
    })
}
