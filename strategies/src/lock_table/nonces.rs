//! The nonces that hold, wait, or ended lately.

use super::{
    Nonces,
    command::{ClusterTime, Seen},
};
use crate::lock::Nonce;

/// How many nonces one step forgets at most. A step after a long silence may find the whole memory
/// outdated, and forgetting two million at once would take longer than an election timeout. Each
/// step remembers fewer than this on average, so the memory does shrink.
pub const FORGOTTEN_PER_STEP: usize = 1024;

/// A table's knowledge of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The nonce holds its key.
    Holds,
    /// The nonce waits for its key.
    Waits {
        /// The waiter's position among all LOCKs that the table accepted.
        position: u64,
    },
    /// The nonce has ended.
    Ended,
}

impl Nonces {
    pub(super) fn get(&self, nonce: Nonce) -> Option<Known> {
        self.known.get(&nonce).copied()
    }

    /// Notes that a nonce holds or waits.
    pub(super) fn set(&mut self, nonce: Nonce, known: Known) {
        self.known.insert(nonce, known);
    }

    /// Remembers that a nonce ended at `now`, which must not be earlier than any end before.
    pub(super) fn end(&mut self, nonce: Nonce, now: ClusterTime) {
        let before = self.known.insert(nonce, Known::Ended);
        assert_ne!(before, Some(Known::Ended), "a nonce ends once");
        self.ended.push_back((now, nonce));
    }

    /// Forgets a live nonce: no copy of its LOCK can arrive, or it may queue again.
    pub(super) fn forget(&mut self, nonce: Nonce) {
        let before = self.known.remove(&nonce);
        assert_ne!(before, Some(Known::Ended), "ended nonces are forgotten by age");
    }

    /// Ensures that a LOCK of this unknown nonce, if it still arrives, grants nothing.
    pub(super) fn withdraw_unknown(&mut self, nonce: Nonce, now: ClusterTime, capacity: u64) {
        if self.known.len() as u64 >= capacity {
            self.floor = Some(now);
        } else {
            self.end(nonce, now);
        }
    }

    /// The time from which on the oldest remembered nonce may be forgotten.
    pub(super) fn next_forget(&self, memory_ms: u64) -> Option<ClusterTime> {
        self.ended.front().map(|(at, _)| at.after(memory_ms).after(1))
    }

    /// Forgets nonces that no accepted LOCK can repeat, the oldest first.
    pub(super) fn purge(&mut self, now: ClusterTime, memory_ms: u64) {
        for _ in 0..FORGOTTEN_PER_STEP {
            let Some((_, nonce)) = self.ended.pop_front_if(|(at, _)| outdated(*at, now, memory_ms))
            else {
                break;
            };
            self.known.remove(&nonce);
        }
        // The memory of a burst is freed, in steps that many pushes pay for.
        let capacity = self.ended.capacity();
        if capacity > FORGOTTEN_PER_STEP && self.ended.len() < capacity / 4 {
            self.ended.shrink_to(capacity / 2);
        }
        self.floor = self.floor.filter(|floor| !outdated(*floor, now, memory_ms));
    }

    /// Whether a LOCK of an unknown nonce is so young that the nonce cannot have been forgotten.
    pub(super) fn accepts(
        &self,
        seen: Seen,
        group: u128,
        now: ClusterTime,
        memory_ms: u64,
    ) -> bool {
        match seen {
            Seen::Now => true,
            Seen::At { group: other, time } => {
                other == group
                    && !outdated(time, now, memory_ms)
                    && self.floor.is_none_or(|floor| time > floor)
            }
        }
    }
}

/// The one rule of age, so that accepting and forgetting are complementary.
const fn outdated(at: ClusterTime, now: ClusterTime, memory_ms: u64) -> bool {
    at.after(memory_ms).0 < now.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_burst_is_freed() {
        let mut nonces = Nonces::default();
        (0..100_000).for_each(|nonce| nonces.end(Nonce::from_u128(nonce), ClusterTime(0)));
        // The last nonces, as on a member that is never idle.
        (0..).find(|_| {
            nonces.purge(ClusterTime(2), 1);
            nonces.ended.len() <= FORGOTTEN_PER_STEP
        });
        let capacity = nonces.ended.capacity();
        assert!(capacity <= 8 * FORGOTTEN_PER_STEP, "{capacity}");
    }
}
