//! The arithmetic of leases and waits on the holder's side (contract, rules 2 and 4): the local
//! deadline is never later than the granting side's expiry.

use std::time::Duration;

use crate::{
    clock::Instant,
    defaults,
    error::Error,
    lock::Lock,
    options::{MaxWait, check_option, check_span},
};

/// The granting side counts whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// The bound on how far two clocks' rates may differ, in parts per million; 1 % by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    ppm: u32,
}

impl Default for Drift {
    fn default() -> Self {
        Self { ppm: defaults::DRIFT_PPM }
    }
}

impl Drift {
    /// A bound of `ppm` parts per million, at most 400,000. At the limit, leases of less than 10 ms
    /// are refused, because half of a lease must remain after drift and rounding; at the default,
    /// leases of less than 3 ms.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] naming `drift`.
    pub fn from_ppm(ppm: u32) -> Result<Self, Error> {
        let value = format_args!("{ppm} ppm");
        check_option("drift", ppm <= 400_000, value, "0 to 400000 ppm")?;
        Ok(Self { ppm })
    }

    /// How far two clocks can drift apart over `span`, rounded up; at most some 584 years.
    #[must_use]
    pub fn over(self, span: Duration) -> Duration {
        const MILLION: u64 = 1_000_000;
        let (nanos, ppm) = (span.as_nanos(), u64::from(self.ppm));
        let drift = match u64::try_from(nanos).ok().and_then(|nanos| nanos.checked_mul(ppm)) {
            Some(product) => product.div_ceil(MILLION),
            // For centuries: 128-bit division is too slow for every lock.
            None => u64::try_from(nanos.saturating_mul(ppm.into()).div_ceil(MILLION.into()))
                .unwrap_or(u64::MAX),
        };
        Duration::from_nanos(drift)
    }
}

/// Checks that at least half of the lease can be left after drift and rounding, and that it is at
/// most `most`. A lock with less is never returned (contract, rule 2).
pub(crate) fn check_lasting(duration: Duration, drift: Drift, most: Duration) -> Result<(), Error> {
    let least = 1_000_000_u64.div_ceil(500_000 - u64::from(drift.ppm));
    let duration = Duration::from_millis(whole_ms(duration));
    check_span("duration", duration, Duration::from_millis(least), most)
}

/// The local deadline of a fresh grant:
/// `min(sent + waited, received) + duration − drift − 1 ms`.
///
/// `sent` is read before the first send of the nonce; `waited` is `granted_at − asked_at`, both
/// on the granting side's clock; the drift is taken over the whole span of wait and lease.
#[must_use]
pub fn granted_deadline(
    sent: Instant,
    received: Instant,
    waited: Duration,
    duration: Duration,
    drift: Drift,
) -> Instant {
    let start = sent.after(waited).min(received);
    start.after(duration).before(drift.over(waited.saturating_add(duration))).before(ROUNDING)
}

/// The local deadline after a successful extend sent at `sent`: it never moves back.
#[must_use]
pub fn extended_deadline(
    present: Option<Instant>,
    sent: Instant,
    duration: Duration,
    drift: Drift,
) -> Instant {
    let fresh = sent.after(duration).before(drift.over(duration)).before(ROUNDING);
    present.map_or(fresh, |present| present.max(fresh))
}

/// The lock after a successful extend sent at `sent`, whose reply is read at `now`.
///
/// # Errors
///
/// [`Error::Expired`] if the reply is read after the end of the extended lease: the process was
/// stopped, or the lease is shorter than the drift. [`Error::Unknown`] if the lock has no deadline,
/// because its lease may be longer than known here.
pub fn extended(
    lock: &Lock,
    sent: Instant,
    duration: Duration,
    drift: Drift,
    now: Instant,
) -> Result<Lock, Error> {
    let deadline = extended_deadline(lock.deadline(), sent, duration, drift);
    if deadline <= now {
        return Err(lock.deadline().map_or(Error::Unknown, |_| Error::Expired));
    }
    Ok(lock.with_deadline(deadline))
}

