//! No two users believe in one key, and tokens rise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use gaggle_strategies::{Lock, clock::Instant, implement::LossWatch, lock::Nonce};

use super::clock::ProcessClock;

/// The locks on which users rely, by key.
#[derive(Default)]
pub(super) struct Beliefs {
    keys: BTreeMap<Arc<str>, Key>,
}

#[derive(Default)]
struct Key {
    beliefs: Vec<Belief>,
    /// The greatest token, and its acquisition.
    latest: Option<(u64, Nonce)>,
    /// The tokens that an operator ends: their holders are not notified.
    forced: BTreeSet<u64>,
    /// The tokens of which an operator knows that they have ended.
    ended: BTreeSet<u64>,
}

/// A user's belief that it holds a lock.
pub(super) struct Belief {
    pub(super) process: u64,
    pub(super) clock: Arc<ProcessClock>,
    pub(super) lock: Lock,
    pub(super) watch: LossWatch,
}

impl Belief {
    fn is_valid(&self) -> bool {
        !self.watch.is_lost()
            && self.lock.deadline().is_some_and(|deadline| self.clock.peek() < deadline)
    }
}

impl Beliefs {
    /// A user was granted a lock.
    pub(super) fn begin(&mut self, belief: Belief) -> Result<(), String> {
        let (token, nonce) = (belief.lock.fencing_token(), belief.lock.nonce());
        let key = self.keys.entry(belief.lock.key().clone()).or_default();
        // A force-unlock may come before the reply of the grant that it ends.
        let is_forced = key.forced.contains(&token);
        if let Some((latest, of)) = key.latest
            && token <= latest
            && of != nonce
            && !is_forced
        {
            return Err(format!("token {token} was granted after {latest}: {:?}", belief.lock));
        }
        key.latest = key.latest.max(Some((token, nonce)));
        key.beliefs.push(belief);
        key.check()
    }

    /// An operator begins to end a grant, or knows that it has ended.
    pub(super) fn force(&mut self, key: &str, token: u64, has_ended: bool) {
        let key = self.keys.entry(key.into()).or_default();
        key.forced.insert(token);
        if has_ended {
            key.ended.insert(token);
        }
    }

    /// Whether an operator knows that the lock has ended.
    pub(super) fn has_ended(&self, lock: &Lock) -> bool {
        self.keys.get(lock.key()).is_some_and(|key| key.ended.contains(&lock.fencing_token()))
    }

    /// A user was told that its lock lasts longer. `was_lost`: the lock had ended before the request
    /// was sent.
    pub(super) fn extend(&mut self, lock: &Lock, was_lost: bool) -> Result<(), String> {
        if was_lost {
            return Err(format!("a lock was extended after its loss: {lock:?}"));
        }
        let Some(key) = self.keys.get_mut(lock.key()) else { return Ok(()) };
        let found = key.beliefs.iter_mut().find(|belief| belief.lock.nonce() == lock.nonce());
        if let Some(belief) = found {
            belief.lock = lock.clone();
        }
        key.check()
    }

    /// A user stops relying on its lock.
    pub(super) fn end(&mut self, lock: &Lock) {
        if let Some(key) = self.keys.get_mut(lock.key()) {
            key.beliefs.retain(|belief| belief.lock.nonce() != lock.nonce());
        }
    }

    /// A client process has died.
    pub(super) fn forget(&mut self, process: u64) {
        for key in self.keys.values_mut() {
            key.beliefs.retain(|belief| belief.process != process);
        }
    }
}

impl Key {
    fn check(&self) -> Result<(), String> {
        let is_forced = |belief: &Belief| self.forced.contains(&belief.lock.fencing_token());
        let valid = |belief: &&Belief| belief.is_valid() && !is_forced(belief);
        let mut valid = self.beliefs.iter().filter(valid);
        match (valid.next(), valid.next()) {
            (Some(first), Some(second)) => {
                let left = |belief: &Belief| {
                    let now: Instant = belief.clock.peek();
                    belief.lock.deadline().unwrap_or_default().since(now)
                };
                Err(format!(
                    "two users believe: {:?} for {:?} more, and {:?} for {:?}",
                    first.lock,
                    left(first),
                    second.lock,
                    left(second)
                ))
            }
            _ => Ok(()),
        }
    }
}
