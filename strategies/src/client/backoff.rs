//! Back-off: the pause before a request is repeated.

use std::time::Duration;

use crate::random::Ids;

/// The pause after one failure. It doubles with each further one.
const SHORTEST: Duration = Duration::from_millis(5);
/// The longest pause before a request is repeated.
pub(super) const LONGEST: Duration = Duration::from_millis(250);

/// The pause after this many failures: between half of the back-off and all of it, so that many
/// clients do not return in step.
pub(crate) fn back_off(rng: &mut Ids, failures: u32) -> Duration {
    jittered(rng, doubled((SHORTEST, LONGEST), failures))
}

pub(super) fn jittered(rng: &mut Ids, most: Duration) -> Duration {
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
}
