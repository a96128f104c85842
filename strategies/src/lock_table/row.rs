use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ClusterTime, Grant, LockRequest, ProcessId, Wait, command::shared_owner, waiters::Line,
};
use crate::{DURATION_MAX, Nonce, Owner};

/// One key that is held: a key without a holder has no row, and waiters only stand behind a holder.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Arc<str>,
    pub(super) holder: Hold,
    /// In the order of their places.
    pub(super) queue: Line,
}

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
pub(super) struct Hold {
    pub(super) claim: Claim,
    pub(super) token: u64,
    pub(super) granted_at: ClusterTime,
    pub(super) expires_at: ClusterTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    /// From this time on the waiter is dead; `None` waits for ever.
    pub(super) deadline: Option<ClusterTime>,
}

/// Who holds a key, as [`LockTable::holder`](super::LockTable::holder) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// The acquisition.
    pub nonce: Nonce,
    /// Its fencing token.
    pub token: u64,
    /// Who asked last for it, or extended it.
    pub process: ProcessId,
    /// For people.
    pub owner: Arc<Owner>,
    /// The stamp of the newest LOCK of the nonce.
    pub asked_at: ClusterTime,
    /// The stamp of the grant.
    pub granted_at: ClusterTime,
    /// The end of the lease.
    pub expires_at: ClusterTime,
    /// How many wait for the key.
    pub waiters: u64,
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

impl Hold {
    pub(super) fn new(claim: Claim, token: u64, now: ClusterTime) -> Self {
        let expires_at = now.after(claim.duration_ms);
        Self { claim, token, granted_at: now, expires_at }
    }
}

impl Row {
    pub(super) fn grant(&self) -> Grant {
        let Hold { claim, token, granted_at, expires_at } = &self.holder;
        Grant {
            key: self.key.clone(),
            nonce: claim.nonce,
            process: claim.process,
            request: claim.request,
            token: *token,
            asked_at: claim.asked_at,
            granted_at: *granted_at,
            expires_at: *expires_at,
        }
    }

    pub(super) fn view(&self) -> HolderView {
        let Hold { claim, token, granted_at, expires_at } = &self.holder;
        HolderView {
            nonce: claim.nonce,
            token: *token,
            process: claim.process,
            owner: claim.owner.clone(),
            asked_at: claim.asked_at,
            granted_at: *granted_at,
            expires_at: *expires_at,
            waiters: self.queue.len().into(),
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
