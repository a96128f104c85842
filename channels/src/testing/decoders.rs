//! Everything that reads bytes from the network, for the fuzzer: private decoders behind one door.

/// Feeds `bytes` to every decoder of this crate: TCP hellos, streams of TCP frames, what
/// Redis says, and what is published there. Returns how many things they were.
///
/// # Panics
///
/// When what was decoded does not come back from its own encoding.
pub fn feed(bytes: &[u8]) -> u32 {
    crate::tcp::decoders::feed(bytes) + crate::redis::decoders::feed(bytes)
}
