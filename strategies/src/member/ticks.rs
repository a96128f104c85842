//! The engine's ticks, as time brings them.

use std::time::Duration;

use crate::clock::Instant;

/// After a stall, the engine gets at most this many of the missed ticks, besides quiet ticks. A
/// pause of its process must not make a leader step down or a follower campaign.
const TICKS_AT_ONCE: u32 = 3;

#[derive(Debug)]
pub(super) struct Ticks {
    every: Duration,
    next: Instant,
}

impl Ticks {
    pub(super) fn new(now: Instant, every: Duration) -> Self {
        Self { every, next: now }
    }

    /// When the next turn must come, if the driver sleeps through `quiet` ticks.
    pub(super) fn next_wake(&self, quiet: u32) -> Instant {
        self.next.after(self.every * quiet)
    }

    /// Takes the ticks that were slept through on purpose, at most `quiet`.
    pub(super) fn take_quiet(&mut self, now: Instant, quiet: u32) -> u32 {
        let ticks = self.expired(now).min(quiet);
        self.next = self.next.after(self.every * ticks);
        ticks
    }

    /// Takes the ticks that are due, of a stall only some.
    pub(super) fn take(&mut self, now: Instant) -> u32 {
        let ticks = self.expired(now).min(TICKS_AT_ONCE);
        if ticks > 0 {
            let next = self.next.after(self.every * ticks);
            self.next = if next > now { next } else { now.after(self.every) };
        }
        ticks
    }

    fn expired(&self, now: Instant) -> u32 {
        if now < self.next {
            return 0;
        }
        let missed = now.since(self.next).as_nanos() / self.every.as_nanos();
        u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1)
    }
}
