//! When a process could not run.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use gaggle_strategies::clock::Instant;

/// When the driver of a process could not run, by its clock: it ends calls, so they may end later
/// by that (contract, rule 8).
#[derive(Debug, Default)]
pub(super) struct Standstill(Mutex<Spans>);

#[derive(Debug, Default)]
struct Spans {
    over: Vec<(Instant, Instant)>,
    present: Option<Instant>,
}

impl Standstill {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn is requested, or the process is paused.
    pub(super) fn begin(&self, now: Instant) {
        self.spans().present.get_or_insert(now);
    }

    pub(super) fn end(&self, now: Instant) {
        let mut spans = self.spans();
        let span = spans.present.take().map(|began| (began, now));
        spans.over.extend(span);
    }

    /// For how long it stood still between these two times.
    pub(super) fn between(&self, from: Instant, now: Instant) -> Duration {
        let spans = self.spans();
        let present = spans.present.map(|began| (began, now));
        let latest_first = present.into_iter().chain(spans.over.iter().rev().copied());
        let late = latest_first.take_while(|(_, ended)| *ended > from);
        late.map(|(began, ended)| ended.since(began.max(from))).sum()
    }
}
