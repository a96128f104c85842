//! The workloads by name on the command line.

use clap::ValueEnum;

/// A workload, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorkloadName {
    /// Contended: tasks on one key, with an empty critical section.
    Handoff,
    /// A single task on one key, with an empty critical section; at each member in turn.
    Uncontended,
    /// Tasks on a key each, with an empty critical section.
    Fan,
    /// Tasks on one key, with 5 ms in the critical section and 5 ms after it.
    Busy,
    /// The contended case of the Gaggle 1.x benchmark: a task a member on one key, with four sleeps
    /// of 15 ms in the critical section.
    Gaggle1Contended,
    /// The uncontended case of the Gaggle 1.x benchmark: the same on a key each.
    Gaggle1Uncontended,
    /// The workload of `gaggle increment`: each critical section increments a counter in a store.
    #[value(skip)]
    Increment,
}

impl WorkloadName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Handoff => "handoff",
            Self::Uncontended => "uncontended",
            Self::Fan => "fan",
            Self::Busy => "busy",
            Self::Gaggle1Contended => "gaggle1-contended",
            Self::Gaggle1Uncontended => "gaggle1-uncontended",
            Self::Increment => "increment",
        }
    }

    /// Whether the Gaggle 1.x benchmark has it, which measures the time of one increment.
    pub(super) fn is_gaggle1(self) -> bool {
        matches!(self, Self::Gaggle1Contended | Self::Gaggle1Uncontended)
    }

    /// The tasks in a phrase, for the heading of a table.
    pub(super) fn summary(self) -> &'static str {
        match self {
            Self::Handoff => "all tasks contend for one key, empty critical section",
            Self::Uncontended => "one task, one key, empty critical section",
            Self::Fan => "a key for each task, empty critical section",
            Self::Busy => "all tasks contend for one key, 5 ms inside, 5 ms between",
            Self::Gaggle1Contended => "all tasks contend for one key, 60 ms inside",
            Self::Gaggle1Uncontended => "a key for each task, 60 ms inside",
            Self::Increment => "all tasks increment a counter",
        }
    }
}
