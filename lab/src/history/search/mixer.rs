//! A fast hasher for the states of a search.

use std::hash::Hasher;

/// Hashes the states of a search: short keys of integers. No attacker chooses them, and a hash that
/// withstands one costs several times as much.
#[derive(Clone, Copy, Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
            self.write_u64(word);
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(26) ^ n).wrapping_mul(0xf135_7aea_2e62_a9c5);
    }

    fn write_u128(&mut self, n: u128) {
        // The low and the high half, each in its turn.
        self.write_u64(n as u64);
        self.write_u64((n >> 64) as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
