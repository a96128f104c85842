//! The ledger of one key, which checks its grants.

use super::{latency::Latency, sample::LockSample, workload::Window};

/// The grants of one key, in the order of time.
///
/// It holds a counter, which each holder increments as a program does that relies on its lock: it
/// reads the counter at `grant` and writes it at `unlock`. A lost update shows a second holder.
#[derive(Debug)]
pub(crate) struct KeyLedger {
    window: Window,
    holder: Option<u32>,
    /// The last holder's task, and when it called `unlock`.
    last: Option<(u32, u64)>,
    highest_token: Option<u64>,
    counter: u64,
    grants: u64,
    streak: u64,
    /// Grants within the window.
    counted: u64,
    /// Counted grants that followed an unlock.
    pub(crate) after_unlock: u64,
    /// Counted grants that went to another task than the last holder.
    pub(crate) to_another: u64,
    pub(crate) longest_streak: u64,
    pub(crate) handoffs: Latency,
    pub(crate) overlaps: u64,
    pub(crate) stale_tokens: u64,
}

impl KeyLedger {
    pub(crate) fn new(window: Window) -> Self {
        Self {
            window,
            holder: None,
            last: None,
            highest_token: None,
            counter: 0,
            grants: 0,
            streak: 0,
            counted: 0,
            after_unlock: 0,
            to_another: 0,
            longest_streak: 0,
            handoffs: Latency::default(),
            overlaps: 0,
            stale_tokens: 0,
        }
    }

    /// The key is granted. Returns the value of the counter.
    pub(crate) fn grant(&mut self, sample: &LockSample) -> u64 {
        self.overlaps += u64::from(self.holder.is_some());
        self.stale_tokens +=
            u64::from(sample.token.is_some() && sample.token <= self.highest_token);
        self.highest_token = sample.token.max(self.highest_token);
        self.grants += 1;
        if self.window.contains(sample.granted_at) {
            self.count(sample);
        }
        self.holder = Some(sample.task);
        self.counter
    }

    fn count(&mut self, sample: &LockSample) {
        self.counted += 1;
        let is_same = self.last.is_some_and(|(last, _)| last == sample.task);
        self.streak = if is_same { self.streak + 1 } else { 1 };
        self.longest_streak = self.longest_streak.max(self.streak);
        let Some((last, unlock_called_at)) = self.last else { return };
        self.after_unlock += 1;
        if last != sample.task {
            self.to_another += 1;
            // A task that called `lock` after the unlock did not wait for it.
            if sample.lock_called_at < unlock_called_at && unlock_called_at <= sample.granted_at {
                self.handoffs.record(sample.granted_at - unlock_called_at);
            }
        }
    }

    /// The holder calls `unlock` and writes the counter, whose value it read at `grant`.
    pub(crate) fn unlock(&mut self, sample: &LockSample, counter_read: u64) {
        self.counter = counter_read + 1;
        self.last = Some((sample.task, sample.unlock_called_at));
        if self.holder == Some(sample.task) {
            self.holder = None;
        }
    }

    /// How many increments of the counter were overwritten. Every grant must have been unlocked.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.grants - self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Window = Window { from: 0, until: u64::MAX };

    fn sample(
        task: u32,
        lock_called_at: u64,
        granted_at: u64,
        unlock_called_at: u64,
    ) -> LockSample {
        let unlocked_at = unlock_called_at + 1;
        LockSample { task, lock_called_at, granted_at, unlock_called_at, unlocked_at, token: None }
    }

    #[test]
    fn handoff_is_from_unlock_to_a_waiter() {
        let mut ledger = KeyLedger::new(ALL);
        for sample in [
            sample(0, 0, 10, 100),
            sample(1, 5, 130, 200),   // waited: 30
            sample(2, 210, 215, 300), // called `lock` after the unlock: no hand-off
            sample(2, 290, 310, 400), // the same task
        ] {
            let counter = ledger.grant(&sample);
            ledger.unlock(&sample, counter);
        }
        assert_eq!((ledger.to_another, ledger.handoffs.count()), (2, 1));
        assert_eq!(ledger.handoffs.us(0.5), 0.03);
        assert_eq!((ledger.longest_streak, ledger.counted), (2, 4));
        assert_eq!((ledger.overlaps, ledger.lost_updates(), ledger.stale_tokens), (0, 0, 0));
    }

    #[test]
    fn two_holders_overlap_and_lose_updates() {
        let mut ledger = KeyLedger::new(ALL);
        let samples = [sample(0, 0, 1, 3), sample(1, 0, 2, 4)];
        let counters = samples.map(|sample| ledger.grant(&sample));
        for (sample, counter) in samples.iter().zip(counters) {
            ledger.unlock(sample, counter);
        }
        assert_eq!((ledger.overlaps, ledger.lost_updates()), (1, 1));
    }

    #[test]
    fn token_that_does_not_grow_is_stale() {
        let mut ledger = KeyLedger::new(ALL);
        for (token, stale) in [(5, 0), (6, 0), (6, 1), (4, 2), (7, 2)] {
            let sample = LockSample { token: Some(token), ..sample(0, 0, 1, 2) };
            let counter = ledger.grant(&sample);
            ledger.unlock(&sample, counter);
            assert_eq!(ledger.stale_tokens, stale, "token {token}");
        }
    }

    #[test]
    fn only_grants_within_the_window_count() {
        let mut ledger = KeyLedger::new(Window { from: 10, until: 20 });
        for at in [5, 10, 19, 20] {
            let sample = sample(0, at, at, at);
            let counter = ledger.grant(&sample);
            ledger.unlock(&sample, counter);
        }
        assert_eq!((ledger.counted, ledger.longest_streak), (2, 2));
        assert_eq!(ledger.lost_updates(), 0);
    }
}
