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
