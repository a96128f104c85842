//! The ticks of the engine, as time brings them, and the named timers of a node.
//!
//! Timers expire at a tick: a tick is the finest time of a member.

use std::time::Duration;

use crate::clock::Instant;

/// The timers of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The next presence is sent.
    Presence,
    /// A pledge, an invitation or a rest ends.
    Formation,
    /// A group that another process belongs to may still exist: this process forms no second one.
    ExistingGroup,
    /// The names that keep this process without a group or a leader are reported.
    MissingReport,
    /// Lists of members that differ are warned of.
    DifferenceReport,
    /// A group that has had no leader for this long asks its members how they stand.
    LeaderlessAsk,
    /// A later configuration can no longer arrive: a replaced incarnation counts as ended.
    LeaderlessResign,
    /// A member that joins and receives nothing from its group starts over.
    Join,
    /// A leader looks for silent processes among the waiters.
    SilenceCheck,
}

impl Timer {
    const COUNT: usize = Self::SilenceCheck as usize + 1;
}

/// When each timer expires; a timer that is not set never does.
#[derive(Debug, Default)]
pub(super) struct Timers([Option<Instant>; Timer::COUNT]);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    /// Whether a timer was set and its time has not come.
    pub(super) fn is_running(&self, timer: Timer, now: Instant) -> bool {
        self.0[timer as usize].is_some_and(|at| now < at)
    }

    /// Whether a timer was set and its time has come. It stays expired until it is set or stopped.
    pub(super) fn has_expired(&self, timer: Timer, now: Instant) -> bool {
        self.0[timer as usize].is_some_and(|at| at <= now)
    }
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timer_expires_unless_stopped() {
        let (mut timers, at) =
            (Timers::default(), |ms| Instant::from_origin(Duration::from_millis(ms)));
        assert!(!timers.has_expired(Timer::Join, at(1_000)), "it was never set");
        timers.set(Timer::Join, at(5));
        assert!(!timers.has_expired(Timer::Join, at(4)));
        assert!(timers.is_running(Timer::Join, at(4)) && !timers.is_running(Timer::Join, at(5)));
        assert!(timers.has_expired(Timer::Join, at(5)) && timers.has_expired(Timer::Join, at(9)));
        assert!(!timers.has_expired(Timer::Presence, at(9)), "each has a time of its own");
        timers.set(Timer::Join, at(20));
        assert!(!timers.has_expired(Timer::Join, at(9)));
        timers.stop(Timer::Join);
        assert!(!timers.has_expired(Timer::Join, at(30)));
    }
}
