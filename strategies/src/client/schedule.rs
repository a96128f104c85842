//! Items by the time at which each must be processed.

use crate::{Instant, timeline::Timeline};

/// At which time each item is due.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    by_time: Timeline<(Instant, T), ()>,
}

/// When an item is due, if it is. Kept beside the item, so that the schedule finds it by its time.
#[derive(Debug, Default)]
pub(crate) struct Due(Option<Instant>);

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { by_time: Timeline::default() }
    }
}

impl<T: Copy + Ord> Schedule<T> {
    /// Sets the time of `item`, replacing the one it had.
    pub(crate) fn set(&mut self, item: T, due: &mut Due, at: Instant) {
        self.remove(item, due);
        due.0 = Some(at);
        self.by_time.insert((at, item), ());
    }

    /// Sets the time of `item`, or takes it out.
    pub(crate) fn set_or_remove(&mut self, item: T, due: &mut Due, at: Option<Instant>) {
        match at {
            Some(at) => self.set(item, due, at),
            None => self.remove(item, due),
        }
    }

    pub(crate) fn remove(&mut self, item: T, due: &mut Due) {
        if let Some(at) = due.0.take() {
            self.by_time.remove((at, item));
        }
    }

    /// When the earliest item is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|((at, _), ())| at)
    }

    /// The earliest item that is due at `now`.
    pub(crate) fn first(&self, now: Instant) -> Option<T> {
        self.by_time.first().filter(|((at, _), ())| *at <= now).map(|((_, item), ())| item)
    }
}
