//! The order of keys in a table.

use std::sync::Arc;

/// A key with its digest. The digest decides the order, so that a search compares numbers and stays
/// within the nodes of its tree. Rows of a snapshot are in this order: it is the same on every
/// machine and in every version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    digest: u64,
    pub(super) text: Arc<str>,
}

impl Key {
    pub(super) fn new(text: &Arc<str>) -> Self {
        Self { digest: digest(text), text: text.clone() }
    }
}

pub(crate) fn digest(text: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |digest: u64, word: u64| {
        let product = (digest ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let digest = words.fold(text.len() as u64, mix);
    if rest.is_empty() {
        return digest;
    }
    mix(digest, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_never_changes() {
        assert_eq!(digest(""), 0);
        assert_eq!(digest("k"), 0x82f8_66ce_362f_067c);
        assert_eq!(digest("orders/42"), 0x9869_bb0c_8e31_e4f6);
        assert_ne!(digest("a"), digest("a\0"), "the length counts");
        // Word by word, the last filled up with zeros.
        let text = "The quick brown fox";
        for end in 0..=text.len() {
            let mut expected = end as u64;
            for chunk in text.as_bytes()[..end].chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                let product =
                    (expected ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                expected = product ^ (product >> 32);
            }
            assert_eq!(digest(&text[..end]), expected, "{end} bytes");
        }
    }

    #[test]
    fn keys_of_one_digest_differ() {
        let half = |text: &[u8]| u64::from_le_bytes(text.try_into().unwrap());
        // The digest of sixteen bytes after the first half, which the second half compensates.
        let after = |first: u64| {
            let product = (16 ^ first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            product ^ (product >> 32)
        };
        let (first, second) = (half(b"orders/1"), half(b"the rest"));
        let other = (0..).find_map(|number| {
            let other = half(format!("{number:08}").as_bytes());
            let rest = second ^ after(first) ^ after(other);
            String::from_utf8([other.to_le_bytes(), rest.to_le_bytes()].concat()).ok()
        });
        let [one, other] = ["orders/1the rest", &other.unwrap()].map(|text| Key::new(&text.into()));
        assert_eq!(one.digest, other.digest);
        assert_ne!(one.cmp(&other), std::cmp::Ordering::Equal);
    }
}
