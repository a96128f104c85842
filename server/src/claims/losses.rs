//! The latest losses: claims that expired, and those that an operator or their client revoked.

use std::{collections::BTreeSet, sync::Arc};

use gaggle::Nonce;
use serde_json::Value;

use super::{Claim, Claims, Registry, Status};
use crate::access::Caller;

/// How many losses are remembered.
const LOSSES_MAX: usize = 100;

impl Registry {
    /// Remembers a claim that has ended, if it was lost.
    pub(super) fn note_loss(&mut self, claim: &Arc<Claim>) {
        if matches!(claim.status(), Status::Expired | Status::Revoked) {
            self.losses.push_back(claim.clone());
            if self.losses.len() > LOSSES_MAX {
                self.losses.pop_front();
            }
        }
    }
}

impl Claims {
    /// The losses that the caller may see, the latest first. A claim that `active` names was
    /// extended by another server, and did not expire.
    pub(crate) fn losses(&self, caller: &Caller, active: &BTreeSet<Nonce>) -> Vec<Value> {
        self.sweep();
        let now = self.clock.now();
        let mut losses = Vec::from(self.registry().losses.clone());
        // An expiry is noticed later than a revocation.
        losses.sort_by_cached_key(|claim| claim.changed_at());
        let is_shown =
            |claim: &&Arc<Claim>| caller.may_see(&claim.owner) && !active.contains(&claim.id.nonce);
        losses.iter().rev().filter(is_shown).map(|claim| claim.to_json(now)).collect()
    }
}
