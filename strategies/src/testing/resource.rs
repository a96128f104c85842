//! Resources that a lock guards, with and without a check of fencing tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A resource that checks tokens: it refuses a request with a smaller token than the greatest it
/// has seen, in reads as in writes. Only this stops a write that was in flight when its lock was
/// lost.
///
/// A resource that checks writes alone loses updates: a paused holder may write between the read
/// and the write of the next one, which then overwrites it.
#[derive(Debug, Default)]
pub struct FencedResource {
    state: Mutex<(u64, u64)>,
}

/// A request came too late: the resource has seen a later holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale, {greatest} was seen")]
pub struct Stale {
    /// The token of the request.
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
        *self.admit(token)? = (token, value);
        Ok(())
    }

    /// The value last written, 0 at first, read in the name of `token`: smaller ones are refused
    /// from then on.
    ///
    /// # Errors
    ///
    /// [`Stale`]; nothing was read.
    pub fn read(&self, token: u64) -> Result<u64, Stale> {
        let mut state = self.admit(token)?;
        state.0 = token;
        Ok(state.1)
    }

    fn admit(&self, token: u64) -> Result<MutexGuard<'_, (u64, u64)>, Stale> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if token < state.0 {
            return Err(Stale { token, greatest: state.0 });
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paused holder writes between the next one's read and write.
    #[test]
    fn write_after_a_later_read_is_stale() {
        let resource = FencedResource::default();
        let (paused, next) = (1, 2);
        let seen_by_paused = resource.read(paused).unwrap();
        let seen_by_next = resource.read(next).unwrap();
        let late = resource.write(paused, seen_by_paused + 1);
        assert_eq!(late, Err(Stale { token: paused, greatest: next }));
        resource.write(next, seen_by_next + 1).unwrap();
        assert_eq!(resource.read(next), Ok(1), "one increment, one that was refused");
        assert_eq!(resource.read(paused), Err(Stale { token: paused, greatest: next }));
    }
}
