//! The subcommands, and the runtime that each of them runs in.

use std::{future::Future, process::ExitCode};

use clap::{Parser, Subcommand};

#[cfg(feature = "simulator")]
use crate::simulate;
use crate::{bench, failure::Failure, increment};

/// A keyed mutex whose strategy you choose: in process, Redis, or an embedded Raft group.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Increment a counter from several members at once, with and without a lock.
    ///
    /// The counter lives in a store that has only GET and SET: each increment reads it, works, and
    /// writes it back. Without a lock, updates are lost. Exits with 1 if a real strategy lost an
    /// update, with 2 on any other failure, and with 130 after Ctrl-C.
    Increment(increment::Args),
    /// Run whole clusters of this very code in virtual time, under faults that a seed decides.
    ///
    /// Exits with 1 if an invariant broke in any seed, if a search of the history was not decided, or if
    /// a fault or a rare event never happened in a long batch, and prints the command that replays it;
    /// with 2 on any other failure.
    #[cfg(feature = "simulator")]
    Simulate(simulate::Args),
    /// Measure what locks cost on this machine, this network, this Redis: throughput, and beside
    /// it what throughput hides: hand-off, worst wait, fairness, exclusion.
    ///
    /// Exits with 1 if a real strategy did not exclude, with 2 on any other failure, and with 130 after
    /// Ctrl-C.
    Bench(bench::Args),
    /// One member of a bench run with --processes; started by it, not by people.
    #[command(hide = true)]
    BenchWorker,
    /// One member of an increment run with --processes; started by it, not by people.
    #[command(hide = true)]
    IncrementWorker,
}

impl Cli {
    pub(crate) fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Increment(args) => block_on(increment::run(args)),
            Command::Bench(args) => block_on(bench::run(args)),
            Command::BenchWorker => block_on_one_thread(bench::run_worker()),
            #[cfg(feature = "simulator")]
            Command::Simulate(args) => simulate::run(&args),
            Command::IncrementWorker => block_on(increment::run_worker()),
        };
        outcome.unwrap_or_else(|failure| {
            eprintln!("gaggle: {failure}");
            failure.exit_code()
        })
    }
}

fn block_on(command: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new("no runtime").because(&error))?.block_on(command)
}

/// For one of many processes of a benchmark: threads that wake each other would be measured too.
fn block_on_one_thread(
    command: impl Future<Output = Result<ExitCode, Failure>>,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new("no runtime").because(&error))?.block_on(command)
}
