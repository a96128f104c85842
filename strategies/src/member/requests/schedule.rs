use crate::{Instant, timeline::Timeline};

/// At which time each item is due.
#[derive(Debug)]
pub(super) struct Schedule<T> {
    by_time: Timeline<(Instant, T), ()>,
}

/// When an item is due, if it is. Kept beside the item, so that the schedule finds it by its time.
#[derive(Debug, Default)]
pub(super) struct Due(Option<Instant>);

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self { by_time: Timeline::default() }
    }
}

impl<T: Copy + Ord> Schedule<T> {
    /// Sets the time of `item`, replacing the one it had.
    pub(super) fn set(&mut self, item: T, due: &mut Due, at: Instant) {
        self.remove(item, due);
        due.0 = Some(at);
        self.by_time.insert((at, item), ());
    }

    pub(super) fn remove(&mut self, item: T, due: &mut Due) {
        if let Some(at) = due.0.take() {
            self.by_time.remove((at, item));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    /// When the earliest item is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|((at, _), ())| at)
    }

    /// The earliest item that is due at `now`.
    pub(super) fn first(&self, now: Instant) -> Option<T> {
        self.by_time.first().filter(|((at, _), ())| *at <= now).map(|((_, item), ())| item)
    }
}
