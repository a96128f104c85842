use std::collections::{BTreeMap, BTreeSet};

use crate::Instant;

/// At which time each item is due; an item has one time.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    by_time: BTreeSet<(Instant, T)>,
    by_item: BTreeMap<T, Instant>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_item: BTreeMap::new() }
    }
}

impl<T: Copy + Ord> Schedule<T> {
    /// Sets the time of `item`, replacing the one it had.
    pub(super) fn set(&mut self, item: T, at: Instant) {
        if let Some(before) = self.by_item.insert(item, at) {
            self.by_time.remove(&(before, item));
        }
        self.by_time.insert((at, item));
    }

    pub(super) fn remove(&mut self, item: T) {
        if let Some(at) = self.by_item.remove(&item) {
            self.by_time.remove(&(at, item));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_item.len()
    }

    /// When the earliest item is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|&(at, _)| at)
    }

    /// The earliest item that is due.
    pub(super) fn first(&self, now: Instant) -> Option<T> {
        self.by_time.first().filter(|(at, _)| *at <= now).map(|&(_, item)| item)
    }

    /// Sets the time of the earliest item.
    pub(super) fn postpone(&mut self, first: T, at: Instant) {
        let popped = self.by_time.pop_first();
        debug_assert!(popped.is_some_and(|(_, item)| item == first), "it was the earliest");
        self.by_item.insert(first, at);
        self.by_time.insert((at, first));
    }
}
