//! Counts of a run, by kind: a fault that did not fire, or traffic that did not flow, shows here.

use std::{collections::BTreeMap, fmt};

/// Sums and peaks by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    sums: BTreeMap<&'static str, u64>,
    peaks: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        *self.sums.entry(what).or_default() += count;
    }

    /// Keeps the greatest.
    pub(crate) fn peak(&mut self, what: &'static str, value: u64) {
        let peak = self.peaks.entry(what).or_default();
        *peak = value.max(*peak);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.sums.iter().for_each(|(what, count)| self.add(what, *count));
        other.peaks.iter().for_each(|(what, value)| self.peak(what, *value));
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.sums.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.sums.iter().chain(&self.peaks);
        let parts: Vec<String> = all.map(|(what, count)| format!("{what} {count}")).collect();
        f.write_str(&parts.join(", "))
    }
}
