//! The row of a key that is held: its holder and its queue.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    acquisition::{Acquisition, Waiter},
    command::{ClusterTime, Grant},
    key::Key,
};
use crate::lock::Nonce;

/// The row of a held key. A key without a holder has no row, and so no waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) holder: Hold,
    /// The waiters by their positions, which is the order of arrival.
    pub(super) queue: BTreeMap<u64, Waiter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) acquisition: Acquisition,
    pub(super) token: u64,
    pub(super) granted_at: ClusterTime,
    pub(super) expires_at: ClusterTime,
}

impl Hold {
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
        let Hold { acquisition, token, granted_at, expires_at } = &self.holder;
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
