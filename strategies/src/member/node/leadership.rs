//! The leader as a node knows it.

use std::time::Duration;

use crate::{
    clock::Instant,
    member::timers::{Timer, Timers},
};

/// A member that has had no leader for this long asks the others for their membership state.
const LEADERLESS_ASKS: Duration = Duration::from_millis(500);
/// A member that has had no leader for this long, and for four of the longest election timeouts,
/// receives no later configuration.
const LEADERLESS: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct Leadership {
    leader: Option<u64>,
    /// When the leader last changed, or this one ran again after a standstill.
    since: Instant,
    /// When this leader last looked for silent processes.
    looked_at: Instant,
}

impl Leadership {
    pub(super) fn leader(&self) -> Option<u64> {
        self.leader
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// This leader looks for processes that were silent for `ttl`: what it could not hear while it
    /// stood still itself does not count.
    pub(super) fn look(&mut self, now: Instant, ttl: Duration) {
        if now.since(self.looked_at) >= ttl / 2 {
            self.since = now;
        }
        self.looked_at = now;
    }

    /// Follows the group's leader; `longest` is the longest election timeout. Returns whether it
    /// has changed.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        leader: Option<u64>,
        longest: Duration,
        timers: &mut Timers,
    ) -> bool {
        if leader == self.leader {
            return false;
        }
        self.leader = leader;
        self.since = now;
        if leader.is_some() {
            timers.stop(Timer::LeaderlessAsk);
            timers.stop(Timer::LeaderlessResign);
        } else {
            Self::expect_leader(now, longest, timers);
        }
        true
    }

    /// The group has no leader from now on.
    pub(super) fn expect_leader(now: Instant, longest: Duration, timers: &mut Timers) {
        timers.set(Timer::LeaderlessAsk, now.after(LEADERLESS_ASKS));
        let limit = LEADERLESS.max(longest.saturating_mul(4));
        timers.set(Timer::LeaderlessResign, now.after(limit));
    }

    /// The group was left.
    pub(super) fn clear(&mut self) {
        *self = Self { since: self.since, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_elections_are_waited_for() {
        let at = |seconds| Instant::default().after(Duration::from_secs(seconds));
        for (longest, limit) in [(300, 3), (12_000, 48)] {
            let mut timers = Timers::default();
            Leadership::expect_leader(at(0), Duration::from_millis(longest), &mut timers);
            let resigns = |seconds| timers.has_expired(Timer::LeaderlessResign, at(seconds));
            assert_eq!((resigns(limit - 1), resigns(limit)), (false, true));
        }
    }
}
