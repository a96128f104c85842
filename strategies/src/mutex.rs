//! The trait that every strategy implements.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{Capabilities, Clock, Error, Inspection, Lock, LockOptions, LossWatch, MemberStatus};

/// A keyed mutex: many processes, one key, one holder at a time, for a lease.
///
/// # For users
///
/// Most code wants `gaggle::Locker`, which wraps any `KeyedMutex` and hands out guards. Used bare,
/// the trait is as safe: every implementation checks its input and ends every call by its
/// deadline. What it does not do is unlock for you.
///
/// A lock is advisory. A valid lock does not stop a write that is already in flight; only a
/// resource that checks the [fencing token](Lock::fencing_token) does.
///
/// # For implementors
///
/// Run [`testing::run`](crate::testing) (feature `testing`), the conformance suite, on it. Check
/// input with [`check_request`](crate::check_request), [`check_key`](crate::check_key) and
/// [`check_duration`](crate::check_duration) before any I/O. Count deadlines from before the first
/// send, with [`granted_deadline`](crate::granted_deadline) and [`extended`](crate::extended()).
/// Arm the withdrawal before the first await.
#[async_trait]
pub trait KeyedMutex: Send + Sync + 'static {
    /// Locks `key` within the `max_wait` of `options`.
    ///
    /// The lease counts from before the request was sent; at least half of it remains locally when
    /// this returns.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::Held`] (only where `max_wait` is zero),
    /// [`Error::Unavailable`], [`Error::Unknown`], [`Error::Closed`],
    /// [`Error::Failed`], [`Error::InvalidKey`], [`Error::InvalidOptions`], [`Error::Limit`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request at once. If the withdrawal is lost, the key may
    /// stay locked for at most one lease.
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error>;

    /// Locks `key` if it is free now: exactly one attempt, the same as a `max_wait` of zero.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Held`] where another acquisition holds it.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    async fn try_lock(&self, key: &str, duration: Duration) -> Result<Lock, Error> {
        let options = LockOptions::default().duration(duration).max_wait(Duration::ZERO);
        self.lock(key, options).await
    }

    /// Frees this acquisition and no other, and grants the key to the next waiter.
    ///
    /// # Errors
    ///
    /// [`Error::NotHolder`] (before the local deadline) and [`Error::Expired`] (from it on) when
    /// this acquisition no longer holds; [`Error::Unavailable`], [`Error::Unknown`],
    /// [`Error::Closed`], [`Error::Failed`]; [`Error::InvalidKey`] for a value from outside whose
    /// key no strategy grants, and [`Error::Limit`] where a bounded queue stayed full: nothing was
    /// sent then. Ends by the strategy's request timeout.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take back an unlock that was sent. One that was not sent
    /// yet is not sent, and the lease's end frees the key.
    async fn unlock(&self, lock: &Lock) -> Result<(), Error>;

    /// Makes the lease last at least `duration` from now. The token stays; a lease is never
    /// shortened, never re-created once lost, and a failed extend never unlocks.
    ///
    /// Returns the lock with its new deadline.
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock), and [`Error::InvalidOptions`]. Ends by the strategy's request
    /// timeout and by the local deadline. A process that was stopped for so long that the extended
    /// lease has passed as well gets [`Error::Expired`], never an expired lock;
    /// [`Error::Unknown`] if the lock had no deadline here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease either as it was or extended.
    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error>;

    /// The holder of `key`, if there is one. For people and metrics, not for decisions: it may be
    /// outdated when it is read, and a member of the Raft family shows its own table, which may be
    /// behind the leader's.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`], [`Error::Unknown`], [`Error::Closed`], [`Error::Failed`],
    /// [`Error::InvalidKey`], [`Error::Limit`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error>;

    /// Completes once this handle takes full part: for an embedded member, once it votes in a
    /// group that has a leader. At once where nothing has to form. Calling it is optional:
    /// [`lock`](Self::lock) waits for a leader by itself, within `max_wait`. This has no limit of
    /// time: a group whose other members never start does not form.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Failed`], [`Error::Limit`] for one member too many.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What this process knows of its group; `None`, the default, where the strategy has no group.
    fn group_status(&self) -> Option<MemberStatus> {
        None
    }

    /// What this strategy guarantees.
    fn capabilities(&self) -> Capabilities;

    /// Marks the watched locks lost, unlocks them within the request timeout, ends local waits
    /// with [`Error::Closed`], and leaves no task, socket or thread behind. Closing twice is no
    /// error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the handle closed; what was not unlocked by then, the end of its
    /// lease frees.
    async fn close(&self);

    /// Leaves the unlock of `lock` to the strategy's driver and returns at once: what a guard's
    /// `Drop` calls. Never blocks, never panics, works outside any runtime. Where no driver is
    /// left to do it, the lease's end frees the key.
    fn release(&self, lock: &Lock);

    /// Watches `lock` for a loss that comes before its deadline.
    fn watch(&self, lock: &Lock) -> LossWatch;

    /// The clock on which [`Lock::deadline`] is read.
    fn clock(&self) -> Arc<dyn Clock>;
}
