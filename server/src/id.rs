//! The id of a claim: its nonce and its key, so that any server of a group knows both.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gaggle::{Nonce, strategies::limits::KEY_BYTES_MAX};

/// `NONCE.KEY`: 32 hexadecimal digits, and the key in base64url.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimId {
    pub(crate) nonce: Nonce,
    pub(crate) key: Arc<str>,
}

impl ClaimId {
    /// The id that this text is; `None` if no claim has such an id.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (nonce, key) = text.split_once('.')?;
        let nonce = Nonce::from_u128(u128::from_str_radix(nonce, 16).ok()?);
        let key = String::from_utf8(URL_SAFE_NO_PAD.decode(key).ok()?).ok()?;
        let id = Self { nonce, key: key.into() };
        // Each id has one text.
        let is_valid = (1..=KEY_BYTES_MAX).contains(&id.key.len()) && id.to_string() == text;
        is_valid.then_some(id)
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.nonce, URL_SAFE_NO_PAD.encode(self.key.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_one_text() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        for key in ["k", "a/b.c ü", "\0", longest.as_str()] {
            let id = ClaimId { nonce: Nonce::given(7), key: key.into() };
            assert_eq!(ClaimId::parse(&id.to_string()), Some(id));
        }
        let nonce = "00000000000080000000000000000007";
        let too_long = format!("{nonce}.{}", URL_SAFE_NO_PAD.encode("k".repeat(1_025)));
        let upper = format!("{}.aw", "0000000000008000000000000000000F");
        let other =
            [".aw", "1.aw", "x.aw", "+0000000000080000000000000000007.aw", &upper, &too_long];
        let keys = ["", "aw==", "ax", "/w", "_w", "a"].map(|key| format!("{nonce}.{key}"));
        for text in keys.iter().map(String::as_str).chain(other).chain(["", "1", nonce]) {
            assert_eq!(ClaimId::parse(text), None, "{text}");
        }
        assert!(ClaimId::parse(&format!("{nonce}.aw")).is_some());
    }
}
