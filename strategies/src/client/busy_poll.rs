//! Busy-polling: checking for a reply before the task sleeps.
//!
//! A core with nothing to do sleeps, and waking it often takes longer than a server nearby takes to
//! reply. A driver that has sent a request therefore polls for a while, yields to other tasks in
//! between, and sleeps only then. Where replies come later than that, nearly every request goes
//! without.

use std::time::Duration;

use crate::clock::Instant;

/// The longest polling: for longer waits, sleeping costs next to nothing.
#[cfg(any(feature = "raft", feature = "redis"))]
pub(crate) const BUSY_POLL_MAX: Duration = Duration::from_millis(1);
/// How many requests at most skip polling before the next polls. It bounds the cost if replies are
/// always late.
const WITHOUT_MAX: u32 = 63;
/// How often a driver polls at most, in case the clock stands still.
const POLLS_MAX: u32 = 10_000;

/// Whether to poll, by how soon replies came.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    limit: Duration,
    polling: Option<Polling>,
    /// How many requests skip polling after a late reply.
    without: u32,
    /// How many of them are left.
    left: u32,
}

#[derive(Debug)]
struct Polling {
    until: Instant,
    polls: u32,
}

impl BusyPoll {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, polling: None, without: 0, left: 0 }
    }

    pub(crate) fn is_polling(&self) -> bool {
        self.polling.is_some()
    }

    /// A request was sent while no other was in flight.
    pub(crate) fn begin(&mut self, now: Instant) {
        if self.left > 0 {
            self.left -= 1;
        } else if !self.limit.is_zero() {
            self.polling = Some(Polling { until: now.after(self.limit), polls: 0 });
        }
    }

    /// No reply has come yet.
    pub(crate) fn poll(&mut self, now: Instant) {
        if let Some(polling) = &mut self.polling {
            polling.polls += 1;
            if now >= polling.until || polling.polls >= POLLS_MAX {
                self.polling = None;
                self.without = (2 * self.without + 1).min(WITHOUT_MAX);
                self.left = self.without;
            }
        }
    }

    /// No request is in flight.
    pub(crate) fn replied(&mut self) {
        if self.polling.take().is_some() {
            (self.without, self.left) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defaults::BUSY_POLL;

    fn at(micros: u64) -> Instant {
        Instant::from_origin(Duration::from_micros(micros))
    }

    #[test]
    fn polling_ends_at_its_limit() {
        let mut busy = BusyPoll::new(BUSY_POLL);
        busy.begin(at(7));
        busy.poll(at(106));
        assert!(busy.is_polling());
        busy.poll(at(107));
        assert!(!busy.is_polling());
    }

    #[test]
    fn stopped_clock_does_not_poll_on() {
        let mut busy = BusyPoll::new(BUSY_POLL);
        busy.begin(at(0));
        let polls = (0..)
            .take_while(|_| {
                busy.poll(at(0));
                busy.is_polling()
            })
            .count();
        assert_eq!(polls, 9_999);
    }

    #[test]
    fn late_replies_suspend_most_polling() {
        let mut busy = BusyPoll::new(BUSY_POLL);
        let mut polled = Vec::new();
        for request in 0..1_000 {
            busy.begin(at(request));
            if busy.is_polling() {
                polled.push(request);
                busy.poll(at(request + 1_000));
            }
        }
        assert_eq!(polled[..8], [0, 2, 6, 14, 30, 62, 126, 190]);
        while !busy.is_polling() {
            busy.begin(at(0));
        }
        busy.replied();
        assert!(!busy.is_polling());
        busy.begin(at(0));
        assert!(busy.is_polling(), "one reply in time suffices");
        busy.poll(at(1_000));
        busy.begin(at(0));
        busy.begin(at(0));
        assert!(busy.is_polling(), "it skips one request, as at first");
    }

    #[test]
    fn a_limit_of_zero_never_polls() {
        let mut busy = BusyPoll::new(Duration::ZERO);
        busy.begin(at(0));
        assert!(!busy.is_polling());
    }
}
