//! The locks that this process holds.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::HeldLock;
use crate::{
    client::commands::Command,
    clock::Instant,
    lock::{Lock, Nonce},
    sync::AtomicU8,
};

/// How often locks whose local deadline has passed are forgotten.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The acquisitions of this process, by nonce.
#[derive(Debug, Default)]
pub(super) struct HeldLocks {
    // Boxed: an entry that comes or goes moves its neighbours.
    by_nonce: BTreeMap<Nonce, Box<HeldLock>>,
    sweep_at: Option<Instant>,
    /// The greatest token ever granted to this process.
    greatest_token: u64,
}

/// Decides whether the caller takes a grant, or the core revokes it first because the handle closes
/// or the lock is lost. The replies to extensions share it: a loss revokes them, too.
#[derive(Clone, Debug, Default)]
pub struct Delivery(Arc<AtomicU8>);

impl Delivery {
    const TAKEN: u8 = 1;
    const REVOKED: u8 = 2;

    /// The caller takes the grant; `false` if it was revoked before.
    #[must_use]
    pub fn take(&self) -> bool {
        self.settle(Self::TAKEN)
    }

    /// The core revokes the grant; `false` if the caller has it.
    pub(in crate::client) fn revoke(&self) -> bool {
        self.settle(Self::REVOKED)
    }

    /// Marks the lock as lost, also for a caller that has it; returns `false` if there is one.
    fn lose(&self) -> bool {
        self.revoke() || !self.replace(Self::TAKEN, Self::REVOKED)
    }

    /// Whether the lock was lost, or its grant revoked.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.replace(Self::REVOKED, Self::REVOKED)
    }

    fn replace(&self, before: u8, after: u8) -> bool {
        self.0.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether the reply that it came with may still be read.
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    fn settle(&self, outcome: u8) -> bool {
        self.replace(0, outcome) || self.replace(outcome, outcome)
    }
}

impl HeldLock {
    pub(super) fn lock(&self, nonce: Nonce) -> Lock {
        Lock::new(self.key.clone(), nonce, self.token, Some(self.deadline))
    }

    /// Revokes every reply that was not read. Returns whether no caller had the lock.
    pub(super) fn lose(&self) -> bool {
        self.delivery.lose()
    }
}

impl HeldLocks {
    pub(super) fn get(&self, nonce: Nonce) -> Option<&HeldLock> {
        self.by_nonce.get(&nonce).map(|held| &**held)
    }

    pub(super) fn greatest_token(&self) -> u64 {
        self.greatest_token
    }

    /// Notes a grant, and returns the delivery that its reply carries.
    pub(super) fn granted(&mut self, now: Instant, lock: &Lock, sole: bool) -> Delivery {
        self.insert(now, lock, lock.deadline().unwrap_or(now), sole)
    }

    /// Notes an extension until `deadline`, perhaps of a lock that another process was granted, and
    /// returns the delivery that its reply carries.
    pub(super) fn extended(&mut self, now: Instant, lock: &Lock, deadline: Instant) -> Delivery {
        if let Some(held) = self.by_nonce.get_mut(&lock.nonce()) {
            held.deadline = held.deadline.max(deadline);
            held.delivery.clone()
        } else {
            let delivery = self.insert(now, lock, deadline, false);
            let _ = delivery.take();
            delivery
        }
    }

    /// An EXTEND is sent, by which the lease ends at `end` at the latest.
    pub(super) fn extending(&mut self, nonce: Nonce, end: Instant) {
        if let Some(held) = self.by_nonce.get_mut(&nonce) {
            held.extended_to = held.extended_to.max(end);
        }
    }

    fn insert(&mut self, now: Instant, lock: &Lock, deadline: Instant, sole: bool) -> Delivery {
        let (key, token, delivery) =
            (lock.key().clone(), lock.fencing_token(), Delivery::default());
        self.greatest_token = self.greatest_token.max(token);
        self.sweep_at.get_or_insert_with(|| now.after(SWEEP_EVERY));
        let unread = delivery.clone();
        let extended_to = Instant::default();
        let held = HeldLock { key, token, deadline, extended_to, sole, delivery };
        self.by_nonce.insert(lock.nonce(), Box::new(held));
        unread
    }

    pub(super) fn remove(&mut self, nonce: Nonce) -> Option<Box<HeldLock>> {
        self.by_nonce.remove(&nonce)
    }

    /// Removes what the nonce holds with this token or a smaller one.
    pub(super) fn remove_up_to(&mut self, nonce: Nonce, token: u64) -> Option<Box<HeldLock>> {
        match self.by_nonce.entry(nonce) {
            Entry::Occupied(entry) if entry.get().token <= token => Some(entry.remove()),
            _ => None,
        }
    }

    pub(super) fn take_all(&mut self) -> BTreeMap<Nonce, Box<HeldLock>> {
        std::mem::take(&mut self.by_nonce)
    }

    /// The commands that check every lock at the granting side.
    pub(super) fn checks(&self) -> impl Iterator<Item = Command> {
        self.by_nonce.iter().map(|(nonce, held)| Command::Check {
            nonce: *nonce,
            key: held.key.clone(),
            token: Some(held.token),
        })
    }

    /// Revokes every grant of a key with this prefix that was not read. Returns the locks that no
    /// other process may rely on.
    pub(super) fn revoke_unread(&self, prefix: &str) -> Vec<Lock> {
        let meant = self.by_nonce.iter().filter(|(_, held)| held.key.starts_with(prefix));
        let unread = meant.filter(|(_, held)| held.delivery.revoke());
        let own = unread.filter(|(nonce, _)| !nonce.is_given());
        own.map(|(nonce, held)| held.lock(*nonce)).collect()
    }

    pub(super) fn next_sweep(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Forgets locks past their lease whose grant was read or dropped: holders that never unlock
    /// must not accumulate.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.by_nonce.retain(|_, held| {
                held.deadline.max(held.extended_to) > now || held.delivery.is_open()
            });
            self.sweep_at = (!self.by_nonce.is_empty()).then(|| now.after(SWEEP_EVERY));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn lock(nonce: u128, deadline: u64) -> Lock {
        Lock::new("k", Nonce::from_u128(nonce), 1, Some(at(deadline)))
    }

    #[test]
    fn only_locks_past_their_deadline_are_swept() {
        let mut held = HeldLocks::default();
        for (nonce, deadline) in [(1, 9_999), (2, 10_000), (3, 10_001)] {
            let _ = held.granted(at(0), &lock(nonce, deadline), true);
        }
        held.sweep(at(9_999));
        assert_eq!(held.by_nonce.len(), 3, "it is not time yet");
        held.sweep(at(10_000));
        let left: Vec<u128> = held.by_nonce.keys().map(|nonce| nonce.as_u128()).collect();
        assert_eq!((left, held.next_sweep()), (vec![3], Some(at(20_000))));
    }
}
