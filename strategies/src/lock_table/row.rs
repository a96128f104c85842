//! The row of a key that is held: its holder and its queue.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    ClusterTime, Grant, ProcessId,
    claim::{Claim, Waiter},
};
use crate::{Nonce, Owner};

/// One key that is held: a key without a holder has no row, and there are no waiters without a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Arc<str>,
    pub(super) holder: Hold,
    /// By the places of their claims: in the order of arrival.
    pub(super) queue: BTreeMap<u64, Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) claim: Claim,
    pub(super) token: u64,
    pub(super) granted_at: ClusterTime,
    pub(super) expires_at: ClusterTime,
}

/// The holder of a key, as [`LockTable::holder`](super::LockTable::holder) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// The acquisition.
    pub nonce: Nonce,
    /// Its fencing token.
    pub token: u64,
    /// The process of its latest LOCK or EXTEND.
    pub process: ProcessId,
    /// For inspection.
    pub owner: Arc<Owner>,
    /// The stamp of the latest LOCK of the nonce.
    pub asked_at: ClusterTime,
    /// The stamp of the grant.
    pub granted_at: ClusterTime,
    /// The end of the lease.
    pub expires_at: ClusterTime,
    /// The number of waiters.
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
            waiters: self.queue.len() as u64,
        }
    }
}
