//! An acquisition, as the queue and the holder's row keep it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::command::{ClusterTime, LockRequest, ProcessId, Wait, shared_owner};
use crate::{
    limits::DURATION_MAX,
    lock::{Nonce, Owner},
};

/// The fields that a waiter and the holder it becomes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Acquisition {
    /// Counts the LOCKs that the table accepted: unique, and the order of arrival.
    pub(super) position: u64,
    pub(super) nonce: Nonce,
    /// The sender of its latest LOCK or EXTEND.
    pub(super) process: ProcessId,
    #[serde(deserialize_with = "shared_owner")]
    pub(super) owner: Arc<Owner>,
    pub(super) duration_ms: u64,
    /// Moves with every LOCK of the nonce; the position does not.
    pub(super) asked_at: ClusterTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) acquisition: Acquisition,
    /// The time from which on the waiter is dead; `None` waits indefinitely.
    pub(super) deadline: Option<ClusterTime>,
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
