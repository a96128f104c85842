//! A held lock of a blocking program.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{Error, Lock, lock::LossCause};

use super::wait;

/// A held lock; see [`gaggle::Guard`](crate::Guard). Dropping it sends the unlock before it returns,
/// in any thread, also after the [`Locker`](super::Locker) was dropped.
#[must_use = "if unused the key is unlocked at once"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct Guard {
    inner: crate::Guard,
}

impl Guard {
    pub(super) fn new(inner: crate::Guard) -> Self {
        Self { inner }
    }

    /// The asynchronous guard of the same lock.
    pub fn as_async(&self) -> &crate::Guard {
        &self.inner
    }

    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> Arc<str> {
        self.inner.key()
    }

    /// The fencing token; see [`crate::Guard::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.inner.fencing_token()
    }

    /// How long the lease can still be relied on; see [`crate::Guard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether the lease can be relied on at this instant; see [`crate::Guard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.inner.is_valid()
    }

    /// Why the lease can no longer be relied on; see [`crate::Guard::loss`].
    #[must_use]
    pub fn loss(&self) -> Option<LossCause> {
        self.inner.loss()
    }

    /// Blocks until the lease can no longer be relied on; see [`crate::Guard::lost`]. Another
    /// thread may wait while this one works.
    ///
    /// # Errors
    ///
    /// Those of the [module](super#differences).
    pub fn lost(&self) -> Result<(), Error> {
        wait(self.inner.thread(), self.inner.lost())
    }

    /// Extends the lease to at least `duration` from now; see [`crate::Guard::extend`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::extend`].
    pub fn extend(&self, duration: Duration) -> Result<(), Error> {
        wait(self.inner.thread(), self.inner.extend(duration))?
    }

    /// Unlocks and waits for the outcome; see [`crate::Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::unlock`], and those of the [module](super#differences), where the unlock
    /// is sent as by dropping the guard.
    pub fn unlock(self) -> Result<(), Error> {
        let thread = self.inner.thread().cloned();
        wait(thread.as_ref(), self.inner.unlock())?
    }

    /// Returns the lock as a plain value, without unlocking; see [`crate::Guard::into_lock`].
    #[must_use = "the lock stays held until its lease ends"]
    pub fn into_lock(self) -> Lock {
        self.inner.into_lock()
    }
}
