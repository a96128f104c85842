use std::sync::PoisonError;

use super::state::State;
use crate::{
    Holds, Owner,
    lock_table::{Bound, TableConfig, key_digest},
    sync::{Mutex, MutexGuard},
};

/// How many parts a table has. Threads that meet on one part exchange its memory at each step, which
/// takes longer than the step; more parts than this gained nothing on machines of few cores.
const SHARDS: usize = 16;

/// A lock table in parts, each behind a mutex of its own, so that threads which use different keys
/// rarely meet. A key is always in the same part.
///
/// Bounds are those of the whole: together the parts never have more room than that. A part that is
/// full [asks the others](super::Local::gather) for what they do not use.
#[derive(Debug)]
pub(super) struct Shards {
    parts: Box<[Mutex<State>]>,
    /// Held while room moves between parts, so that no two look for the same.
    pub(super) moving: Mutex<()>,
}

impl Shards {
    pub(super) fn new(whole: &TableConfig, holds: &Holds) -> Self {
        let owner = Owner::this_process(None);
        let part = |index: usize| {
            let keys_max = share(whole.keys_max, index);
            let nonces_max = share(whole.nonces_max, index);
            let config = TableConfig { keys_max, nonces_max, ..whole.clone() };
            Mutex::new(State::new(config, owner.clone(), holds.clone()))
        };
        let parts = (0..SHARDS).map(part).collect();
        Self { parts, moving: Mutex::new(()) }
    }

    /// Where a key is.
    pub(super) fn of(&self, key: &str) -> &Mutex<State> {
        // The upper bits of a product: the digests of keys that differ in one byte differ in few bits.
        let mixed = key_digest(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let part = usize::try_from(mixed % SHARDS as u64).expect("a small number");
        &self.parts[part]
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Mutex<State>> {
        self.parts.iter()
    }

    /// All but the one of this key.
    pub(super) fn others(&self, key: &str) -> impl Iterator<Item = &Mutex<State>> {
        let own = self.of(key);
        self.all().filter(move |part| !std::ptr::eq(*part, own))
    }
}

/// The room of one part of the whole at the beginning.
pub(super) fn share(whole: u64, index: usize) -> u64 {
    let parts = SHARDS as u64;
    whole / parts + u64::from((index as u64) < whole % parts)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room for more that may move from part to part.
pub(super) const fn moves(bound: Bound) -> bool {
    matches!(bound, Bound::Keys | Bound::Nonces)
}
