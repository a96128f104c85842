//! Recorders of the locks of one task.

use std::sync::{Arc, Mutex, PoisonError};

use super::{ledger::KeyLedger, span::Span, tally::Latency, workload::Window};

/// The most spans that one task records, at 56 bytes each. A task that reaches the limit stops, and
/// the run fails: use a shorter one.
pub const SPANS_MAX: usize = 1 << 21;

/// Takes the locks of one task. A span is complete only at `on_unlocked`.
pub(crate) trait Recorder: Send + 'static {
    fn on_granted(&mut self, span: &Span);
    fn on_unlock(&mut self, span: &Span);
    /// Whether another span can be recorded.
    fn on_unlocked(&mut self, span: &Span) -> bool;
}

/// Checks each span at once, in a ledger that the tasks of a key share. Its mutex is uncontended as
/// long as the lock under test excludes.
pub(crate) struct Live {
    pub(crate) ledger: Arc<Mutex<KeyLedger>>,
    pub(crate) tally: Tally,
    counter_read: u64,
}

/// The totals of one task.
#[derive(Debug)]
pub(crate) struct Tally {
    window: Window,
    pub(crate) waits: Latency,
    /// Locks that were unlocked within the window.
    pub(crate) pairs: u64,
    /// The time that the unlocks took together, in nanoseconds.
    pub(crate) unlock_ns: u64,
    pub(crate) first_lock_called_at: u64,
    pub(crate) last_unlocked_at: u64,
}

impl Tally {
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window,
            waits: Latency::default(),
            pairs: 0,
            unlock_ns: 0,
            first_lock_called_at: u64::MAX,
            last_unlocked_at: 0,
        }
    }

    pub(crate) fn add(&mut self, span: &Span) {
        // Also a wait that began before the window or outlasts it: that is starvation.
        if self.window.overlaps(span.lock_called_at, span.granted_at) {
            self.waits.record(span.granted_at - span.lock_called_at);
        }
        if self.window.contains(span.unlocked_at) {
            self.pairs += 1;
            self.unlock_ns += span.unlocked_at - span.unlock_called_at;
        }
        self.first_lock_called_at = self.first_lock_called_at.min(span.lock_called_at);
        self.last_unlocked_at = self.last_unlocked_at.max(span.unlocked_at);
    }
}

impl Live {
    pub(crate) fn new(ledger: Arc<Mutex<KeyLedger>>, window: Window) -> Self {
        Self { ledger, tally: Tally::new(window), counter_read: 0 }
    }
}

impl Recorder for Live {
    fn on_granted(&mut self, span: &Span) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        self.counter_read = ledger.grant(span);
    }

    fn on_unlock(&mut self, span: &Span) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.unlock(span, self.counter_read);
    }

    fn on_unlocked(&mut self, span: &Span) -> bool {
        self.tally.add(span);
        true
    }
}

/// Keeps all spans, to be checked together with those of other processes.
#[derive(Default)]
pub(crate) struct Spans(pub(crate) Vec<Span>);

impl Recorder for Spans {
    fn on_granted(&mut self, _: &Span) {}

    fn on_unlock(&mut self, _: &Span) {}

    fn on_unlocked(&mut self, span: &Span) -> bool {
        self.0.push(*span);
        self.0.len() < SPANS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlock_time_counts_where_its_pair_counts() {
        let mut tally = Tally::new(Window { from: 10, until: 20 });
        for unlocked_at in [9, 12, 19, 20] {
            tally.add(&Span {
                task: 0,
                lock_called_at: 1,
                granted_at: 2,
                unlock_called_at: unlocked_at - 2,
                unlocked_at,
                token: None,
            });
        }
        assert_eq!((tally.pairs, tally.unlock_ns), (2, 4));
    }

    /// The longest wait in milliseconds of a task that called `lock` and was granted it at these
    /// times. The window is from 10 to 20.
    fn longest_wait(lock_called_ms: u64, granted_ms: u64) -> Option<f64> {
        let ms = 1_000_000;
        let mut tally = Tally::new(Window { from: 10 * ms, until: 20 * ms });
        tally.add(&Span {
            task: 0,
            lock_called_at: lock_called_ms * ms,
            granted_at: granted_ms * ms,
            unlock_called_at: granted_ms * ms + 1,
            unlocked_at: granted_ms * ms + 2,
            token: None,
        });
        (tally.waits.count() > 0).then(|| (tally.waits.us(1.0) / 1e3).round())
    }

    #[test]
    fn wait_is_not_cut_at_a_window_end() {
        assert_eq!(longest_wait(11, 12), Some(1.0));
        assert_eq!(longest_wait(19, 120), Some(101.0));
        assert_eq!(longest_wait(1, 12), Some(11.0));
        assert_eq!(longest_wait(1, 500), Some(499.0), "never granted in the window");
        assert_eq!((longest_wait(1, 9), longest_wait(20, 30)), (None, None));
    }
}
