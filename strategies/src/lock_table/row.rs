//! The row of a key that is held: its holder, and the waiters in its queue.

use super::{
    Acquisition, Holder, Row,
    command::{ClusterTime, Grant, LockRequest, Wait},
    key::Key,
};
use crate::{limits::DURATION_MAX, lock::Nonce};

impl Holder {
    pub(super) fn new(acquisition: Acquisition, token: u64, now: ClusterTime) -> Self {
        let expires_at = now.after(acquisition.duration_ms);
        Self { acquisition, token, granted_at: now, expires_at }
    }
}

impl Row {
    pub(super) fn is_held_by(&self, nonce: Nonce) -> bool {
        self.holder.acquisition.nonce == nonce
    }

    pub(super) fn grant(&self, key: &Key) -> Grant {
        let Holder { acquisition, token, granted_at, expires_at } = &self.holder;
        Grant {
            key: key.text.clone(),
            nonce: acquisition.nonce,
            process: acquisition.process,
            token: *token,
            asked_at: acquisition.asked_at,
            granted_at: *granted_at,
            expires_at: *expires_at,
        }
    }
}

impl Acquisition {
    pub(super) fn new(position: u64, request: &LockRequest, now: ClusterTime) -> Self {
        Self {
            position,
            nonce: request.nonce,
            process: request.process,
            owner: request.owner.clone(),
            duration_ms: lease_ms(request.duration_ms),
            asked_at: now,
        }
    }

    /// Takes another LOCK of the nonce.
    pub(super) fn repeat(&mut self, request: &LockRequest, now: ClusterTime) {
        (self.process, self.asked_at) = (request.process, now);
    }
}

impl Wait {
    /// Whether a LOCK that finds the key held is refused.
    pub(super) const fn is_none(self) -> bool {
        matches!(self, Self::No | Self::Ms(0))
    }

    /// When a waiter whose LOCK is stamped `now` is dead.
    pub(super) const fn deadline(self, now: ClusterTime) -> Option<ClusterTime> {
        match self {
            Self::No => Some(now),
            Self::Ms(ms) => Some(now.after(ms)),
            Self::Forever => None,
        }
    }
}

/// A lease within its limits. A lease of nothing would end at its own stamp, and one without end
/// would make a lost unlock last indefinitely.
pub(super) fn lease_ms(requested: u64) -> u64 {
    requested.clamp(1, DURATION_MAX.as_secs() * 1000)
}
