//! The keyed mutex with guards, over any strategy.

mod service;

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions};

use crate::{
    Acquire, Guard, Section, SectionError,
    metrics::{self, Stopwatch},
    own_thread::OwnThread,
};

/// A keyed mutex with guards, over any [`KeyedMutex`].
///
/// Cloning is cheap; clones share the strategy. [`close`](Self::close) ends it and waits for its
/// unlocks. It is not reentrant: a second `lock` of the same key waits for the first, also in the
/// same task.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locker = gaggle::open("local:").await?;
/// let guard = locker.lock("orders/42").await?; // a lease of 10 s, after a wait of at most 5 s
/// println!("token {}", guard.fencing_token());
/// guard.unlock().await?;
/// locker.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "deadlock")]
#[derive(Clone)]
pub struct Locker {
    mutex: Arc<dyn KeyedMutex>,
    thread: Option<Arc<OwnThread>>,
}

impl Locker {
    /// Wraps a strategy.
    pub fn new(mutex: impl KeyedMutex) -> Self {
        Self::from_arc(Arc::new(mutex))
    }

    /// Wraps a shared strategy.
    #[must_use]
    pub fn from_arc(mutex: Arc<dyn KeyedMutex>) -> Self {
        metrics::create();
        Self { mutex, thread: None }
    }

    /// The same locker, whose strategy runs on `thread`.
    pub(crate) fn on_thread(mut self, thread: Arc<OwnThread>) -> Self {
        self.thread = Some(thread);
        self
    }

    pub(crate) fn thread(&self) -> Option<&Arc<OwnThread>> {
        self.thread.as_ref()
    }

    /// Guards a lock that the strategy has just granted.
    pub(crate) fn guard(self, lock: Lock, held: Stopwatch) -> Guard {
        Guard::new(self.mutex, self.thread, lock, held)
    }

    /// The strategy. After [`open_on_thread`](crate::open_on_thread) it is closed with the last
    /// locker and guard.
    #[must_use]
    pub fn strategy(&self) -> &Arc<dyn KeyedMutex> {
        &self.mutex
    }

    /// Locks `key` (1 to 1,024 bytes of UTF-8) for a lease of 10 s, waiting at most 5 s. The lease
    /// is not renewed: see [`auto_extend`](Acquire::auto_extend).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let key = format!("orders/{}", 42);
    /// let guard = locker.lock(&key).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the request. If the withdrawal is lost, the key may stay
    /// locked for at most one lease.
    pub async fn lock(&self, key: impl AsRef<str>) -> Result<Guard, Error> {
        self.lock_with(key, LockOptions::default()).await
    }

    /// Returns a request to lock `key` with these options, which is sent when it is awaited.
    ///
    /// Call [`auto_extend`](Acquire::auto_extend) on it first, or [`try_now`](Acquire::try_now) to
    /// lock without waiting.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let options = gaggle::LockOptions::default()
    ///     .duration(Duration::from_secs(2))
    ///     .max_wait(Duration::from_millis(500));
    /// let request = locker.lock_with(format!("report/{}", 7), options);
    /// let guard = request.auto_extend(Duration::from_secs(60)).await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub fn lock_with(&self, key: impl AsRef<str>, options: LockOptions) -> Acquire {
        Acquire::new(self.clone(), key.as_ref().into(), options)
    }

    /// Runs a critical section under the lock, and unlocks afterwards in every case, also on a
    /// panic. `section` receives the [`Section`], which has the fencing token and the time that
    /// remains.
    ///
    /// The section's future is dropped at its next await once the lock is lost. For a section that
    /// may outlast its lease, use [`Acquire::run`] with auto-extend.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let token = locker
    ///     .with_lock("orders/42", gaggle::LockOptions::default(), |section| async move {
    ///         section.fencing_token() // the resource sees it on each read and write
    ///     })
    ///     .await?;
    /// assert!(token > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SectionError`]: not run, dropped half-way, or finished without a clean unlock. `?` turns
    /// it into an [`Error`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the section at its present await, and sends the unlock.
    pub async fn with_lock<F, S>(
        &self,
        key: impl AsRef<str>,
        options: LockOptions,
        section: F,
    ) -> Result<S::Output, SectionError<S::Output>>
    where
        F: FnOnce(Section) -> S,
        S: Future,
    {
        self.lock_with(key, options).run(section).await
    }

    /// Unlocks a lock that is held as a plain value, as from [`Guard::into_lock`].
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::unlock`].
    pub async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.mutex.unlock(lock).await
    }

    /// Extends a lock that is held as a plain value to at least `duration` from now, and returns it
    /// with its new deadline. [`adopt`](Self::adopt) also guards it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
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
    /// `duration` from now, because a deadline does not travel, and guards it. Only one process may
    /// adopt a lock, and the process that transferred it must no longer rely on it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let lock = locker.lock("orders/42").await?.into_lock(); // is sent to another process
    /// let guard = locker.adopt(&lock, Duration::from_secs(10)).await?; // runs there
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::extend`]. The lock is not unlocked then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease unchanged or extended, without a guard.
    pub async fn adopt(&self, lock: &Lock, duration: Duration) -> Result<Guard, Error> {
        let lock = self.mutex.extend(lock, duration).await?;
        let held = Stopwatch::start(&*self.mutex.clock());
        Ok(self.clone().guard(lock, held))
    }

    /// The holder of `key`, if there is one: a snapshot for diagnostics.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::inspect`].
    pub async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.mutex.inspect(key).await
    }

    /// The guarantees of the strategy.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.mutex.capabilities()
    }

    /// Marks all guards lost, unlocks them, ends waits with [`Error::Closed`], and leaves no task,
    /// socket or thread behind. It closes all clones; closing twice is not an error. It takes a few
    /// request timeouts (1 s each) at most.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the handle closed. Keys that are not unlocked yet become free
    /// with their leases.
    pub async fn close(&self) {
        self.mutex.close().await;
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker").field("capabilities", &self.capabilities()).finish()
    }
}
