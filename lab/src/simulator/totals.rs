//! The totals of runs.

use std::time::Duration;

use super::coverage::Coverage;

/// The totals of one or more runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events that happened.
    pub events: u64,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Calls that clients made.
    pub operations: u64,
    /// Locks that were granted.
    pub granted: u64,
    /// Calls whose outcome the caller could not know.
    pub unknown: u64,
    /// Searches of the history checker, one for each key and model.
    pub searches: u64,
    /// Searches that ended by the budget: neither legal nor illegal.
    pub undecided: u64,
    /// How often two holders of one key believed at one time; only with clocks beyond the bound.
    pub two_believed: u64,
    /// Entries that were committed.
    pub committed: u64,
    /// How often each event happened.
    pub coverage: Coverage,
}

impl Totals {
    /// Adds the totals of another run.
    pub(super) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.virtual_time += other.virtual_time;
        self.operations += other.operations;
        self.granted += other.granted;
        self.unknown += other.unknown;
        self.searches += other.searches;
        self.undecided += other.undecided;
        self.two_believed += other.two_believed;
        self.committed += other.committed;
        self.coverage.add(&other.coverage);
    }
}
