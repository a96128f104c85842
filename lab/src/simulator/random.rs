//! Seeded randomness, one stream for each purpose, so that a new fault does not shift all others.

pub(super) use crate::simulator::digest::mixed;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream of `purpose` under `seed`.
    pub(super) const fn new(seed: u64, purpose: u64) -> Self {
        Self { state: mixed(mixed(seed) ^ purpose) }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state)
    }

    /// From `low` to `high`, both included.
    pub(super) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(super) const fn index(&mut self, len: usize) -> usize {
        (self.next() % len as u64) as usize
    }

    /// True `ppm` times in a million.
    pub(super) const fn chance(&mut self, ppm: u64) -> bool {
        self.next() % 1_000_000 < ppm
    }

    /// From `low` to `high`, small values as likely as large ones.
    pub(super) fn spread(&mut self, low: u64, high: u64) -> u64 {
        let (small, large) = (u64::from(low.max(1).ilog2()), u64::from(high.max(1).ilog2()));
        let top = 1_u64 << self.between(small, large);
        self.between(top.clamp(low, high), (top * 2 - 1).clamp(low, high))
    }
}
