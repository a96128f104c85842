//! What a run did, by kind: a fault that did not fire, or traffic that did not flow, shows here.

use std::{collections::BTreeMap, fmt};

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            self.add(what, *count);
        }
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(what, count)| format!("{what} {count}")).collect();
        f.write_str(&parts.join(", "))
    }
}
