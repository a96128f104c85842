//! The workloads by their names on the command line.

use clap::ValueEnum;

/// A workload, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum WorkloadName {
    /// All members on one key, four steps of 15 ms inside: the seed's.
    Worst,
    /// The same, on a key each.
    Best,
    /// One task, one key, nothing inside; at each member in turn.
    Uncontended,
    /// Tasks on a key each, nothing inside.
    Fan,
    /// Tasks on one key, nothing inside.
    Handoff,
    /// Tasks on one key, 5 ms inside and 5 ms away.
    Busy,
}

impl WorkloadName {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::Best => "best",
            Self::Uncontended => "uncontended",
            Self::Fan => "fan",
            Self::Handoff => "handoff",
            Self::Busy => "busy",
        }
    }

    /// Whether the seed measured it: as time per operation.
    pub(super) fn is_the_seeds(self) -> bool {
        matches!(self, Self::Worst | Self::Best)
    }
}
