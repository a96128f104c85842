//! The shards of a [`Local`](crate::Local): each a lock table and its waiters, behind a mutex.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use smallvec::SmallVec;

use super::{Access, Notifications, Shard, Shards};
use crate::{
    clock::{Clock, Instant},
    deadline::{Drift, not_held, whole_ms},
    error::Error,
    lock::{Lock, LossCause, Nonce, Owner},
    lock_table::{
        ClusterTime, Command, Effect, LockTable, PriorState, ProcessId, TableConfig, key_digest,
    },
    losses::LossRegistry,
    sync::Mutex,
};

/// More shards gained nothing on machines of few cores.
pub(super) const SHARDS: usize = 16;

impl Shards {
    /// Each shard has a part of the limits on keys and nonces.
    pub(super) fn new(mut config: TableConfig, drift: Drift, clock: Arc<dyn Clock>) -> Self {
        // The eighth is for keys that spread unevenly.
        let share = |limit: u64| limit.div_ceil(SHARDS as u64) * 9 / 8;
        config.keys_max = share(config.keys_max);
        config.nonces_max = share(config.nonces_max);
        let owner = Owner::this_process(None);
        let shards = (0..SHARDS).map(|_| {
            let (table, owner) = (LockTable::new(config.clone()), Arc::new(owner.clone()));
            Mutex::new(Shard { table, waiters: BTreeMap::new(), owner, closed: false })
        });
        Self { clock, drift, losses: LossRegistry::default(), shards: shards.collect() }
    }

    /// Locks the shard of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    pub(super) fn access(&self, key: &str) -> Result<Access<'_>, Error> {
        self.open(shard_of(key))
    }

    /// Locks the shard of a key that this lock holds.
    pub(super) fn held(&self, lock: &Lock) -> Result<Access<'_>, Error> {
        let mut access = self.access(lock.key())?;
        access.step(&Command::Noop);
        let holder = access.shard.table.holder(lock.key());
        if holder.is_some_and(|grant| grant.is_of(lock)) {
            return Ok(access);
        }
        Err(not_held(lock, access.now))
    }

    pub(super) fn open(&self, index: usize) -> Result<Access<'_>, Error> {
        let access = self.lock(&self.shards[index]);
        if access.shard.closed { Err(Error::Closed) } else { Ok(access) }
    }

    /// Locks one shard after the other, also after closing.
    pub(super) fn each(&self) -> impl Iterator<Item = Access<'_>> {
        self.shards.iter().map(|shard| self.lock(shard))
    }

    fn lock<'a>(&'a self, shard: &'a Mutex<Shard>) -> Access<'a> {
        let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let notifications =
            Notifications { losses: &self.losses, woken: SmallVec::new(), lost: Vec::new() };
        Access { shard, now: self.clock.now(), notifications }
    }

    /// Ends all waits and frees the memory. All shards are closed before a waker runs: a task that
    /// it wakes may call this table at once, and must not be granted a key.
    pub(super) fn close(&self) {
        self.each().for_each(|mut access| access.shard.closed = true);
        for mut access in self.each() {
            let waiters = mem::take(&mut access.shard.waiters).into_values();
            access.notifications.woken.extend(waiters.map(|waiter| waiter.signal));
            access.shard.table = LockTable::new(TableConfig::default());
        }
    }
}

