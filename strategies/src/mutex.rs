//! The trait that every strategy implements.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    capabilities::Capabilities,
    clock::Clock,
    error::Error,
    lock::{Inspection, Lock},
    losses::LossWatch,
    operator::Operator,
    options::LockOptions,
    status::MemberStatus,
};

/// A keyed mutex: many processes, one key, one holder at a time, for a lease.
///
/// # For users
///
/// Most code wants `gaggle::Locker`, which wraps any `KeyedMutex` and returns guards. The trait
/// alone is as safe, but does not unlock for you.
///
/// A lock is advisory. A valid lock does not stop a write that is already in flight; only a
/// resource that checks the [fencing token](Lock::fencing_token) does.
///
/// ```
/// use gaggle_strategies::{KeyedMutex, Local, LockOptions};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let mutex: &dyn KeyedMutex = &Local::new();
/// let lock = mutex.lock("orders/42", LockOptions::default()).await?;
/// let lock = mutex.extend(&lock, Duration::from_secs(60)).await?;
/// mutex.unlock(&lock).await?;
/// # Ok(())
/// # }
/// ```
///
/// # For implementors
///
/// Run the conformance suite on it: `testing::run` (feature `testing`). Check input with
/// [`check_request`], [`check_key`] and [`check_duration`] before any I/O. Count deadlines from
/// before the first send, with [`granted_deadline`] and [`extended`]. Arm the withdrawal before the
/// first await.
///
/// [`check_request`]: crate::implement::check_request
/// [`check_key`]: crate::implement::check_key
/// [`check_duration`]: crate::implement::check_duration
/// [`granted_deadline`]: crate::implement::granted_deadline
/// [`extended`]: crate::implement::extended()
#[doc(alias = "semaphore")]
#[async_trait]
pub trait KeyedMutex: Send + Sync + 'static {
    /// Locks `key` within the `max_wait` of `options`; where that is zero, with one attempt.
    ///
    /// The lease counts from before the request was sent; at least half of it remains locally when
    /// this returns.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::Held`] (only where `max_wait` is zero),
    /// [`Error::Unavailable`], [`Error::Unknown`], [`Error::Withdrawn`], [`Error::Closed`],
    /// [`Error::Failed`], [`Error::InvalidKey`], [`Error::InvalidOptions`], [`Error::Limit`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request. If the withdrawal is lost, the key may stay
    /// locked for at most one lease.
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error>;

    /// Frees this acquisition and no other, and grants the key to the next waiter.
    ///
    /// # Errors
    ///
    /// [`Error::NotHolder`] (before the local deadline) and [`Error::Expired`] (from it on) when
    /// this acquisition no longer holds; [`Error::Unavailable`], [`Error::Unknown`],
    /// [`Error::Closed`], [`Error::Failed`]; nothing was sent after [`Error::InvalidKey`], for a
    /// value from outside, and [`Error::Limit`], for a full queue. It ends by the strategy's
    /// request timeout. After `Unavailable` and `Unknown` it is still sent until the lease ends: do
    /// not rely on the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not take the unlock back: it may still be sent until the lease
    /// ends. A future that was not polled sends nothing.
    #[doc(alias = "release")]
    async fn unlock(&self, lock: &Lock) -> Result<(), Error>;

    /// Extends the lease to at least `duration` from now, and returns the lock with its new
    /// deadline. The token stays. A lease is never shortened, never restored once lost, and a
    /// failed extend never unlocks.
    ///
    /// # Errors
    ///
    /// As [`unlock`](Self::unlock), and [`Error::InvalidOptions`]. It ends by the strategy's
    /// request timeout and by the local deadline. If the process was stopped until the extended
    /// lease was over, it returns [`Error::Expired`], never an expired lock; [`Error::Unknown`] if
    /// the lock had no deadline here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease unchanged or extended.
    #[doc(alias = "renew")]
    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error>;

    /// The holder of `key`, if there is one: for diagnostics and metrics, not for decisions. It may
    /// be outdated when it is read. A member of the Raft family shows its own table, which may be
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

    /// Completes once an embedded member votes in a group that has a leader; at once with other
    /// strategies. Calling it is optional: [`lock`](Self::lock) waits for a leader within
    /// `max_wait`. It has no time limit: a group whose other members never start does not form.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Failed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The group's status as this process knows it; `None`, the default, without a group.
    fn group_status(&self) -> Option<MemberStatus> {
        None
    }

    /// Returns the [`Operator`], which lists held keys and ends locks; `None`, the default, if the
    /// strategy has none.
    fn operator(&self) -> Option<&dyn Operator> {
        None
    }

    /// Ends the waits of this handle for keys that begin with `prefix`, as [`Error::Withdrawn`], and
    /// then unlocks its watched locks of such keys; those of guards are watched. The waits end
    /// first: none of them is granted a key that this unlocks. A strategy without a queue may end
    /// a wait at its next attempt. The guards are lost. A lock that was transferred stays.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`], the default: nothing is ended. [`Error::Closed`], [`Error::Failed`],
    /// and [`Error::Limit`] for a full queue. Else the first error of an [`unlock`](Self::unlock),
    /// but for the errors of a lock that was lost before. All of them were sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back: the waits have ended, and each unlock may still be
    /// sent until its lease ends. A future that was not polled does nothing.
    async fn unlock_all(&self, _prefix: &str) -> Result<(), Error> {
        Err(Error::Unsupported { what: "unlock_all" })
    }

    /// The guarantees of this strategy.
    fn capabilities(&self) -> Capabilities;

    /// Marks the watched locks lost, unlocks them within the request timeout, ends local waits with
    /// [`Error::Closed`], and leaves no task, socket or thread behind. Closing twice is not an
    /// error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the handle closed. Keys that are not unlocked yet become free
    /// with their leases.
    async fn close(&self);

    /// Passes the unlock of `lock` to the strategy's driver and returns at once, for a guard's
    /// `Drop`. It never blocks, never panics, and works outside any runtime. If no driver is left,
    /// the lease's end frees the key.
    fn release(&self, lock: &Lock);

    /// Watches `lock` for a loss before its deadline. A lock from another process is
    /// [extended](Self::extend) first.
    fn watch(&self, lock: &Lock) -> LossWatch;

    /// The clock on which [`Lock::deadline`] is read.
    fn clock(&self) -> Arc<dyn Clock>;
}
