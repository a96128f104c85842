//! Locks for programs without tokio (feature `blocking`).
//!
//! Each call blocks its thread until it ends, by the same deadlines as the call of the same name of
//! [`gaggle::Locker`](crate::Locker), whose documentation has its options, limits and errors. The
//! strategy runs on its own thread, as after [`open_on_thread`](crate::open_on_thread), and its last
//! handle ends that thread. Any number of threads may share a [`Locker`].
//!
//! ```
//! use std::time::Duration;
//!
//! use gaggle::{LockOptions, blocking};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let locker = blocking::open("local:")?;
//!     let guard = locker.lock("orders/42")?;
//!     println!("token {}", guard.fencing_token());
//!     guard.unlock()?;
//!
//!     let request = locker.lock_with("report", LockOptions::default());
//!     let guard = request.auto_extend(Duration::from_secs(3_600)).wait()?;
//!     // Work that blocks this thread does not stop the extensions.
//!     drop(guard); // unlocks too
//!     locker.close()?;
//!     Ok(())
//! }
//! ```
//!
//! # Differences
//!
//! - Within a tokio runtime, its `spawn_blocking` included, a call ends at once as
//!   [`Error::Unavailable`], and sends nothing: call [`gaggle::open`](crate::open) there. Dropping a
//!   guard works everywhere.
//! - A thread cannot be cancelled. A loss does not end a section or the work under a guard: check
//!   [`Section::is_valid`] and [`Guard::is_valid`] between its steps.
//! - In a fork, the calls of a copied handle end [`Error::Failed`], those of `local:` among them.

mod guard;

use std::{future::IntoFuture, sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, Inspection, Lock, LockOptions, MaxWait, error::UnavailableKind::Misconfigured,
};
use tokio::runtime::Handle;

pub use self::guard::Guard;
use crate::{OpenError, Section, SectionError, Url, own_thread, own_thread::OwnThread};

/// Opens a strategy by URL; see [`gaggle::open`](crate::open).
///
/// # Errors
///
/// As [`open_on_thread`](crate::open_on_thread), and [`Error::Unavailable`] within a tokio runtime.
pub fn open(url: &str) -> Result<Locker, OpenError> {
    check_outside_runtime()?;
    let reply = own_thread::start(Url::parse(url)?)?;
    Ok(Locker { inner: own_thread::opened(reply.blocking_recv())? })
}

/// A keyed mutex whose calls block; see [`gaggle::Locker`](crate::Locker).
///
/// Cloning is cheap; clones share the strategy and its thread.
#[derive(Clone, Debug)]
pub struct Locker {
    inner: crate::Locker,
}

impl Locker {
    /// The asynchronous locker over the same strategy, which works in any executor.
    #[must_use]
    pub fn as_async(&self) -> &crate::Locker {
        &self.inner
    }

    /// Locks `key` for a lease of 10 s, waiting at most 5 s; see [`crate::Locker::lock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::lock`], and those of the [module](self#differences); so have all calls.
    pub fn lock(&self, key: impl AsRef<str>) -> Result<Guard, Error> {
        self.lock_with(key, LockOptions::default()).wait()
    }

    /// A request to lock `key`, which its methods send; see [`crate::Locker::lock_with`].
    pub fn lock_with(&self, key: impl AsRef<str>, options: LockOptions) -> Acquire {
        Acquire { inner: self.inner.lock_with(key, options) }
    }

    /// Runs `section` under the lock, and unlocks also if it panics; see
    /// [`crate::Locker::with_lock`].
    ///
    /// # Errors
    ///
    /// As [`Acquire::run`].
    pub fn with_lock<T>(
        &self,
        key: impl AsRef<str>,
        options: LockOptions,
        section: impl FnOnce(Section) -> T,
    ) -> Result<T, SectionError<T>> {
        self.lock_with(key, options).run(section)
    }

