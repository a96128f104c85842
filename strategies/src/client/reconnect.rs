//! When a handle connects again, and how long an attempt may take.

use std::{mem, time::Duration};

use super::{
    backoff::{LONGEST, back_off, doubled, jittered},
    commands::ServerState,
};
use crate::{clock::Instant, random::Ids};

/// The first reconnect attempt gets this part of `connect_timeout`; each retry doubles it.
const FIRST_PART: u32 = 5;
/// A connection that lasted this long ends a series of failures.
const STEADY: Duration = Duration::from_secs(1);
/// The longest pause before another attempt to connect: many clients must not wear a server down
/// that refuses them all.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// After this many failures in a row, which take about eight seconds, the pause before another
/// attempt to connect grows beyond [`LONGEST`].
const FAILURES_MANY: u32 = 45;

/// The attempts of a handle to connect.
pub(crate) struct Reconnects {
    connect_timeout: Duration,
    ids: Ids,
    /// Whether there was a connection before.
    was_up: bool,
    /// Attempts that have failed, and connections that ended soon, since the last steady one.
    failures: u32,
}

impl Reconnects {
    pub(crate) fn new(connect_timeout: Duration, ids: Ids) -> Self {
        Self { connect_timeout, ids, was_up: false, failures: 0 }
    }

    /// How long this attempt may take. The first attempts after a connection, and those with other
    /// nodes to try, are shorter: only a new attempt helps against a server that hangs or a lost
    /// packet.
    pub(crate) fn limit(&self, has_other_nodes: bool) -> Duration {
        let limit = self.connect_timeout;
        match self.was_up || has_other_nodes {
            true => (limit / FIRST_PART * (1 << self.failures.saturating_sub(1).min(8))).min(limit),
            false => limit,
        }
    }

    /// Notes a connection. A server that started again, or another one, may have lost all locks.
    pub(crate) fn opened(&mut self) -> ServerState {
        match mem::replace(&mut self.was_up, true) {
            true => ServerState::MissedEvents,
            false => ServerState::Same,
        }
    }

    /// Notes the end of a connection. Returns when the next attempt begins.
    pub(crate) fn ended(&mut self, now: Instant, since: Instant) -> Instant {
        if since.after(STEADY) <= now {
            self.failures = 0;
        }
        self.failed(now)
    }

    /// Notes an attempt that has failed. Returns when the next one begins.
    pub(crate) fn failed(&mut self, now: Instant) -> Instant {
        self.failures = self.failures.saturating_add(1);
        now.after(pause(&mut self.ids, self.failures))
    }

    /// How many attempts have failed, and connections ended soon, since the last steady one.
    #[cfg(feature = "http")]
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

/// The pause before another attempt to connect, after this many failures.
fn pause(ids: &mut Ids, failures: u32) -> Duration {
    match failures.checked_sub(FAILURES_MANY) {
        None => back_off(ids, failures),
        Some(more) => jittered(ids, doubled((LONGEST, LONGEST_PAUSE), more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnects_of_a_long_outage_slow_down() {
        let mut ids = Ids::new(7);
        let mut pauses = |failures: std::ops::Range<u32>| -> Duration {
            failures.map(|failures| pause(&mut ids, failures)).sum()
        };
        let seconds = pauses(1..45).as_secs();
        assert!((6..=10).contains(&seconds), "{seconds} s of short pauses");
        let minute = pauses(1_000..1_040).as_secs();
        assert!((40..=80).contains(&minute), "{minute} s for forty attempts");
    }

    #[test]
    fn attempts_grow_until_a_connection_lasts() {
        let second = Duration::from_secs(1);
        let (mut reconnects, now) = (Reconnects::new(5 * second, Ids::new(7)), Instant::default());
        assert_eq!([false, true].map(|it| reconnects.limit(it)), [5 * second, second]);
        reconnects.opened();
        let later = now.after(STEADY);
        reconnects.ended(later, later);
        assert_eq!(reconnects.limit(false), second);
        for limit in [2, 4, 5] {
            reconnects.failed(later);
            assert_eq!(reconnects.limit(false), limit * second);
        }
        reconnects.ended(later, now);
        assert_eq!(reconnects.limit(false), second);
    }
}
