//! The binary of the laboratory: `gaggle-lab simulate`.

mod simulate;

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use clap::Parser as _;

/// The laboratory of Gaggle.
#[derive(Debug, clap::Parser)]
#[command(name = "gaggle-lab")]
enum Command {
    /// Run whole groups of this very code in virtual time, under faults that a seed decides.
    ///
    /// Exit code: 1 if an invariant broke in any seed, or if a search of the history was not
    /// decided. The command that replays the run is printed. 1 also if a fault or a rare event
    /// never happened in a long batch, and 2 after any other failure.
    ///
    /// The simulated members log nothing unless -v, -q or RUST_LOG is given.
    Simulate(simulate::Args),
}

fn main() -> ExitCode {
    let Command::Simulate(args) = Command::parse();
    simulate::run(&args).unwrap_or_else(|failure| {
        // A standard error that is closed or full keeps the exit code.
        let _ = writeln!(io::stderr(), "gaggle-lab: {failure:#}");
        ExitCode::from(2)
    })
}