    /// Locks all of `keys`, or none; see [`crate::Locker::lock_all`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::lock_all`].
    pub fn lock_all<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: LockOptions,
    ) -> Result<Vec<Guard>, Error> {
        let guards = self.wait(self.inner.lock_all(keys, options))??;
        Ok(guards.into_iter().map(Guard::new).collect())
    }

    /// Adopts a lock that another process transferred; see [`crate::Locker::adopt`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::adopt`].
    pub fn adopt(&self, lock: &Lock, duration: Duration) -> Result<Guard, Error> {
        self.wait(self.inner.adopt(lock, duration))?.map(Guard::new)
    }

    /// The holder of `key`; see [`crate::Locker::inspect`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::inspect`].
    pub fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.wait(self.inner.inspect(key))?
    }

    /// Waits until no process holds `key`; see [`crate::Locker::wait_for_release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::wait_for_release`].
    pub fn wait_for_release(&self, key: &str, max_wait: impl Into<MaxWait>) -> Result<(), Error> {
        self.wait(self.inner.wait_for_release(key, max_wait))?
    }

    /// Unlocks every key of this handle that begins with `prefix`, and ends the waits of its
    /// threads for such keys; see [`crate::Locker::unlock_all`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::unlock_all`].
    pub fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.wait(self.inner.unlock_all(prefix))?
    }

    /// A locker of the keys that begin with `name` and a slash; see [`crate::Locker::scope`].
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        Self { inner: self.inner.scope(name) }
    }

    /// Waits until an embedded member votes; see [`crate::Locker::ready`].
    ///
    /// # Errors
    ///
    /// As [`crate::Locker::ready`].
    pub fn ready(&self) -> Result<(), Error> {
        self.wait(self.inner.ready())?
    }

    /// Unlocks all guards and ends all waits; see [`crate::Locker::close`]. The thread ends with the
    /// last handle, which need not be closed.
    ///
    /// # Errors
    ///
    /// Those of the [module](self#differences): the strategy is open then.
    pub fn close(&self) -> Result<(), Error> {
        self.wait(self.inner.close())
    }

    fn wait<T>(&self, call: impl Future<Output = T>) -> Result<T, Error> {
        wait(self.inner.thread(), call)
    }
}

/// A lock request that is not sent yet; see [`gaggle::Acquire`](crate::Acquire).
#[must_use = "nothing is sent until one of its methods is called"]
#[derive(Debug)]
pub struct Acquire {
    inner: crate::Acquire,
}

impl Acquire {
    /// Keeps the lease alive while the guard lives, on the thread of the strategy; see
    /// [`crate::Acquire::auto_extend`].
    pub fn auto_extend(self, max_hold: Duration) -> Self {
        Self { inner: self.inner.auto_extend(max_hold) }
    }

    /// Waits for the lock, for at most its `max_wait`.
    ///
    /// # Errors
    ///
    /// As [`Locker::lock`].
    pub fn wait(self) -> Result<Guard, Error> {
        let thread = self.inner.locker().thread().cloned();
        wait(thread.as_ref(), self.inner.into_future())?.map(Guard::new)
    }

    /// Takes the key only if it is free now; see [`crate::Acquire::try_now`].
    ///
    /// # Errors
    ///
    /// As [`crate::Acquire::try_now`].
    pub fn try_now(self) -> Result<Guard, Error> {
        let thread = self.inner.locker().thread().cloned();
        wait(thread.as_ref(), self.inner.try_now())?.map(Guard::new)
    }

    /// Runs `section` under the lock, and unlocks also if it panics.
    ///
    /// # Errors
    ///
    /// [`SectionError::NotLocked`] and [`SectionError::NotUnlocked`]. The section ran to its end
    /// also if its lock was lost: the cause of `NotUnlocked` is then [`Error::NotHolder`] or
    /// [`Error::Expired`].
    pub fn run<T>(self, section: impl FnOnce(Section) -> T) -> Result<T, SectionError<T>> {
        let guard = self.wait().map_err(SectionError::NotLocked)?;
        let output = section(guard.as_async().section());
        match guard.unlock() {
            Ok(()) => Ok(output),
            Err(cause) => Err(SectionError::NotUnlocked { output, cause }),
        }
    }
}

/// Polls a call on this thread until it ends. The thread of the strategy drives timers and sockets.
fn wait<T>(thread: Option<&Arc<OwnThread>>, call: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = thread.expect("a blocking strategy has one").runtime()?;
    check_outside_runtime()?;
    Ok(runtime.block_on(call))
}

/// A thread of a runtime that blocks stops other tasks, the lock's holder perhaps among them.
fn check_outside_runtime() -> Result<(), Error> {
    match Handle::try_current() {
        Err(error) if error.is_missing_context() => Ok(()),
        _ => Err(Error::unavailable(
            Misconfigured,
            "a blocking call within a tokio runtime: use gaggle::open there, or a thread of std",
        )),
    }
}
