//! [`Noop`]: a mutex that excludes nothing, to show that checks can fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    capabilities::Capabilities,
    clock::{BootClock, Clock},
    deadline::{Drift, extended_deadline, granted_deadline},
    error::Error,
    lock::{Inspection, Lock, Nonce},
    losses::LossWatch,
    mutex::KeyedMutex,
    options::{LockOptions, check_duration, check_key, check_request},
};

/// A mutex that grants every request at once. It shows that the checks of a lock can fail.
///
/// It checks keys and options of a lock, generates growing tokens and ends with
/// [`close`](KeyedMutex::close).
///
/// ```
/// use gaggle_strategies::{KeyedMutex, LockOptions, Noop};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let noop = Noop::new();
/// noop.lock("k", LockOptions::default()).await?;
/// noop.lock("k", LockOptions::default()).await?; // a lock would wait here
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// None.
#[derive(Debug)]
pub struct Noop {
    clock: Arc<dyn Clock>,
    last_token: AtomicU64,
    closed: AtomicBool,
}

impl Default for Noop {
    fn default() -> Self {
        Self::new()
    }
}

impl Noop {
    /// A strategy on the [`BootClock`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// A strategy on this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last_token: AtomicU64::new(0), closed: AtomicBool::new(false) }
    }

    fn open(&self) -> Result<(), Error> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }
}

#[async_trait]
impl KeyedMutex for Noop {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        check_request(key, &options)?;
        self.open()?;
        let now = self.clock.now();
        let deadline =
            granted_deadline(now, now, Duration::ZERO, options.get_duration(), Drift::default());
        let token = self.last_token.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Lock::new(key, Nonce::random(), token, Some(deadline)))
    }

    async fn unlock(&self, _lock: &Lock) -> Result<(), Error> {
        self.open()
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_duration(duration)?;
        self.open()?;
        let now = self.clock.now();
        let deadline = extended_deadline(lock.deadline(), now, duration, Drift::default());
        Ok(lock.with_deadline(deadline))
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.open().map(|()| None)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none("noop")
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    fn release(&self, _lock: &Lock) {}

    fn watch(&self, _lock: &Lock) -> LossWatch {
        LossWatch::never()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn several_callers_hold_the_same_key() {
        let noop = Noop::new();
        let first = noop.lock("k", LockOptions::default()).await.unwrap();
        let second = noop.lock("k", LockOptions::default()).await.unwrap();
        assert!(first.fencing_token() < second.fencing_token());
        noop.unlock(&first).await.unwrap();
        noop.unlock(&first).await.unwrap();
        noop.extend(&second, Duration::from_secs(2)).await.unwrap();
        assert_eq!(noop.capabilities(), Capabilities::none("noop"));
    }

    #[tokio::test]
    async fn bad_input_and_closed_handle_are_refused() {
        let noop = Noop::new();
        let error = noop.lock("", LockOptions::default()).await.unwrap_err();
        assert!(matches!(error, Error::InvalidKey { .. }), "{error}");
        noop.close().await;
        let error = noop.lock("k", LockOptions::default()).await.unwrap_err();
        assert!(matches!(error, Error::Closed), "{error}");
    }
}
