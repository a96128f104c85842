//! The decoders of replies and publications, fed with bytes.

use super::resp;
use super::topics;

/// Feeds `bytes` as a payload and as a stream of frames. Returns how many things they were.
pub(crate) fn feed(bytes: &[u8]) -> u32 {
    let mut taken = 0;
    if let Some((name, frame)) = topics::parse(bytes) {
        let length = u8::try_from(name.as_str().len()).expect("its length was one byte");
        let again = [&[1, length][..], name.as_str().as_bytes(), &frame].concat();
        assert_eq!(again, bytes, "a payload has one form");
        taken += 1;
    }
    let mut used = 0;
    while let Ok(Some((_, length))) = resp::frame(&bytes[used..]) {
        assert!(length > 0, "a frame takes bytes");
        used += length;
        taken += 1;
    }
    taken
}