/// The shard of a key, by the upper bits of a product: similar keys have similar digests.
pub(super) fn shard_of(key: &str) -> usize {
    let mixed = key_digest(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    usize::try_from(mixed % SHARDS as u64).expect("a small number")
}

impl Access<'_> {
    /// Applies a command, notifies the calls and watches of its effects, and returns the last
    /// effect.
    pub(super) fn step(&mut self, command: &Command) -> Option<Effect> {
        let mut effects = Vec::new();
        self.shard.table.apply(stamp(self.now), command, &mut effects);
        for effect in &effects {
            match effect {
                Effect::Granted(grant) => {
                    tracing::debug!(key = %grant.key, token = grant.token, "granted");
                    if let Some(waiter) = self.shard.waiters.get_mut(&grant.nonce) {
                        waiter.grant = Some(grant.clone());
                        self.notifications.woken.push(waiter.signal.clone());
                    }
                    self.notify_head(&grant.key);
                }
                Effect::Expired { key, nonce, token, .. } => {
                    tracing::info!(%nonce, token, "lease expired");
                    self.lose(key, *nonce, LossCause::Deadline, None);
                }
                Effect::Unlocked { key, nonce, was: PriorState::Held, .. } => {
                    self.lose(key, *nonce, LossCause::Ended, None);
                }
                Effect::Unlocked { key, nonce, was: PriorState::Waited, .. }
                | Effect::Dropped { key, nonce, .. } => {
                    self.forget(*nonce);
                    self.notify_head(key);
                }
                _ => {}
            }
        }
        effects.pop()
    }

    /// Unlocks or withdraws a nonce. It is forgotten at once, since each LOCK is sent once.
    pub(super) fn unlock(&mut self, key: &Arc<str>, nonce: Nonce) {
        self.step(&Command::Unlock { key: key.clone(), nonce, forget: true });
    }

    /// Ends the waits for keys with this prefix. Grants that no call has seen are unlocked last:
    /// they free no key for a wait that ends here.
    pub(super) fn end_waits(&mut self, prefix: &str) {
        let Shard { table, waiters, .. } = &*self.shard;
        let grants = waiters.values().filter_map(|waiter| waiter.grant.as_ref());
        let unread = grants.filter(|grant| grant.key.starts_with(prefix));
        let unread = unread.map(|grant| (grant.key.clone(), grant.nonce));
        let ended: Vec<_> = table.waiters(prefix).chain(unread).collect();
        for (key, nonce) in ended {
            // A given nonce may wait without a call.
            let Some(waiter) = self.shard.waiters.remove(&nonce) else { continue };
            waiter.signal.is_withdrawn.store(true, Ordering::Relaxed);
            self.notifications.woken.push(waiter.signal);
            if !nonce.is_given() {
                self.unlock(&key, nonce);
            }
        }
    }

    /// Ends a grant of another caller. The first cause of a loss stays.
    pub(super) fn force_unlock(&mut self, key: &Arc<str>, nonce: Nonce, note: Arc<str>) {
        self.lose(key, nonce, LossCause::Forced, Some(note));
        self.unlock(key, nonce);
    }

    pub(super) fn extend(&mut self, key: &Arc<str>, nonce: Nonce, duration: Duration) {
        let (key, process, duration_ms) = (key.clone(), ProcessId(0), whole_ms(duration));
        self.step(&Command::Extend { key, nonce, process, request: 0, duration_ms });
    }

    /// Ends a lease: of a watched lock, or of a grant that its call has not seen.
    fn lose(&mut self, key: &Arc<str>, nonce: Nonce, cause: LossCause, note: Option<Arc<str>>) {
        self.forget(nonce);
        if !self.notifications.losses.is_empty() {
            // `u64::MAX` matches any token of this nonce.
            let lost = Lock::new(key.clone(), nonce, u64::MAX, None);
            self.notifications.lost.push((lost, cause, note));
        }
    }

    fn forget(&mut self, nonce: Nonce) {
        let waiter = self.shard.waiters.remove(&nonce);
        self.notifications.woken.extend(waiter.map(|waiter| waiter.signal));
    }

    /// Wakes the head of a queue if the lease before it ends before the head's next check.
    fn notify_head(&mut self, key: &Arc<str>) {
        if !self.shard.waiters.is_empty()
            && let Some((head, lease_end)) = self.shard.table.next_waiter(key)
            && let Some(head) = self.shard.waiters.get(&head)
            && head.look_at > instant(lease_end)
        {
            self.notifications.woken.push(head.signal.clone());
        }
    }
}

impl Drop for Notifications<'_> {
    fn drop(&mut self) {
        for (lock, cause, note) in &self.lost {
            self.losses.report(lock, *cause, note.as_ref());
        }
        self.woken.iter().for_each(|call| call.notify.notify_one());
    }
}

/// The table's time: whole milliseconds, rounded down, so that a lease never ends early.
pub(super) fn stamp(now: Instant) -> ClusterTime {
    ClusterTime(now.whole_ms())
}

/// The clock's reading at a time of the table.
pub(super) fn instant(at: ClusterTime) -> Instant {
    Instant::from_origin(Duration::from_millis(at.0))
}
