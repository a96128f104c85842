use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClusterTime, Grant, ProcessId, claim::Claim, waiters::Line};
use crate::{Nonce, Owner};

/// One key that is held: a key without a holder has no row, and waiters only stand behind a holder.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Arc<str>,
    pub(super) holder: Hold,
    /// In the order of their places.
    pub(super) queue: Line,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) claim: Claim,
    pub(super) token: u64,
    pub(super) granted_at: ClusterTime,
    pub(super) expires_at: ClusterTime,
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
