//! The private decoders of bytes from the network, for the fuzzer.

/// Feeds `bytes` to every decoder of this crate: TCP hellos, streams of TCP frames, and payloads of
/// Redis publications. Returns how often one of them succeeded.
///
/// # Panics
///
/// When a decoded value does not encode to the same bytes.
pub fn feed(bytes: &[u8]) -> u32 {
    crate::tcp::decoders::feed(bytes) + crate::redis::decoders::feed(bytes)
}
