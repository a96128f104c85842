//! The arithmetic of waits: pure functions of local time.

use std::time::Duration;

use crate::{clock::Instant, lock_table::Bound, max_wait::MaxWait};

/// Whole milliseconds, as leases are kept: a fraction is cut off.
#[must_use]
pub fn whole_ms(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1000).saturating_add(duration.subsec_millis().into())
}

/// When a call that began at `sent` must end; `None` for an unbounded wait.
#[must_use]
pub fn wait_until(sent: Instant, max_wait: MaxWait) -> Option<Instant> {
    match max_wait {
        MaxWait::AtMost(wait) => Some(sent.after(wait)),
        MaxWait::Forever => None,
    }
}

/// Whether a lease may be handed out: at least half of `duration` remains before `deadline`
/// (contract, rule 2). If not, it is extended first, or withdrawn.
#[must_use]
pub fn lasts(deadline: Instant, now: Instant, duration: Duration) -> bool {
    deadline.since(now).saturating_mul(2) >= duration
}

impl Bound {
    /// The name in [`Error::Limit`](crate::Error::Limit).
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WaitersPerKey => "waiters per key",
            Self::Keys => "keys held",
            Self::Nonces => "nonces remembered",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn exactly_half_of_a_lease_lasts() {
        assert!(lasts(at(500), at(0), ms(1000)));
        assert!(!lasts(at(499), at(0), ms(1000)));
        assert!(!lasts(at(10), at(20), ms(1)), "a deadline that has passed");
    }

    #[test]
    fn unbounded_wait_has_no_end() {
        assert_eq!(wait_until(at(5), MaxWait::Forever), None);
        assert_eq!(wait_until(at(5), MaxWait::AtMost(ms(7))), Some(at(12)));
    }

    #[test]
    fn bounds_are_named_in_the_plural() {
        let names = [Bound::WaitersPerKey, Bound::Keys, Bound::Nonces].map(Bound::name);
        assert_eq!(names, ["waiters per key", "keys held", "nonces remembered"]);
    }
}
