//! The keyed mutex with guards, over any strategy.

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{
    Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions, MaxWait,
    error::Contention,
    implement::{check_request, wait_until},
    operator::Operator,
    status::MemberStatus,
};

use crate::{
    Acquire, Guard, Section, SectionError, lock_all,
    metrics::{self, Stopwatch},
    own_thread::OwnThread,
    scope::Scope,
};

/// The pauses between two inspections of a key that `wait_for_release` awaits.
const LOOK_LEAST: Duration = Duration::from_millis(1);
const LOOK_MOST: Duration = Duration::from_millis(250);

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

    /// Locks all of `keys`, or none, and returns their guards in the order of the keys given.
    ///
    /// The keys are locked one after the other in the order of their bytes, so that two such calls
    /// cannot wait for each other. `max_wait` counts for all of them together. Guards that wait for
    /// the others are extended, so that each has at least half of its lease when this returns. Every
    /// further extension is the caller's.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let options = gaggle::LockOptions::default().max_wait(Duration::from_secs(2));
    /// let accounts = locker.lock_all(["accounts/7", "accounts/3"], options).await?;
    /// assert_eq!(&*accounts[0].key(), "accounts/7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::lock`]: `TimedOut` and `Held` name the key that was not locked.
    /// [`Error::InvalidOptions`] naming `keys` if one is given twice. The others are unlocked.
    /// [`Error::NotHolder`] and [`Error::Expired`] if one was lost while the others were awaited.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future unlocks the keys that it has locked, as dropping their guards does.
    pub async fn lock_all<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: LockOptions,
    ) -> Result<Vec<Guard>, Error> {
        let keys = keys.into_iter().map(|key| key.as_ref().into()).collect();
        lock_all::lock_all(self, keys, options).await
    }

    /// Unlocks every key of this handle that begins with `prefix`, and ends its waits for such
    /// keys; an empty prefix means all of them. This is the UNLOCK_ALL of JGroups.
    ///
    /// The waits end first, as [`Error::Withdrawn`], so that none of them is granted a key that this
    /// unlocks. The guards are lost. Other lockers over the strategy are affected, too. A lock that
    /// was [transferred](Guard::into_lock) stays.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let guard = locker.lock("orders/42").await?;
    /// locker.unlock_all("orders/").await?;
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::unlock_all`].
    pub async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.mutex.unlock_all(prefix).await
    }

    /// Waits until no process holds `key`, for at most `max_wait`, without locking it.
    ///
    /// The key is inspected at the end of the holder's lease, and every 250 ms before. It may be
    /// locked again before this returns.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// locker.lock("migration").await?.unlock().await?;
    /// locker.wait_for_release("migration", Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] with the holder, [`Error::InvalidOptions`] for a `max_wait` above 24 h,
    /// and those of [`KeyedMutex::inspect`]: it may be called again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_for_release(
        &self,
        key: &str,
        max_wait: impl Into<MaxWait>,
    ) -> Result<(), Error> {
        let max_wait = max_wait.into();
        check_request(key, &LockOptions::default().max_wait(max_wait))?;
        let clock = self.mutex.clock();
        let until = wait_until(clock.now(), max_wait);
        while let Some(holder) = self.mutex.inspect(key).await? {
            let now = clock.now();
            if until.is_some_and(|until| until <= now) {
                let (key, holder) = (key.into(), Some(holder.owner));
                return Err(Error::TimedOut(Some(Box::new(Contention { key, max_wait, holder }))));
            }
            let next = now.after(holder.remaining.clamp(LOOK_LEAST, LOOK_MOST));
            clock.sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
        Ok(())
    }

    /// A locker of the keys that begin with `name` and a slash: a lock service with a name. It
    /// gives and takes keys without that prefix, and shares the strategy.
    ///
    /// Its [`close`](Self::close) unlocks the keys of the scope in this process, ends their waits
    /// with [`Error::Closed`], and leaves the strategy open. Another locker over the same strategy
    /// loses its guards for such keys, too, and its waits for them end as [`Error::Withdrawn`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let orders = locker.scope("orders");
    /// let guard = orders.lock("42").await?;
    /// assert!(locker.inspect("orders/42").await?.is_some());
    /// orders.close().await;
    /// assert!(!guard.is_valid() && locker.inspect("orders/42").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        let scope = Self::new(Scope::new(Arc::clone(&self.mutex), name));
        Self { thread: self.thread.clone(), ..scope }
    }

    /// Completes once an embedded member votes in a group that has a leader, so that rolling
    /// restarts can wait for it; at once with other strategies. It is optional: locks wait for a
    /// leader within their `max_wait`.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::ready`].
    pub async fn ready(&self) -> Result<(), Error> {
        self.mutex.ready().await
    }

    /// The group's status as this process knows it: leader, term, readiness. `None` if the strategy
    /// has no group.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("gaggle+memory://status?name=a&members=a").await?;
    /// locker.ready().await?;
    /// let status = locker.group_status().expect("a member has a group");
    /// assert!(status.ready && status.leads);
    /// locker.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn group_status(&self) -> Option<MemberStatus> {
        self.mutex.group_status()
    }

    /// Returns the [`Operator`], which lists held keys and ends the locks of other processes;
    /// `None` if the strategy has none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let _guard = locker.lock("orders/42").await?;
    /// let operator = locker.operator().expect("this strategy has one");
    /// let page = operator.list(gaggle::operator::ListOptions::default()).await?;
    /// assert_eq!(&*page.entries[0].key, "orders/42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn operator(&self) -> Option<&dyn Operator> {
        self.mutex.operator()
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
