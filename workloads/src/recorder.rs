//! Recorders of the locks of one task.

use std::sync::{Arc, Mutex, PoisonError};

use super::{latency::Latency, ledger::KeyLedger, sample::LockSample, workload::Window};

/// The most samples that one task records, at 56 bytes each. A task that reaches the limit stops,
/// and the run fails: use a shorter one.
pub const SAMPLES_MAX: usize = 1 << 21;

/// Takes the locks of one task. A sample is complete only at `on_unlocked`.
pub(crate) trait Recorder: Send + 'static {
    fn on_granted(&mut self, sample: &LockSample);
    fn on_unlock(&mut self, sample: &LockSample);
    /// Whether another sample can be recorded.
    fn on_unlocked(&mut self, sample: &LockSample) -> bool;
}

/// Checks each sample at once, in a ledger that the tasks of a key share. The mutex of the ledger
/// is uncontended as long as the lock under test excludes.
pub(crate) struct LedgerRecorder {
    pub(crate) ledger: Arc<Mutex<KeyLedger>>,
    pub(crate) totals: TaskTotals,
    counter_read: u64,
}

/// The totals of one task.
#[derive(Debug)]
pub(crate) struct TaskTotals {
    window: Window,
    pub(crate) waits: Latency,
    /// Locks that were unlocked within the window.
    pub(crate) pairs: u64,
    /// The time that the unlocks took together, in nanoseconds.
    pub(crate) unlock_ns: u64,
    pub(crate) first_lock_called_at: u64,
    pub(crate) last_unlocked_at: u64,
}

impl TaskTotals {
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

    pub(crate) fn add(&mut self, sample: &LockSample) {
        // Also a wait that began before the window or outlasts it: that is starvation.
        if self.window.overlaps(sample.lock_called_at, sample.granted_at) {
            self.waits.record(sample.granted_at - sample.lock_called_at);
        }
        if self.window.contains(sample.unlocked_at) {
            self.pairs += 1;
            self.unlock_ns += sample.unlocked_at - sample.unlock_called_at;
        }
        self.first_lock_called_at = self.first_lock_called_at.min(sample.lock_called_at);
        self.last_unlocked_at = self.last_unlocked_at.max(sample.unlocked_at);
    }
}

impl LedgerRecorder {
    pub(crate) fn new(ledger: Arc<Mutex<KeyLedger>>, window: Window) -> Self {
        Self { ledger, totals: TaskTotals::new(window), counter_read: 0 }
    }
}

impl Recorder for LedgerRecorder {
    fn on_granted(&mut self, sample: &LockSample) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        self.counter_read = ledger.grant(sample);
    }

    fn on_unlock(&mut self, sample: &LockSample) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.unlock(sample, self.counter_read);
    }

    fn on_unlocked(&mut self, sample: &LockSample) -> bool {
        self.totals.add(sample);
        true
    }
}

/// Keeps all samples, to be checked together with those of other processes.
#[derive(Default)]
pub(crate) struct SampleRecorder(pub(crate) Vec<LockSample>);

impl Recorder for SampleRecorder {
    fn on_granted(&mut self, _: &LockSample) {}

    fn on_unlock(&mut self, _: &LockSample) {}

    fn on_unlocked(&mut self, sample: &LockSample) -> bool {
        self.0.push(*sample);
        self.0.len() < SAMPLES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlock_time_counts_where_its_pair_counts() {
        let mut totals = TaskTotals::new(Window { from: 10, until: 20 });
        for unlocked_at in [9, 12, 19, 20] {
            totals.add(&LockSample {
                task: 0,
                lock_called_at: 1,
                granted_at: 2,
                unlock_called_at: unlocked_at - 2,
                unlocked_at,
                token: None,
            });
        }
        assert_eq!((totals.pairs, totals.unlock_ns), (2, 4));
    }

    /// The longest wait in milliseconds of a task that called `lock` and was granted it at these
    /// times. The window is from 10 to 20.
    fn longest_wait(lock_called_ms: u64, granted_ms: u64) -> Option<f64> {
        let ms = 1_000_000;
        let mut totals = TaskTotals::new(Window { from: 10 * ms, until: 20 * ms });
        totals.add(&LockSample {
            task: 0,
            lock_called_at: lock_called_ms * ms,
            granted_at: granted_ms * ms,
            unlock_called_at: granted_ms * ms + 1,
            unlocked_at: granted_ms * ms + 2,
            token: None,
        });
        (totals.waits.count() > 0).then(|| (totals.waits.us(1.0) / 1e3).round())
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
