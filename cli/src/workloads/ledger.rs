//! What happened to one key.

use super::{tally::Latency, workload::Window};

/// What happened to one key, grant by grant, in the order of time.
///
/// Between `granted` and `released` the holder alone should be here. The counter is read by the one
/// and written by the other, as by a program that relies on its lock: what is lost was not excluded.
#[derive(Debug)]
pub(crate) struct KeyLedger {
    window: Window,
    holder: Option<u32>,
    /// Who released last, and when it called unlock.
    last: Option<(u32, u64)>,
    token: Option<u64>,
    counter: u64,
    grants: u64,
    streak: u64,
    counted: u64,
    /// Of those counted, the ones that came after somebody's release.
    pub(crate) followed: u64,
    pub(crate) handed_over: u64,
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
            token: None,
            counter: 0,
            grants: 0,
            streak: 0,
            counted: 0,
            followed: 0,
            handed_over: 0,
            longest_streak: 0,
            handoffs: Latency::default(),
            overlaps: 0,
            stale_tokens: 0,
        }
    }

    /// A task that asked at `asked` was granted the key at `at`. Returns the counter as it read it.
    pub(crate) fn granted(&mut self, task: u32, asked: u64, at: u64, token: Option<u64>) -> u64 {
        self.overlaps += u64::from(self.holder.is_some());
        self.stale_tokens += u64::from(token.is_some() && token <= self.token);
        self.token = token.max(self.token);
        self.grants += 1;
        if self.window.has(at) {
            self.count(task, asked, at);
        }
        self.holder = Some(task);
        self.counter
    }

    fn count(&mut self, task: u32, asked: u64, at: u64) {
        self.counted += 1;
        let same = self.last.is_some_and(|(last, _)| last == task);
        self.streak = if same { self.streak + 1 } else { 1 };
        self.longest_streak = self.longest_streak.max(self.streak);
        let Some((last, released)) = self.last else { return };
        self.followed += 1;
        if last != task {
            self.handed_over += 1;
            // Whoever asked later than the release did not wait for it.
            if asked < released && released <= at {
                self.handoffs.record(at - released);
            }
        }
    }

    /// The holder calls unlock; `seen` is what `granted` told it.
    pub(crate) fn released(&mut self, task: u32, at: u64, seen: u64) {
        self.counter = seen + 1;
        self.last = Some((task, at));
        if self.holder == Some(task) {
            self.holder = None;
        }
    }

    /// How many increments of the counter were overwritten; every grant must have been released.
    pub(crate) fn lost_updates(&self) -> u64 {
        self.grants - self.counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Window = Window { from: 0, until: u64::MAX };

    #[test]
    fn handoff_counts_from_the_release_to_a_waiter_that_had_asked_before() {
        let mut ledger = KeyLedger::new(ALL);
        let mut pass = |task, asked, at, released| {
            let seen = ledger.granted(task, asked, at, None);
            ledger.released(task, released, seen);
        };
        pass(0, 0, 10, 100);
        pass(1, 5, 130, 200); // waited: 30
        pass(2, 210, 215, 300); // asked after the release: handed over, but not from hand to hand
        pass(2, 290, 310, 400); // the same task
        assert_eq!((ledger.handed_over, ledger.handoffs.count()), (2, 1));
        assert_eq!(ledger.handoffs.us(0.5), 0.03);
        assert_eq!((ledger.longest_streak, ledger.counted), (2, 4));
        assert_eq!((ledger.overlaps, ledger.lost_updates(), ledger.stale_tokens), (0, 0, 0));
    }

    #[test]
    fn two_holders_are_seen_by_the_overlap_and_by_the_update_that_is_lost() {
        let mut ledger = KeyLedger::new(ALL);
        let first = ledger.granted(0, 0, 1, None);
        let second = ledger.granted(1, 0, 2, None);
        ledger.released(0, 3, first);
        ledger.released(1, 4, second);
        assert_eq!((ledger.overlaps, ledger.lost_updates()), (1, 1));
    }

    #[test]
    fn token_that_does_not_grow_is_seen() {
        let mut ledger = KeyLedger::new(ALL);
        for (token, stale) in [(5, 0), (6, 0), (6, 1), (4, 2), (7, 2)] {
            let seen = ledger.granted(0, 0, 1, Some(token));
            ledger.released(0, 2, seen);
            assert_eq!(ledger.stale_tokens, stale, "token {token}");
        }
    }

    #[test]
    fn only_what_is_granted_within_the_window_counts() {
        let mut ledger = KeyLedger::new(Window { from: 10, until: 20 });
        for at in [5, 10, 19, 20] {
            let seen = ledger.granted(0, at, at, None);
            ledger.released(0, at, seen);
        }
        assert_eq!((ledger.counted, ledger.longest_streak), (2, 2));
        assert_eq!(ledger.lost_updates(), 0);
    }
}
