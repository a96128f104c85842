//! Items by the time at which each is processed.

use std::collections::BTreeSet;

use crate::clock::Instant;

/// A queue of timers.
#[derive(Debug)]
pub(super) struct TimerQueue<T> {
    by_time: BTreeSet<(Instant, T)>,
}

/// An item and the time at which it is processed, if it is scheduled. The queue finds the item by
/// this time.
#[derive(Debug)]
pub(super) struct Timer<T> {
    pub(super) item: T,
    at: Option<Instant>,
}

impl<T> Timer<T> {
    pub(super) fn new(item: T) -> Self {
        Self { item, at: None }
    }
}

impl<T> Default for TimerQueue<T> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new() }
    }
}

impl<T: Copy + Ord> TimerQueue<T> {
    /// Schedules the timer, in place of the time that it had.
    pub(super) fn set(&mut self, timer: &mut Timer<T>, at: Instant) {
        self.remove(timer);
        timer.at = Some(at);
        self.by_time.insert((at, timer.item));
    }

    pub(super) fn remove(&mut self, timer: &mut Timer<T>) {
        if let Some(at) = timer.at.take() {
            self.by_time.remove(&(at, timer.item));
        }
    }

    /// The time of the earliest item.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// The earliest item, if its time has come.
    pub(super) fn first(&self, now: Instant) -> Option<T> {
        self.by_time.first().filter(|(at, _)| *at <= now).map(|(_, item)| *item)
    }
}

/// The earlier of two times, of which each may be missing.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
