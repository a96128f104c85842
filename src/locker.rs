use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use gaggle_strategies::{Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions};
use tokio::runtime::Handle;

use crate::{Guard, SectionError};

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
    /// Dropping the future gives up the place in the queue and withdraws the request; if the
    /// withdrawal is lost, the key can be taken in this name for at most one lease.
    pub async fn lock(&self, key: &str) -> Result<Guard, Error> {
        self.lock_with(key, LockOptions::default()).await
    }

    /// Takes `key` as `options` say; await it, or first ask for
    /// [`auto_extend`](Acquire::auto_extend).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # let locker = gaggle::open("local:").await?;
    /// let options = gaggle::LockOptions::default()
    ///     .duration(Duration::from_secs(2))
    ///     .max_wait(Duration::from_millis(500));
    /// let guard = locker.lock_with("report", options).auto_extend(Duration::from_secs(60)).await?;
    /// # guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub fn lock_with<'a>(&'a self, key: &'a str, options: LockOptions) -> Acquire<'a> {
        Acquire { locker: self, key, options, max_hold: None }
    }

    /// Takes `key` for `duration` if it is free now: one attempt.
    ///
    /// # Errors
    ///
    /// [`Error::Held`] where somebody else holds it; else as [`KeyedMutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self, key: &str, duration: Duration) -> Result<Guard, Error> {
        breathe().await;
        let lock = self.mutex.try_lock(key, duration).await?;
        Ok(Guard::new(Arc::clone(&self.mutex), lock))
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
    ///         lock.fencing_token() // read, change, write: with the token
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
    /// Dropping the future drops the section at its present await and hands the unlock to the
    /// driver.
    pub async fn with_lock<F, S>(
        &self,
        key: &str,
        options: LockOptions,
        section: F,
    ) -> Result<S::Output, SectionError<S::Output>>
    where
        F: FnOnce(Lock) -> S,
        S: Future,
    {
        self.lock_with(key, options).run(section).await
    }

    /// Takes over a lock that another process handed on (see [`Guard::into_lock`]): extends it to
    /// `duration` from now first, because a deadline does not travel, and guards it from then on.
    ///
    /// Exactly one process should adopt a lock; the one that handed it on no longer counts as
    /// holding.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::extend`]. The lock is not unlocked then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the lease as it was or extended, guarded by nobody.
    pub async fn adopt(&self, lock: &Lock, duration: Duration) -> Result<Guard, Error> {
        let lock = self.mutex.extend(lock, duration).await?;
        Ok(Guard::new(Arc::clone(&self.mutex), lock))
    }

    /// Who holds `key`, if anybody does: a moment's view, for people.
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

/// A lock about to be asked for: await it for a [`Guard`], or [`run`](Self::run) a section.
#[must_use = "nothing is asked for until this is awaited"]
#[derive(Debug)]
pub struct Acquire<'a> {
    locker: &'a Locker,
    key: &'a str,
    options: LockOptions,
    max_hold: Option<Duration>,
}

impl Acquire<'_> {
    /// Keeps the lease alive in the background while the guard lives; off by default.
    ///
    /// When a third of the lease has passed it is extended by `duration` again. Failures are
    /// retried, with growing random pauses, until the local deadline. A granting side that no
    /// longer knows the lock makes the guard lost when that is asked next. It ends with the guard, with the
    /// runtime in which the lock was taken, and `max_hold` after this returned the guard: no extension
    /// reaches beyond that, so that a hung section cannot keep a key for ever; the lease then simply runs
    /// out. What the guard is [extended](Guard::extend) further by hand stays.
    ///
    /// # Errors
    ///
    /// Before anything is sent: [`Error::InvalidOptions`] naming `max_hold`, which is at least `duration`, and
    /// [`Error::Unavailable`] outside a tokio runtime.
    pub fn auto_extend(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Runs `section` under the lock, as [`Locker::with_lock`] does.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`Locker::with_lock`].
    pub async fn run<F, S>(self, section: F) -> Result<S::Output, SectionError<S::Output>>
    where
        F: FnOnce(Lock) -> S,
        S: Future,
    {
        let guard = self.take().await.map_err(SectionError::NotLocked)?;
        let output = tokio::select! {
            // First, so that a lost lock ends the section before its next step.
            biased;
            () = guard.lost() => return Err(SectionError::Expired),
            output = section(guard.lock()) => output,
        };
        // A section that blocks its thread is not ended by the loss.
        let in_time = guard.is_valid();
        match guard.unlock().await {
            Ok(()) => Ok(output),
            Err(source) => {
                let source = if in_time { source } else { Error::Expired };
                Err(SectionError::NotUnlocked { output, source })
            }
        }
    }

    async fn take(self) -> Result<Guard, Error> {
        let duration = self.options.duration;
        self.check_max_hold()?;
        breathe().await;
        let mutex = Arc::clone(&self.locker.mutex);
        let lock = mutex.lock(self.key, self.options).await?;
        let guard = Guard::new(mutex, lock);
        Ok(match self.max_hold {
            Some(max_hold) => guard.keep_alive(duration, max_hold),
            None => guard,
        })
    }

    fn check_max_hold(&self) -> Result<(), Error> {
        let Some(max_hold) = self.max_hold else { return Ok(()) };
        if max_hold < self.options.duration {
            return Err(Error::InvalidOptions {
                field: "max_hold",
                value: format!("{max_hold:?}"),
                limit: format!("at least the duration, {:?}", self.options.duration),
            });
        }
        // Said before anything is sent, rather than by a panic once the lock is held.
        Handle::try_current().map(drop).map_err(Error::unavailable)
    }
}

impl<'a> IntoFuture for Acquire<'a> {
    type Output = Result<Guard, Error>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.take())
    }
}

/// Where a key is free, and a drop unlocks it, nothing else waits for anything: a task that does
/// nothing else would never let others run.
async fn breathe() {
    tokio::task::consume_budget().await;
}
