//! What a lock guards, with and without a check of fencing tokens.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// A resource that checks tokens: it refuses a write with a smaller token than the greatest it
/// has seen. Only this stops a write that was already under way when its lock was lost.
#[derive(Debug, Default)]
pub struct FencedResource {
    state: Mutex<(u64, u64)>,
}

/// A write came too late: a newer holder has written already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale, {greatest} was seen")]
pub struct Stale {
    /// The token of the write.
    pub token: u64,
    /// The greatest token seen.
    pub greatest: u64,
}

impl FencedResource {
    /// Writes `value` in the name of `token`.
    ///
    /// # Errors
    ///
    /// [`Stale`]; nothing was written.
    pub fn write(&self, token: u64, value: u64) -> Result<(), Stale> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if token < state.0 {
            return Err(Stale { token, greatest: state.0 });
        }
        *state = (token, value);
        Ok(())
    }

    /// The value last written, 0 at first.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A store that knows GET and SET and nothing else: without exclusion, increments are lost.
#[derive(Debug, Default)]
pub struct Store {
    values: Mutex<BTreeMap<String, u64>>,
}

impl Store {
    /// The value of `key`, 0 where it was never set.
    #[must_use]
    pub fn get(&self, key: &str) -> u64 {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(key).copied().unwrap_or(0)
    }

    /// Sets the value of `key`.
    pub fn set(&self, key: &str, value: u64) {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(key.to_owned(), value);
    }
}
