//! An acquisition, as the queue and the holder's row keep it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClusterTime, LockRequest, ProcessId, Wait, command::shared_owner};
use crate::{DURATION_MAX, Nonce, Owner};

/// What a waiter and the holder it becomes have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// Counts the LOCKs that the table accepted: unique, and the order of arrival.
    pub(super) place: u64,
    pub(super) nonce: Nonce,
    /// Who asked last.
    pub(super) process: ProcessId,
    /// The newest of its LOCKs.
    pub(super) request: u64,
    #[serde(deserialize_with = "shared_owner")]
    pub(super) owner: Arc<Owner>,
    pub(super) duration_ms: u64,
    /// Moves with every LOCK of the nonce; the place does not.
    pub(super) asked_at: ClusterTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    /// From this time on the waiter is dead; `None` waits for ever.
    pub(super) deadline: Option<ClusterTime>,
}

impl Claim {
    pub(super) fn new(place: u64, request: &LockRequest, now: ClusterTime) -> Self {
        Self {
            place,
            nonce: request.nonce,
            process: request.process,
            request: request.request,
            owner: request.owner.clone(),
            duration_ms: lease_ms(request.duration_ms),
            asked_at: now,
        }
    }

    /// The nonce was asked for again. A late copy of an earlier LOCK does not hide the newest.
    pub(super) fn asked_again(&mut self, request: &LockRequest, now: ClusterTime) {
        let late = self.process == request.process && request.request < self.request;
        self.request = if late { self.request } else { request.request };
        self.process = request.process;
        self.asked_at = now;
    }

    /// A process extended the lock. One that it was handed to numbers its requests for itself: what
    /// was counted for the process before would make its LOCKs of this nonce look late for ever.
    pub(super) fn handed_over(&mut self, (process, request): (ProcessId, u64)) {
        if self.process != process {
            (self.process, self.request) = (process, request);
        }
    }
}

impl Wait {
    /// Whether a LOCK that finds the key held is to be refused.
    pub(super) const fn is_none(self) -> bool {
        matches!(self, Self::No | Self::Ms(0))
    }

    /// When a waiter that asked now is dead.
    pub(super) const fn deadline(self, now: ClusterTime) -> Option<ClusterTime> {
        match self {
            Self::No => Some(now),
            Self::Ms(ms) => Some(now.after(ms)),
            Self::Forever => None,
        }
    }
}

/// The lease asked for, forced into its limits: a lease of nothing would end at its own stamp, and
/// one without end would make a lost unlock last for ever.
pub(super) fn lease_ms(asked: u64) -> u64 {
    asked.clamp(1, DURATION_MAX.as_secs() * 1000)
}
