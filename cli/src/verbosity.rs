//! The log of the library on standard error.

use std::io::{self, IsTerminal as _};

use clap::ArgAction;
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::failure::Failure;

/// The output to standard error, other than failures.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Verbosity {
    /// Log errors only; show no plan, warning or progress bar.
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Log INFO; -vv: DEBUG [default: WARN, or the filter in RUST_LOG].
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
}

impl Verbosity {
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// A progress bar needs a terminal without log lines.
    pub(crate) fn shows_bar(self) -> bool {
        !self.quiet && self.verbose == 0 && io::stderr().is_terminal()
    }

    /// Logs until the process ends.
    pub(crate) fn start<W>(self, writer: W) -> Result<(), Failure>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let directives = self.directives();
        let filter: Targets = directives
            .parse()
            .map_err(|error| Failure::new(format!("RUST_LOG={directives}")).because(&error))?;
        let log = tracing_subscriber::fmt::layer().with_writer(writer).with_filter(filter);
        tracing_subscriber::registry().with(log).init();
        Ok(())
    }

    /// Calls [`start`](Self::start) if an option or `RUST_LOG` asks for a log.
    pub(crate) fn start_if_chosen<W>(self, writer: W) -> Result<(), Failure>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let variable = std::env::var("RUST_LOG").unwrap_or_default();
        let is_chosen = self.quiet || self.verbose > 0 || !variable.is_empty();
        if is_chosen { self.start(writer) } else { Ok(()) }
    }

    /// The filter in the syntax of `RUST_LOG`, also for worker processes.
    pub(crate) fn directives(self) -> String {
        let given = match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, 0) => {
                let environment = std::env::var("RUST_LOG").unwrap_or_default();
                return if environment.is_empty() { "warn".into() } else { environment };
            }
            (false, 1) => "info",
            (false, _) => "debug",
        };
        given.into()
    }
}
