//! The interface between a workload and the lock that it measures.

use std::{error::Error, sync::Arc, time::Duration};

use gaggle::{Guard, KeyedMutex, Lock, LockOptions, Locker};

use super::workload::Workload;

/// The error of a lock, its section or an unlock, which ends the run.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Longer than any workload starves a task.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Locks and unlocks keys.
pub trait Contender: Send + Sync + 'static {
    /// The value that a holder keeps.
    type Hold: Send + 'static;

    /// Locks the key, however long that takes.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Hold, BoxError>> + Send;

    /// Unlocks the key, and returns when it is free.
    fn unlock(&self, hold: Self::Hold) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// The critical section, under the lock of the key: by default the sleeps of the workload.
    fn work(
        &self,
        key: &str,
        workload: &Workload,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = key;
        async {
            workload.sleep_inside().await;
            Ok(())
        }
    }

    /// The fencing token, if the lock has one. It must grow with every grant of a key.
    fn token(_: &Self::Hold) -> Option<u64> {
        None
    }
}

/// With guards, as users lock.
impl Contender for Locker {
    type Hold = Guard;

    async fn lock(&self, key: &str) -> Result<Guard, BoxError> {
        Ok(self.lock_with(key, options()).await?)
    }

    async fn unlock(&self, guard: Guard) -> Result<(), BoxError> {
        Ok(guard.unlock().await?)
    }

    fn token(guard: &Guard) -> Option<u64> {
        Some(guard.fencing_token())
    }
}

/// A strategy without guards.
#[derive(Clone)]
pub struct Bare(pub Arc<dyn KeyedMutex>);

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bare").field(&self.0.capabilities()).finish()
    }
}

impl Contender for Bare {
    type Hold = Lock;

    async fn lock(&self, key: &str) -> Result<Lock, BoxError> {
        Ok(self.0.lock(key, options()).await?)
    }

    async fn unlock(&self, lock: Lock) -> Result<(), BoxError> {
        Ok(self.0.unlock(&lock).await?)
    }

    fn token(lock: &Lock) -> Option<u64> {
        Some(lock.fencing_token())
    }
}

/// No lock: the baseline of one task, and a case in which the checks must fail.
#[derive(Clone, Copy, Debug)]
pub struct NoLock;

impl Contender for NoLock {
    type Hold = ();

    async fn lock(&self, _: &str) -> Result<(), BoxError> {
        Ok(())
    }

    async fn unlock(&self, (): ()) -> Result<(), BoxError> {
        Ok(())
    }
}

fn options() -> LockOptions {
    LockOptions::default().max_wait(MAX_WAIT)
}
