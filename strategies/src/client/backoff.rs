//! Back-off: the pause before a request, or an attempt to connect, is repeated.

use std::time::Duration;

use crate::random::Ids;

/// The pause after one failure. It doubles with each further one.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest pause before a request is repeated.
const LONGEST: Duration = Duration::from_millis(250);
/// The longest pause before another attempt to connect: many clients must not wear a server down
/// that refuses them all.
#[cfg(any(feature = "http", feature = "redis"))]
const LONGEST_RECONNECT: Duration = Duration::from_secs(2);
/// After this many failures in a row, which take about eight seconds, the pause before another
/// attempt to connect grows beyond [`LONGEST`].
#[cfg(any(feature = "http", feature = "redis"))]
const RECONNECTS_MANY: u32 = 45;

/// The pause after this many failures: between half of the back-off and all of it, so that many
/// clients do not return in step.
pub(crate) fn back_off(rng: &mut Ids, failures: u32) -> Duration {
    jittered(rng, doubled((SHORTEST, LONGEST), failures))
}

/// The pause before another attempt to connect, after this many failures.
#[cfg(any(feature = "http", feature = "redis"))]
pub(crate) fn reconnect_after(rng: &mut Ids, failures: u32) -> Duration {
    match failures.checked_sub(RECONNECTS_MANY) {
        None => back_off(rng, failures),
        Some(more) => jittered(rng, doubled((LONGEST, LONGEST_RECONNECT), more)),
    }
}

fn jittered(rng: &mut Ids, most: Duration) -> Duration {
    let half = u64::try_from(most.as_micros() / 2).unwrap_or(u64::MAX).max(1);
    most / 2 + Duration::from_micros(rng.next() % half)
}

/// The first of `range`, doubled once for each repetition after the first, up to the second.
pub(super) fn doubled((least, most): (Duration, Duration), repetitions: u32) -> Duration {
    least.saturating_mul(1 << repetitions.saturating_sub(1).min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn back_off_doubles_up_to_its_limit() {
        let mut ids = Ids::new(7);
        for (failures, most) in [(1, 5), (2, 10), (3, 20), (6, 160), (7, 250), (1_000, 250)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = back_off(&mut ids, failures);
                assert!((most / 2..=most).contains(&pause), "{failures}: {pause:?}");
            }
            let pauses: BTreeSet<Duration> =
                (0..100).map(|_| back_off(&mut ids, failures)).collect();
            assert!(pauses.len() > 50, "they do not return in step: {}", pauses.len());
        }
    }

    #[test]
    fn reconnects_of_a_long_outage_slow_down() {
        let mut ids = Ids::new(7);
        let mut pauses = |failures: std::ops::Range<u32>| -> Duration {
            failures.map(|failures| reconnect_after(&mut ids, failures)).sum()
        };
        let seconds = pauses(1..45).as_secs();
        assert!((6..=10).contains(&seconds), "{seconds} s of short pauses");
        let minute = pauses(1_000..1_040).as_secs();
        assert!((40..=80).contains(&minute), "{minute} s for forty attempts");
    }
}
