//! The loss signal: notifies the guards of a lock that can no longer be relied on.

use std::{
    collections::{BTreeMap, btree_map},
    sync::{
        Arc, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::{
    lock::{Lock, LossCause, Nonce},
    sync::{Mutex, MutexGuard},
};

/// The watched acquisitions of this process. A strategy keeps one; clones share it.
///
/// ```
/// use gaggle_strategies::{Lock, implement::LossRegistry, lock::{LossCause, Nonce}};
///
/// let (losses, lock) = (LossRegistry::default(), Lock::new("k", Nonce::random(), 1, None));
/// let watch = losses.watch(&lock);
/// losses.report(&lock, LossCause::Ended, None);
/// assert!(watch.is_lost());
/// ```
#[derive(Clone, Debug, Default)]
pub struct LossRegistry {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<Entries>,
    /// The number of entries: most locks end unwatched, and need no mutex then.
    watched: AtomicUsize,
}

/// A forgotten nonce may name a later acquisition while a guard of the former exists: the tokens
/// differ. Tokens are compared within a key, since each shard of a table counts its own.
type Acquisition = (Nonce, Arc<str>, u64);

type Entries = BTreeMap<Acquisition, Entry>;

#[derive(Debug)]
struct Entry {
    lock: Lock,
    signal: Arc<Signal>,
    watches: usize,
}

/// Raised once, when the lock is lost.
#[derive(Debug, Default)]
struct Signal {
    /// The first cause, with the note of a force-unlock.
    lost: OnceLock<(LossCause, Option<Arc<str>>)>,
    raised: Notify,
    /// Why the latest attempt to extend has failed.
    extend_error: Mutex<Option<Arc<str>>>,
    /// Whether the strategy, or a holder that found the loss first, has logged it.
    is_logged: AtomicBool,
}

impl Signal {
    /// `note`: of a force-unlock. Returns whether it was not raised before.
    fn raise(&self, cause: LossCause, note: Option<&Arc<str>>) -> bool {
        let first = self.lost.set((cause, note.cloned())).is_ok();
        if first {
            self.raised.notify_waiters();
        }
        first
    }

    fn extend_error(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.extend_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it was not logged before.
    fn mark_logged(&self) -> bool {
        !self.is_logged.swap(true, Ordering::SeqCst)
    }
}

/// Reports the loss of a lock before its deadline. The granting side no longer has the lock, or the
/// strategy left its group or was closed. The deadline itself is not watched here.
#[derive(Debug)]
pub struct LossWatch {
    signal: Arc<Signal>,
    registered: Option<(LossRegistry, Acquisition)>,
}

impl LossRegistry {
    /// Watches `lock` until the returned value is dropped.
    #[must_use]
    pub fn watch(&self, lock: &Lock) -> LossWatch {
        let acquisition = (lock.nonce(), lock.key().clone(), lock.fencing_token());
        let mut entries = self.lock();
        let entry = entries.entry(acquisition.clone()).or_insert_with(|| {
            self.shared.watched.fetch_add(1, Ordering::SeqCst);
            Entry { lock: lock.clone(), signal: Arc::default(), watches: 0 }
        });
        entry.watches += 1;
        LossWatch { signal: entry.signal.clone(), registered: Some((self.clone(), acquisition)) }
    }

    /// Records why an attempt to extend `lock` failed. A loss by the deadline reports it.
    pub fn note_extend_error(&self, lock: &Lock, reason: &Arc<str>) {
        let acquisition = (lock.nonce(), lock.key().clone(), lock.fencing_token());
        if let Some(entry) = self.lock().get(&acquisition) {
            *entry.signal.extend_error() = Some(reason.clone());
        }
    }

    /// Marks the acquisitions of its key and nonce lost, up to its token: a later one stays valid.
    /// [`LossCause::Deadline`]: the lease has ended, and before it the local deadline has passed.
    /// `note`: the process and the reason of a force-unlock. Returns whether one was watched whose
    /// loss is not logged yet.
    pub fn report(&self, lost: &Lock, cause: LossCause, note: Option<&Arc<str>>) -> bool {
        if self.is_empty() {
            return false;
        }
        let (nonce, key) = (lost.nonce(), lost.key());
        let losing: SmallVec<[_; 1]> = self
            .lock()
            .range((nonce, key.clone(), 0)..=(nonce, key.clone(), lost.fencing_token()))
            .map(|(_, entry)| entry.signal.clone())
            .collect();
        // Wakers run foreign code: they run after the mutex is released.
        losing.iter().filter(|signal| signal.raise(cause, note) && signal.mark_logged()).count() > 0
    }

    /// Whether no lock is watched. A watch that begins later is checked by its strategy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.watched.load(Ordering::SeqCst) == 0
    }

    /// Marks all lost and returns them, so that a closing strategy can unlock them.
    pub fn lose_all(&self) -> Vec<Lock> {
        self.lose_prefix("")
    }

    /// Marks all locks lost whose keys begin with `prefix`, and returns them.
    pub fn lose_prefix(&self, prefix: &str) -> Vec<Lock> {
        let is_meant = |entry: &&Entry| entry.lock.key().starts_with(prefix);
        let all = |entry: &Entry| (entry.signal.clone(), entry.lock.clone());
        let mut losing: Vec<_> = self.lock().values().filter(is_meant).map(all).collect();
        losing.retain(|(signal, _)| signal.raise(LossCause::Ended, None));
        losing.into_iter().map(|(_, lock)| lock).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.shared.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LossWatch {
    /// A watch that never fires, for a strategy that learns of no loss before the deadline.
    #[must_use]
    pub fn never() -> Self {
        Self { signal: Arc::default(), registered: None }
    }

    /// An observer of the same loss. It does not keep the lock watched: it learns of a loss only
    /// while this watch, or another of the lock, lives.
    #[must_use]
    pub fn observer(&self) -> Self {
        Self { signal: self.signal.clone(), registered: None }
    }

    /// Whether the lock was lost so far.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.cause().is_some()
    }

    /// Why the lock was lost, if it was. [`LossCause::Deadline`]: the strategy reported the end of
    /// the lease, which the local deadline precedes.
    #[must_use]
    pub fn cause(&self) -> Option<LossCause> {
        self.signal.lost.get().map(|(cause, _)| *cause)
    }

    /// The process that force-unlocked the lock, and its reason, as in `web-3, pid 711: it hangs`.
    /// `None` after any other loss.
    #[must_use]
    pub fn note(&self) -> Option<Arc<str>> {
        self.signal.lost.get()?.1.clone()
    }

    /// The error of the last failed attempt to extend the lock, as text.
    #[must_use]
    pub fn extend_error(&self) -> Option<Arc<str>> {
        self.signal.extend_error().clone()
    }

    /// Sets what [`extend_error`](Self::extend_error) returns; `None` after an extension.
    pub fn set_extend_error(&self, reason: Option<Arc<str>>) {
        *self.signal.extend_error() = reason;
    }

    /// Claims the log event of a loss that the holder found. `false` if the loss was logged, or the
    /// strategy has reported it.
    #[must_use]
    pub fn mark_logged(&self) -> bool {
        !self.is_lost() && self.signal.mark_logged()
    }

    /// Completes when the lock is lost; never, if it is not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing; it can be called again.
    pub async fn lost(&self) {
        // Before the check: it completes with any notification from here on.
        let raised = self.signal.raised.notified();
        if !self.is_lost() {
            raised.await;
        }
    }
}

impl Drop for LossWatch {
    fn drop(&mut self) {
        let Some((losses, acquisition)) = self.registered.take() else { return };
        let mut entries = losses.lock();
        let btree_map::Entry::Occupied(mut entry) = entries.entry(acquisition) else { return };
        entry.get_mut().watches -= 1;
        if entry.get().watches == 0 {
            entry.remove();
            losses.shared.watched.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn loss_reaches_and_frees_all_watches() {
        let losses = LossRegistry::default();
        let lock = Lock::new("k", Nonce::from_u128(7), 1, None);
        let (first, second) = (losses.watch(&lock), losses.watch(&lock));
        assert!(losses.report(&lock, LossCause::Ended, None));
        let late = losses.report(&lock, LossCause::Forced, Some(&"why".into()));
        assert!(!late, "a second loss changes nothing");
        let stays = (first.cause(), first.note());
        assert_eq!(stays, (Some(LossCause::Ended), None), "the first cause stays");
        first.lost().await;
        assert!(second.is_lost());
        drop(first);
        assert_eq!(losses.lock().len(), 1);
        drop(second);
        assert!(losses.is_empty() && losses.lock().is_empty());
    }
    #[tokio::test]
    async fn watch_waits_for_its_own_lock() {
        let losses = LossRegistry::default();
        let [lock, other] = [7, 8].map(|nonce| Lock::new("k", Nonce::from_u128(nonce), 1, None));
        let watch = losses.watch(&lock);
        let _other = losses.watch(&other);
        assert!(watch.lost().now_or_never().is_none());
        assert!(losses.report(&other, LossCause::Ended, None));
        assert!(watch.lost().now_or_never().is_none() && !watch.is_lost(), "another was lost");
        assert!(losses.report(&lock, LossCause::Ended, None));
        assert!(watch.lost().now_or_never().is_some() && watch.is_lost());
    }

    /// The nonce was forgotten and granted again while a guard of the lost lock exists.
    #[test]
    fn reacquired_nonce_is_not_lost() {
        let losses = LossRegistry::default();
        let [lock, later] = [1, 2].map(|token| Lock::new("k", Nonce::from_u128(7), token, None));
        let watch = losses.watch(&lock);
        let watch_later = losses.watch(&later);
        // Also if the loss of the former is reported late.
        assert!(losses.report(&lock, LossCause::Ended, None));
        assert!(watch.is_lost() && !watch_later.is_lost());
        assert!(losses.report(&later, LossCause::Ended, None), "the later one");
        assert!(watch_later.is_lost());
        drop(watch);
        assert_eq!(losses.lock().len(), 1);
    }

    /// A nonce may be used for two keys, whose tokens are independent.
    #[test]
    fn loss_on_one_key_spares_the_others() {
        let losses = LossRegistry::default();
        let [lock, other] = ["k", "other"].map(|key| Lock::new(key, Nonce::from_u128(7), 1, None));
        let (watch, watch_other) = (losses.watch(&lock), losses.watch(&other));
        assert!(losses.report(
            &Lock::new("k", lock.nonce(), u64::MAX, None),
            LossCause::Ended,
            None
        ));
        assert!(watch.is_lost() && !watch_other.is_lost());
    }

    /// A waker may drop another watch of the same lock: with the mutex held it would deadlock.
    #[test]
    fn wakers_may_drop_watches() {
        struct Dropping(std::sync::Mutex<Option<LossWatch>>);
        impl std::task::Wake for Dropping {
            fn wake(self: Arc<Self>) {
                drop(self.0.lock().unwrap().take());
            }
        }
        type Lose = fn(&LossRegistry);
        let ways: [Lose; 2] = [
            |losses| {
                let lost = Lock::new("k", Nonce::from_u128(7), 1, None);
                losses.report(&lost, LossCause::Ended, None);
            },
            |losses| _ = losses.lose_all(),
        ];
        for lose in ways {
            let losses = LossRegistry::default();
            let lock = Lock::new("k", Nonce::from_u128(7), 1, None);
            let (first, second) = (losses.watch(&lock), losses.watch(&lock));
            let waker = Arc::new(Dropping(std::sync::Mutex::new(Some(second)))).into();
            let mut lost = std::pin::pin!(first.lost());
            assert!(lost.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            let losing = losses.clone();
            let (done, ended) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                lose(&losing);
                done.send(()).unwrap();
            });
            ended.recv_timeout(std::time::Duration::from_secs(10)).expect("it comes to an end");
        }
    }

    #[test]
    fn lost_lock_is_not_unlocked_again() {
        let losses = LossRegistry::default();
        let nonces = |locks: Vec<Lock>| locks.iter().map(Lock::nonce).collect::<Vec<_>>();
        let [lock, other] = [7, 8].map(|nonce| Lock::new("k", Nonce::from_u128(nonce), 1, None));
        let _watches = [losses.watch(&lock), losses.watch(&other)];
        losses.report(&lock, LossCause::Ended, None);
        assert_eq!(nonces(losses.lose_all()), [other.nonce()], "the first is lost already");
        assert!(!losses.is_empty(), "the watches remain");
    }
}
