//! What every strategy does around a wait for a grant: pure functions of local time.

use std::time::Duration;

use crate::{
    Drift, Error, Instant, MaxWait, granted_deadline,
    lock_table::{Bound, Refusal},
};

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

/// The local deadline of a grant that was found rather than made: an earlier copy of the LOCK was
/// granted, and only what then remained of the lease is known.
///
/// `sent` is read before the request that was answered; `remaining` is what the lease had left on
/// the granting side when it answered.
#[must_use]
pub fn found_deadline(sent: Instant, remaining: Duration, drift: Drift) -> Instant {
    granted_deadline(sent, sent, Duration::ZERO, remaining, drift)
}

/// The error for a LOCK that a table refused. `None` for one that its sender sends again: a stale one as
/// it is, one whose nonce has ended under a fresh nonce.
#[must_use]
pub(crate) fn refusal(reason: Refusal) -> Option<Error> {
    match reason {
        Refusal::Held => Some(Error::Held),
        Refusal::Limit { what, limit } => Some(Error::Limit { what: what.name(), limit }),
        Refusal::Spent(_) | Refusal::Stale { .. } => None,
    }
}

impl Bound {
    /// What is bounded, as [`Error::Limit`] names it.
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
    use crate::lock_table::{ClusterTime, Ended};

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
    fn found_grant_counts_its_remaining_lease() {
        assert_eq!(found_deadline(at(9000), ms(1000), Drift::default()), at(9000 + 1000 - 10 - 1));
        assert_eq!(found_deadline(at(9000), ms(0), Drift::default()), at(8999));
    }

    #[test]
    fn unbounded_wait_has_no_end() {
        assert_eq!(wait_until(at(5), MaxWait::Forever), None);
        assert_eq!(wait_until(at(5), MaxWait::AtMost(ms(7))), Some(at(12)));
    }

    #[test]
    fn only_final_refusals_are_errors() {
        assert!(matches!(refusal(Refusal::Held), Some(Error::Held)));
        for (what, name) in [
            (Bound::WaitersPerKey, "waiters per key"),
            (Bound::Keys, "keys held"),
            (Bound::Nonces, "nonces remembered"),
        ] {
            match refusal(Refusal::Limit { what, limit: 9 }) {
                Some(Error::Limit { what, limit: 9 }) => assert_eq!(what, name),
                other => panic!("{other:?}"),
            }
        }
        assert!(refusal(Refusal::Stale { group: 1, now: ClusterTime(5) }).is_none());
        assert!(refusal(Refusal::Spent(Ended::Expired)).is_none());
    }
}
