//! The binary of the laboratory: `gaggle-lab simulate` and `serve-load`.

mod serve_load;
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
    /// Measure what 10,000 active and 2,000 waiting claims, and clients that send slowly, nothing,
    /// too much or wrong tokens, cost another client of `gaggle serve`.
    ///
    /// Exit code: 1 if a figure is beyond its limit, and 2 after any other failure. Measure on a
    /// machine that does nothing else.
    ServeLoad(serve_load::Args),
}

fn main() -> ExitCode {
    let outcome = match Command::parse() {
        Command::Simulate(args) => simulate::run(&args),
        Command::ServeLoad(args) => serve_load::run(&args),
    };
    outcome.unwrap_or_else(|failure| {
        // A standard error that is closed or full keeps the exit code.
        let _ = writeln!(io::stderr(), "gaggle-lab: {failure:#}");
        ExitCode::from(2)
    })
}
