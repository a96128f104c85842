use std::{borrow::Borrow, cmp::Ordering, sync::Arc};

/// A key with its digest before it: the order of the table's rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    digest: u64,
    text: Arc<str>,
}

impl Key {
    pub(super) fn new(text: &Arc<str>) -> Self {
        Self { digest: digest(text), text: text.clone() }
    }
}

/// The same on every machine and in every version: rows of a snapshot are in this order.
pub(crate) fn digest(text: &str) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |digest: u64, word: u64| {
        let product = (digest ^ word).wrapping_mul(FACTOR);
        product ^ (product >> 32)
    };
    text.as_bytes().chunks(8).fold(text.len() as u64, |digest, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(digest, u64::from_le_bytes(word))
    })
}

/// What the order of keys looks at: for a search by a text that is not in an [`Arc`].
pub(super) trait Ordered {
    fn order(&self) -> (u64, &str);
}

impl Ordered for Key {
    fn order(&self) -> (u64, &str) {
        (self.digest, &self.text)
    }
}

impl Ordered for &str {
    fn order(&self) -> (u64, &str) {
        (digest(self), self)
    }
}

impl<'a> Borrow<dyn Ordered + 'a> for Key {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for dyn Ordered + '_ {}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search compares texts with keys, and must come to the row that the keys' own order led to.
    #[test]
    fn a_text_compares_as_the_key_of_that_text() {
        let texts = ["", "a", "b", "ab", "orders/42", "orders/43"];
        for (one, other) in texts.iter().flat_map(|one| texts.map(|other| (*one, other))) {
            let keys = [Key::new(&one.into()), Key::new(&other.into())];
            let order = keys[0].cmp(&keys[1]);
            let (text, key): (&dyn Ordered, &dyn Ordered) = (&one, keys[1].borrow());
            assert_eq!(text.cmp(key), order, "{one} and {other}");
            assert_eq!(text.partial_cmp(key), Some(order));
            assert_eq!(text == key, one == other);
        }
    }

    #[test]
    fn the_digest_never_changes() {
        assert_eq!(digest(""), 0);
        assert_eq!(digest("k"), 0x82f8_66ce_362f_067c);
        assert_eq!(digest("orders/42"), 0x9869_bb0c_8e31_e4f6);
        assert_ne!(digest("a"), digest("a\0"), "the length counts");
    }
}
