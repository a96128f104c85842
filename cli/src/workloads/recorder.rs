//! What one task saw of its locks.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{ledger::KeyLedger, tally::Latency, workload::Window};

/// The most spans that one task records: 48 bytes each. A task that reaches it stops, and the run
/// fails: shorten it.
pub const SPANS_MAX: usize = 1 << 21;

/// One lock and unlock, in nanoseconds of [`now`](super::now).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which task, counted over all processes.
    pub task: u32,
    /// Before `lock` was called.
    pub asked: u64,
    /// `lock` had returned.
    pub granted: u64,
    /// Before `unlock` was called.
    pub released: u64,
    /// `unlock` had returned.
    pub unlocked: u64,
    /// The fencing token, where there is one.
    pub token: Option<u64>,
}

/// Where a task puts what it sees.
pub(crate) trait Recorder: Send + 'static {
    fn granted(&mut self, span: &Span);
    fn released(&mut self, span: &Span);
    /// Whether there is room for more.
    fn unlocked(&mut self, span: &Span) -> bool;
}

/// Judges at once, by a ledger that the tasks of a key share. Its mutex is free whenever the lock
/// under test excludes.
pub(crate) struct Live {
    pub(crate) ledger: Arc<Mutex<KeyLedger>>,
    pub(crate) tally: Tally,
    seen: u64,
}

/// What one task did.
#[derive(Debug)]
pub(crate) struct Tally {
    window: Window,
    pub(crate) waits: Latency,
    /// Locks that were unlocked within the window.
    pub(crate) pairs: u64,
    /// How long unlocking those took together, in nanoseconds.
    pub(crate) unlocking: u64,
    pub(crate) first_asked: u64,
    pub(crate) last_unlocked: u64,
}

impl Tally {
    pub(crate) fn new(window: Window) -> Self {
        let waits = Latency::default();
        Self { window, waits, pairs: 0, unlocking: 0, first_asked: u64::MAX, last_unlocked: 0 }
    }

    pub(crate) fn add(&mut self, span: &Span) {
        // A wait counts of which a part lies in the window, also if it began before or outlasts it: that
        // is starvation.
        if self.window.meets(span.asked, span.granted) {
            self.waits.record(span.granted - span.asked);
        }
        if self.window.has(span.unlocked) {
            self.pairs += 1;
            self.unlocking += span.unlocked - span.released;
        }
        self.first_asked = self.first_asked.min(span.asked);
        self.last_unlocked = self.last_unlocked.max(span.unlocked);
    }
}

impl Live {
    pub(crate) fn new(ledger: Arc<Mutex<KeyLedger>>, window: Window) -> Self {
        Self { ledger, tally: Tally::new(window), seen: 0 }
    }
}

impl Recorder for Live {
    fn granted(&mut self, span: &Span) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        self.seen = ledger.granted(span.task, span.asked, span.granted, span.token);
    }

    fn released(&mut self, span: &Span) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.released(span.task, span.released, self.seen);
    }

    fn unlocked(&mut self, span: &Span) -> bool {
        self.tally.add(span);
        true
    }
}

/// Keeps everything, to be judged together with what other processes saw.
#[derive(Default)]
pub(crate) struct Spans(pub(crate) Vec<Span>);

impl Recorder for Spans {
    fn granted(&mut self, _: &Span) {}

    fn released(&mut self, _: &Span) {}

    fn unlocked(&mut self, span: &Span) -> bool {
        self.0.push(*span);
        self.0.len() < SPANS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlocking_counts_where_its_pair_does() {
        let mut tally = Tally::new(Window { from: 10, until: 20 });
        for unlocked in [9, 12, 19, 20] {
            let released = unlocked - 2;
            tally.add(&Span { task: 0, asked: 1, granted: 2, released, unlocked, token: None });
        }
        assert_eq!((tally.pairs, tally.unlocking), (2, 4));
    }

    /// The longest wait in milliseconds of a task that asked and was granted then; the window is from 10
    /// to 20.
    fn worst(asked: u64, granted: u64) -> Option<f64> {
        let ms = 1_000_000;
        let mut tally = Tally::new(Window { from: 10 * ms, until: 20 * ms });
        let (asked, granted) = (asked * ms, granted * ms);
        let (released, unlocked) = (granted + 1, granted + 2);
        tally.add(&Span { task: 0, asked, granted, released, unlocked, token: None });
        (tally.waits.count() > 0).then(|| (tally.waits.us(1.0) / 1e3).round())
    }

    #[test]
    fn a_wait_that_began_in_the_warm_up_or_outlasts_the_window_counts_whole() {
        assert_eq!(worst(11, 12), Some(1.0));
        assert_eq!(worst(19, 120), Some(101.0));
        assert_eq!(worst(1, 12), Some(11.0));
        assert_eq!(worst(1, 500), Some(499.0), "who never had it in the window");
        assert_eq!((worst(1, 9), worst(20, 30)), (None, None));
    }
}
