//! Frames as bytes, for the tests of decoders.

/// Takes choices from hostile bytes; zeros once they are used up.
pub(super) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Less than `bound`, which is at most 256.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// At most 255 bytes, as they are.
    pub(super) fn slice(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (slice, rest) = self.0.split_at(length);
        self.0 = rest;
        slice
    }

    pub(super) fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// Mostly `base` or a near neighbour; now and then anything, the ends of the range included.
    pub(super) fn near(&mut self, base: u64) -> u64 {
        match self.byte() {
            0..=215 => base,
            byte @ 216..=229 => base.wrapping_add(u64::from(byte - 216) % 4 + 1),
            byte @ 230..=243 => base.wrapping_sub(u64::from(byte - 230) % 4 + 1),
            244..=247 => 0,
            248..=250 => u64::MAX,
            _ => self.word(),
        }
    }
}
