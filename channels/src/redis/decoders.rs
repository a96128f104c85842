//! The decoder of what is published, fed with bytes.

use bytes::Bytes;

use super::topics;

/// Feeds `bytes` as a payload. Returns whether they were one.
pub(crate) fn feed(bytes: &[u8]) -> bool {
    let Some((name, frame)) = topics::parse(&Bytes::copy_from_slice(bytes)) else { return false };
    assert_eq!(topics::payload(&name, &frame), bytes, "a payload has one form");
    true
}
