//! The data of one key in Redis.

use gaggle_strategies::lock::Nonce;

use super::{nonce, number};
use crate::redis_server::KeySpace;

/// A key after the last script that named it.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyView {
    pub(super) holder: Option<Holder>,
    /// A holder that is remembered after its lease, and the last millisecond of that.
    pub(super) kept: Option<(Nonce, u64)>,
    pub(super) queue: Vec<Nonce>,
    /// The last millisecond in which the queue lives without a sign of life.
    pub(super) queue_end: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Holder {
    pub(super) nonce: Nonce,
    pub(super) token: u64,
    /// The first millisecond in which the lease is over.
    pub(super) expires_at: u64,
}

impl KeyView {
    pub(super) fn read(keys: &mut KeySpace, names: &[Vec<u8>]) -> Self {
        let holder = keys.text(&names[0]).map(|(value, end)| {
            let words: Vec<&str> = value.split(' ').collect();
            Holder {
                nonce: nonce(words[0]),
                token: number(words[2]),
                expires_at: end.expect("a lease has an end") + 1,
            }
        });
        let kept = keys.text(&names[3]);
        let kept = kept.map(|(text, end)| (nonce(&text), end.expect("a memory has an end")));
        let queue = keys.members(&names[1]).iter().map(|text| nonce(text)).collect();
        Self { holder, kept, queue, queue_end: keys.end(&names[1]) }
    }

    /// Whether Redis remembers the holder after its lease.
    pub(super) fn remembers(&self) -> bool {
        self.kept.map(|(nonce, _)| nonce) == self.holder.map(|holder| holder.nonce)
    }
}
