//! Generated numbers: from the system, or from a seed.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{fork::unshared_random, lock::Nonce};

/// A hash of its inputs (splitmix64 over them in turn): for a number that depends on the seed, and
/// not on how many were generated before.
pub(crate) fn mix(inputs: &[u64]) -> u64 {
    inputs.iter().fold(0x9e37_79b9_7f4a_7c15, |state, input| {
        let mut z = (state ^ input).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Ids from a seed: each differs from the ones before.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    seed: u64,
    count: u64,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, count: 0 }
    }

    /// A 64-bit id that is not zero.
    pub(crate) fn next(&mut self) -> u64 {
        self.count += 1;
        mix(&[self.seed, self.count]).max(1)
    }

    /// A 128-bit id that is not zero.
    pub(crate) fn next_wide(&mut self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }
}

/// Generates a handle's nonces and jitter: from the system, unless a seed was given.
#[derive(Debug)]
pub(crate) enum Random {
    /// The generators of threads, which a fork copies, with a mask that it does not share.
    System([u8; 10]),
    Seeded(Mutex<Ids>),
}

impl Random {
    pub(crate) fn system() -> Self {
        Self::System(unshared_random())
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        // The node uses the seed itself.
        Self::Seeded(Mutex::new(Ids::new(mix(&[seed, 1]))))
    }

    pub(crate) fn nonce(&self) -> Nonce {
        match self {
            Self::System(mask) => Nonce::masked(mask),
            Self::Seeded(ids) => {
                let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
                Nonce::generated(ids.next_wide())
            }
        }
    }

    /// A span of at least `low` and less than `high`, to the microsecond.
    pub(crate) fn between(&self, low: Duration, high: Duration) -> Duration {
        let number = match self {
            Self::System(_) => rand::random(),
            Self::Seeded(ids) => ids.lock().unwrap_or_else(PoisonError::into_inner).next(),
        };
        let span = u64::try_from((high - low).as_micros()).unwrap_or(u64::MAX).max(1);
        low + Duration::from_micros(number % span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_their_range() {
        let ms = Duration::from_millis;
        for random in [Random::system(), Random::seeded(7)] {
            let count: Vec<Duration> = (0..2_000).map(|_| random.between(ms(5), ms(25))).collect();
            assert!(count.iter().all(|span| (ms(5)..ms(25)).contains(span)), "{random:?}");
            assert!(count.iter().any(|span| *span < ms(6)), "{random:?}");
            assert!(count.iter().any(|span| *span >= ms(24)), "{random:?}");
        }
    }

    #[test]
    fn ids_differ_in_both_halves() {
        let mut ids = Ids::new(7);
        let mut again = Ids::new(7);
        let wide = ids.next_wide();
        assert_eq!((wide >> 64, wide & u128::from(u64::MAX)), {
            let (high, low) = (again.next(), again.next());
            (u128::from(high), u128::from(low))
        });
        assert_ne!(ids.next(), ids.next());
        assert_ne!(ids.next_wide(), wide);
    }

    /// A handle generates nonces, and its node group ids and incarnations, from one seed.
    #[test]
    fn handle_and_node_generate_different_ids() {
        assert_ne!(Random::seeded(7).nonce(), Nonce::from_u128(Ids::new(7).next_wide()));
    }
}
