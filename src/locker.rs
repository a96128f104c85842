//! The keyed mutex as users hold it: guards over any strategy.

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{
    Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions, MemberStatus,
};

use crate::{Acquire, Guard, SectionError};

/// A keyed mutex with guards: the ergonomics over any [`KeyedMutex`].
///
/// Cloning is cheap; clones share the strategy. Dropping the last clone does not close the
/// strategy in an orderly way: [`close`](Self::close) does.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let guard = locker.lock("orders/42").await?; // a lease of 10 s, after a wait of at most 5 s
/// println!("token {}", guard.fencing_token());
/// guard.unlock().await?;
/// # locker.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locker {
    mutex: Arc<dyn KeyedMutex>,
}

impl Locker {
    /// Wraps a strategy.
    pub fn new(mutex: impl KeyedMutex) -> Self {
        Self::from_arc(Arc::new(mutex))
    }

    /// Wraps a strategy that is shared with others.
    #[must_use]
    pub fn from_arc(mutex: Arc<dyn KeyedMutex>) -> Self {
        Self { mutex }
    }

    /// The strategy itself, for calls on plain [`Lock`] values.
    #[must_use]
    pub fn strategy(&self) -> &Arc<dyn KeyedMutex> {
        &self.mutex
    }

    /// Takes `key` (1 to 1,024 bytes of UTF-8) for a lease of 10 s, waiting at most 5 s.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request; if the withdrawal is lost, the key may stay locked
    /// for at most one lease.
    pub async fn lock(&self, key: impl Into<Arc<str>>) -> Result<Guard, Error> {
        self.lock_with(key, LockOptions::default()).await
    }

    /// Takes `key` as `options` say: await it, or first ask for
    /// [`auto_extend`](Acquire::auto_extend); [`try_now`](Acquire::try_now) does not wait.
    ///
    /// The request owns its key and its strategy, so that it can be stored and spawned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let locker = gaggle::open("local:").await?;
    /// let options = gaggle::LockOptions::default()
    ///     .duration(Duration::from_secs(2))
    ///     .max_wait(Duration::from_millis(500));
    /// let request = locker.lock_with(format!("report/{}", 7), options);
    /// let guard = request.auto_extend(Duration::from_secs(60)).await?;
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub fn lock_with(&self, key: impl Into<Arc<str>>, options: LockOptions) -> Acquire {
        Acquire::new(Arc::clone(&self.mutex), key.into(), options)
    }

    /// Runs a critical section under the lock: `section` receives the [`Lock`] (its fencing token
    /// above all), and the key is unlocked afterwards in every case, also on a panic.
    ///
    /// The section's future is dropped at its next await once the lock can no longer be relied on.
    /// For a section that may outlast its lease, use [`Acquire::run`] with auto-extend.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locker = gaggle::open("local:").await?;
    /// let token = locker
    ///     .with_lock("orders/42", gaggle::LockOptions::default(), |lock| async move {
    ///         lock.fencing_token() // the resource sees it on each read and write
    ///     })
    ///     .await?;
    /// assert!(token > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SectionError`] keeps apart what a caller must: not run, dropped half-way, or finished
    /// with its output but not cleanly unlocked. Where that does not matter, `?` turns it into the
    /// plain [`Error`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the section at its present await and leaves the unlock to the
    /// driver.
    pub async fn with_lock<F, S>(
        &self,
        key: impl Into<Arc<str>>,
        options: LockOptions,
        section: F,
    ) -> Result<S::Output, SectionError<S::Output>>
    where
        F: FnOnce(Lock) -> S,
        S: Future,
    {
        self.lock_with(key, options).run(section).await
    }

    /// Unlocks a lock that is held as a plain value: one out of [`Guard::into_lock`], or stored.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::unlock`].
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.mutex.unlock(lock).await
    }

    /// Makes the lease of a lock that is held as a plain value last at least `duration` from now,
    /// and returns the lock with its new deadline. [`adopt`](Self::adopt) does so and guards it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let locker = gaggle::open("local:").await?;
    /// let lock = locker.lock("orders/42").await?.into_lock();
    /// let lock = locker.extend(&lock, Duration::from_secs(60)).await?;
    /// locker.unlock(&lock).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::extend`].
    pub async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        self.mutex.extend(lock, duration).await
    }

    /// Adopts a lock that another process transferred (see [`Guard::into_lock`]): extends it to
    /// `duration` from now first, because a deadline does not travel, and guards it from then on.
    ///
    /// Exactly one process should adopt a lock; the one that transferred it no longer counts as
    /// holding.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::extend`]. The lock is not unlocked then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was or extended, without a guard.
    pub async fn adopt(&self, lock: &Lock, duration: Duration) -> Result<Guard, Error> {
        let lock = self.mutex.extend(lock, duration).await?;
        Ok(Guard::new(Arc::clone(&self.mutex), lock))
    }

    /// The holder of `key`, if there is one: a moment's view, for people.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.mutex.inspect(key).await
    }

    /// Completes once this handle takes full part: for an embedded member, once it votes in a
    /// group that has a leader, so that rolling restarts can wait for it; at once elsewhere.
    /// Without calling it, locks wait for a leader within their `max_wait`.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::ready`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ready(&self) -> Result<(), Error> {
        self.mutex.ready().await
    }

    /// What this process knows of its group: leader, term, whether it takes full part. `None` where
    /// the strategy has no group.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("gaggle+memory://status?name=a&members=a").await?;
    /// locker.ready().await?;
    /// let status = locker.group_status().expect("a member has a group");
    /// assert!(status.ready && status.leads);
    /// # locker.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn group_status(&self) -> Option<MemberStatus> {
        self.mutex.group_status()
    }

    /// What the strategy guarantees.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.mutex.capabilities()
    }

    /// Marks all guards lost, unlocks them, ends waits with [`Error::Closed`], and leaves no
    /// task, socket or thread behind. It closes all clones; closing twice is no error. It takes a few
    /// request timeouts (1 s each) at the most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the handle closed; what was not unlocked by then, the end of its
    /// lease frees.
    pub async fn close(&self) {
        self.mutex.close().await;
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("capabilities", &self.capabilities()).finish()
    }
}
