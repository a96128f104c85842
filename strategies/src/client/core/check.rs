//! When a waiter is checked at a granting side whose events may be lost.

use std::time::Duration;

use crate::random::Ids;

/// How long after the expected end of the holder's lease a waiter is checked.
const CHECK_AFTER: Duration = Duration::from_millis(1);

/// How long until a waiter is checked: soon after the holder's lease ends as far as is known;
/// before much of a lease granted to itself has passed unnoticed; and after `longest` at most.
///
/// A granting side may count checks as signs of life, and sets `longest` accordingly.
pub(super) fn interval(
    holder_lease: Option<Duration>,
    lease: Duration,
    longest: Duration,
    rng: &mut Ids,
) -> Duration {
    // From 0 to 1, so that many waiters are not checked in step.
    let jitter =
        f64::from(u32::try_from(rng.next() >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    let latest = (lease / 3).min(longest).mul_f64(1.0 - jitter / 5.0);
    let after = holder_lease.unwrap_or(latest).saturating_add(CHECK_AFTER.mul_f64(1.0 + jitter));
    after.min(latest).max(CHECK_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiter_checks_keep_to_their_bounds() {
        let mut rng = Ids::new(7);
        let (ms, secs) = (Duration::from_millis, Duration::from_secs);
        for _ in 0..1_000 {
            for (remaining, lease, least, most) in [
                // The holder's lease ends first.
                (Some(ms(50)), secs(60), ms(51), ms(52)),
                (Some(ms(0)), secs(60), ms(1), ms(2)),
                // The interval is a third of the lease, at most a second, at least a millisecond.
                (Some(secs(60)), ms(30), ms(8), ms(10)),
                (Some(secs(60)), secs(60), ms(800), ms(1_000)),
                (None, secs(60), ms(800), ms(1_000)),
                (Some(secs(60)), ms(1), ms(1), ms(1)),
            ] {
                let after = interval(remaining, lease, secs(1), &mut rng);
                assert!((least..=most).contains(&after), "{remaining:?} {lease:?} {after:?}");
            }
        }
        assert!(interval(None, secs(60), ms(100), &mut rng) <= ms(100), "the longest time");
    }
}