/// The error for a lock that no longer holds its key: [`Error::NotHolder`] before the local
/// deadline, [`Error::Expired`] from it on.
#[must_use]
pub fn not_held(lock: &Lock, now: Instant) -> Error {
    match lock.deadline() {
        Some(deadline) if now >= deadline => Error::Expired,
        _ => Error::NotHolder,
    }
}

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
    fn immediate_grant_counts_from_the_send() {
        let deadline = granted_deadline(at(1000), at(1500), ms(0), ms(10_000), Drift::default());
        assert_eq!(deadline, at(1000 + 10_000 - 100 - 1));
    }

    #[test]
    fn waiter_counts_and_drifts_over_its_wait() {
        let deadline = granted_deadline(at(0), at(6000), ms(5000), ms(10_000), Drift::default());
        assert_eq!(deadline, at(5000 + 10_000 - 150 - 1));
    }

    #[test]
    fn extension_read_too_late_gives_no_lock() {
        let lock = |until| Lock::new("k", crate::lock::Nonce::from_u128(1), 1, Some(at(until)));
        let read = |lock: Lock, now| extended(&lock, at(100), ms(1000), Drift::default(), at(now));
        let longer = read(lock(500), 1088).unwrap();
        assert_eq!(longer.deadline(), Some(at(1089)));
        assert!(matches!(read(lock(500), 1089), Err(Error::Expired)));
        assert_eq!(read(lock(2000), 1999).unwrap().deadline(), Some(at(2000)), "never shortened");
        assert!(matches!(read(lock(2000), 2000), Err(Error::Expired)));
        let transferred = Lock::new("k", crate::lock::Nonce::from_u128(1), 1, None);
        assert!(matches!(read(transferred, 1089), Err(Error::Unknown)), "its lease may be longer");
    }

    #[test]
    fn grant_counts_from_the_receipt_at_the_latest() {
        let deadline = granted_deadline(at(0), at(4000), ms(5000), ms(1000), Drift::default());
        assert_eq!(deadline, at(4000 + 1000 - 60 - 1));
    }

    #[test]
    fn extension_never_moves_the_deadline_back() {
        let present = Some(at(50_000));
        assert_eq!(extended_deadline(present, at(0), ms(1000), Drift::default()), at(50_000));
        assert_eq!(extended_deadline(None, at(0), ms(1000), Drift::default()), at(989));
    }

    #[test]
    fn lease_of_which_less_than_half_can_be_left_is_refused() {
        for (ppm, least) in [(0, 2), (10_000, 3), (200_000, 4), (250_000, 4), (400_000, 10)] {
            let drift = Drift::from_ppm(ppm).unwrap();
            let fresh = |lease| extended_deadline(None, at(0), ms(lease), drift);
            assert!(lasts(fresh(least), at(0), ms(least)), "{ppm}");
            assert!(!lasts(fresh(least - 1), at(0), ms(least - 1)), "{ppm}");
            let most = ms(60_000);
            check_lasting(ms(least), drift, most).unwrap();
            let below = ms(least) - Duration::from_nanos(1);
            for lease in [below, most + ms(1)] {
                let refused = check_lasting(lease, drift, most);
                let named = matches!(&refused, Err(Error::InvalidOptions { field: "duration", limit, .. })
                    if *limit == format!("{least}ms to 1m"));
                assert!(named, "{ppm} {lease:?}: {refused:?}");
            }
        }
    }

    #[test]
    fn drift_is_rounded_up_over_any_span() {
        let drift = Drift::from_ppm(10_000).unwrap();
        assert_eq!(drift.over(Duration::from_nanos(1)), Duration::from_nanos(1));
        assert_eq!(drift.over(Duration::from_nanos(101)), Duration::from_nanos(2));
        let century = Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(drift.over(century), century / 100);
        assert_eq!(drift.over(Duration::MAX), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn lost_lock_expires_at_its_deadline() {
        let lock = Lock::new("k", crate::lock::Nonce::from_u128(1), 1, Some(at(10)));
        assert!(matches!(not_held(&lock, at(9)), Error::NotHolder));
        assert!(matches!(not_held(&lock, at(10)), Error::Expired));
    }
}
