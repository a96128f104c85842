//! The ledger of one key, which checks its grants.

use super::{span::Span, tally::Latency, workload::Window};

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
    /// Those of them that followed an unlock.
    pub(crate) after_unlock: u64,
    /// Those of them that went to another task than the last holder.
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
    pub(crate) fn grant(&mut self, span: &Span) -> u64 {
        self.overlaps += u64::from(self.holder.is_some());
        self.stale_tokens += u64::from(span.token.is_some() && span.token <= self.highest_token);
        self.highest_token = span.token.max(self.highest_token);
        self.grants += 1;
        if self.window.contains(span.granted_at) {
            self.count(span);
        }
        self.holder = Some(span.task);
        self.counter
    }

    fn count(&mut self, span: &Span) {
        self.counted += 1;
        let is_same = self.last.is_some_and(|(last, _)| last == span.task);
        self.streak = if is_same { self.streak + 1 } else { 1 };
        self.longest_streak = self.longest_streak.max(self.streak);
        let Some((last, unlock_called_at)) = self.last else { return };
        self.after_unlock += 1;
        if last != span.task {
            self.to_another += 1;
            // A task that called `lock` after the unlock did not wait for it.
            if span.lock_called_at < unlock_called_at && unlock_called_at <= span.granted_at {
                self.handoffs.record(span.granted_at - unlock_called_at);
            }
        }
    }

    /// The holder calls `unlock` and writes the counter, whose value it read at `grant`.
    pub(crate) fn unlock(&mut self, span: &Span, counter_read: u64) {
        self.counter = counter_read + 1;
        self.last = Some((span.task, span.unlock_called_at));
        if self.holder == Some(span.task) {
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

    fn span(task: u32, lock_called_at: u64, granted_at: u64, unlock_called_at: u64) -> Span {
        let unlocked_at = unlock_called_at + 1;
        Span { task, lock_called_at, granted_at, unlock_called_at, unlocked_at, token: None }
    }

    #[test]
    fn handoff_is_from_unlock_to_a_waiter() {
        let mut ledger = KeyLedger::new(ALL);
        for span in [
            span(0, 0, 10, 100),
            span(1, 5, 130, 200),   // waited: 30
            span(2, 210, 215, 300), // called `lock` after the unlock: no hand-off
            span(2, 290, 310, 400), // the same task
        ] {
            let counter = ledger.grant(&span);
            ledger.unlock(&span, counter);
        }
        assert_eq!((ledger.to_another, ledger.handoffs.count()), (2, 1));
        assert_eq!(ledger.handoffs.us(0.5), 0.03);
        assert_eq!((ledger.longest_streak, ledger.counted), (2, 4));
        assert_eq!((ledger.overlaps, ledger.lost_updates(), ledger.stale_tokens), (0, 0, 0));
    }

    #[test]
    fn two_holders_overlap_and_lose_updates() {
        let mut ledger = KeyLedger::new(ALL);
        let spans = [span(0, 0, 1, 3), span(1, 0, 2, 4)];
        let counters = spans.map(|span| ledger.grant(&span));
        for (span, counter) in spans.iter().zip(counters) {
            ledger.unlock(span, counter);
        }
        assert_eq!((ledger.overlaps, ledger.lost_updates()), (1, 1));
    }

    #[test]
    fn token_that_does_not_grow_is_stale() {
        let mut ledger = KeyLedger::new(ALL);
        for (token, stale) in [(5, 0), (6, 0), (6, 1), (4, 2), (7, 2)] {
            let span = Span { token: Some(token), ..span(0, 0, 1, 2) };
            let counter = ledger.grant(&span);
            ledger.unlock(&span, counter);
            assert_eq!(ledger.stale_tokens, stale, "token {token}");
        }
    }

    #[test]
    fn only_grants_within_the_window_count() {
        let mut ledger = KeyLedger::new(Window { from: 10, until: 20 });
        for at in [5, 10, 19, 20] {
            let span = span(0, at, at, at);
            let counter = ledger.grant(&span);
            ledger.unlock(&span, counter);
        }
        assert_eq!((ledger.counted, ledger.longest_streak), (2, 2));
        assert_eq!(ledger.lost_updates(), 0);
    }
}
