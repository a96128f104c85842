//! The progress of a benchmark, with the remaining time, on standard error.

use std::time::Duration;

use indicatif::ProgressBar;

use super::plan::Plan;
use crate::{
    failure::Failure,
    output::{self, ms, remark},
};

const TICK: Duration = Duration::from_millis(100);

/// A bar on a terminal; elsewhere a line after each round. Dropping it clears the bar.
pub(super) struct Progress {
    bar: ProgressBar,
    rounds: u32,
    shows_lines: bool,
}

impl Progress {
    pub(super) fn new(plan: &Plan<'_>, shows_bar: bool) -> Self {
        let bar = output::bar(shows_bar, "{bar:25} {percent:>3}% {msg}", ms(plan.expected()));
        let shows_lines = !shows_bar && !plan.args.verbosity.is_quiet() && plan.rounds > 1;
        Self { bar, rounds: plan.rounds, shows_lines }
    }

    /// Moves the bar while a run lasts, and names the run in its failure.
    pub(super) async fn during<T>(
        &self,
        name: &str,
        expected: Duration,
        run: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let end = self.bar.position() + ms(expected);
        let advance = async {
            loop {
                self.bar.set_message(format!("{name}, {} s left", self.remaining_s()));
                tokio::time::sleep(TICK).await;
                self.bar.set_position((self.bar.position() + ms(TICK)).min(end));
            }
        };
        let outcome = tokio::select! {
            outcome = run => outcome,
            () = advance => unreachable!("it has no end"),
        };
        self.bar.set_position(end);
        outcome.map_err(|failure| failure.during(name))
    }

    pub(super) fn end_of_round(&self, round: u32) {
        if self.shows_lines && round < self.rounds {
            let left = self.remaining_s();
            remark(format_args!("round {round} of {}: about {left} s left", self.rounds));
        }
    }

    fn remaining_s(&self) -> u64 {
        self.bar.length().unwrap_or(0).saturating_sub(self.bar.position()).div_ceil(1000)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
