use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rand::RngExt;

use crate::Nonce;

/// A well-mixed function of its inputs (splitmix64 over them in turn): where a drawn number must be
/// the same for the same seed, whatever else was drawn before.
pub(super) fn mix(inputs: &[u64]) -> u64 {
    inputs.iter().fold(0x9e37_79b9_7f4a_7c15, |state, input| {
        let mut z = (state ^ input).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// Ids from a seed: each differs from the ones before.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    seed: u64,
    drawn: u64,
}

impl Ids {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A 64-bit id that is not zero.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(&[self.seed, self.drawn]).max(1)
    }

    /// A 128-bit id that is not zero.
    pub(super) fn draw_wide(&mut self) -> u128 {
        (u128::from(self.draw()) << 64) | u128::from(self.draw())
    }
}

/// What a handle draws: nonces and jitter. From the system, unless a seed was given.
#[derive(Debug)]
pub(super) enum Draws {
    System,
    Seeded(Mutex<Ids>),
}

impl Draws {
    pub(super) fn seeded(seed: u64) -> Self {
        // Another stream than the node's, which draws from the seed itself.
        Self::Seeded(Mutex::new(Ids::new(mix(&[seed, 1]))))
    }

    pub(super) fn nonce(&self) -> Nonce {
        match self {
            Self::System => Nonce::random(),
            Self::Seeded(ids) => {
                let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
                Nonce::from_u128(ids.draw_wide())
            }
        }
    }

    /// A span of at least `low` and less than `high`, to the microsecond.
    pub(super) fn between(&self, low: Duration, high: Duration) -> Duration {
        match self {
            Self::System => rand::rng().random_range(low..high),
            Self::Seeded(ids) => {
                let draw = ids.lock().unwrap_or_else(PoisonError::into_inner).draw();
                let span = u64::try_from((high - low).as_micros()).unwrap_or(u64::MAX).max(1);
                low + Duration::from_micros(draw % span)
            }
        }
    }
}
