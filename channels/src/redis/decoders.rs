//! The decoder of publications, fed with bytes.

use super::topics;

/// Feeds `bytes` as a payload. Returns how many payloads they were.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let Some((name, frame)) = topics::parse(bytes) else { return 0 };
    let length = u8::try_from(name.as_str().len()).expect("its length was one byte");
    let again = [&[1, length][..], name.as_str().as_bytes(), &frame].concat();
    assert_eq!(again, bytes, "a payload has one form");
    1
}
