//! Anything that can be locked and unlocked by key.

use std::{error::Error, sync::Arc, time::Duration};

use gaggle::{Guard, KeyedMutex, Lock, LockOptions, Locker};

/// Why a lock could not be taken or given back: it ends the run.
pub type Failed = Box<dyn Error + Send + Sync>;

/// How long a task may wait: longer than any workload starves one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Anything that takes and frees keys.
pub trait Contender: Send + Sync + 'static {
    /// What a holder has.
    type Hold: Send + 'static;

    /// Takes the key, however long that takes.
    fn lock(&self, key: &str) -> impl Future<Output = Result<Self::Hold, Failed>> + Send;

    /// Frees the key, and returns when it is free.
    fn unlock(&self, hold: Self::Hold) -> impl Future<Output = Result<(), Failed>> + Send;

    /// The fencing token, where there is one: it must grow with every grant of a key.
    fn token(_: &Self::Hold) -> Option<u64> {
        None
    }
}

/// As users hold it: with guards.
impl Contender for Locker {
    type Hold = Guard;

    async fn lock(&self, key: &str) -> Result<Guard, Failed> {
        Ok(self.lock_with(key, options()).await?)
    }

    async fn unlock(&self, guard: Guard) -> Result<(), Failed> {
        Ok(guard.unlock().await?)
    }

    fn token(guard: &Guard) -> Option<u64> {
        Some(guard.fencing_token())
    }
}

/// A strategy without the guards.
#[derive(Clone)]
pub struct Bare(pub Arc<dyn KeyedMutex>);

impl std::fmt::Debug for Bare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bare").field(&self.0.capabilities()).finish()
    }
}

impl Contender for Bare {
    type Hold = Lock;

    async fn lock(&self, key: &str) -> Result<Lock, Failed> {
        Ok(self.0.lock(key, options()).await?)
    }

    async fn unlock(&self, lock: Lock) -> Result<(), Failed> {
        Ok(self.0.unlock(&lock).await?)
    }

    fn token(lock: &Lock) -> Option<u64> {
        Some(lock.fencing_token())
    }
}

/// No lock at all: the baseline of one task, and the proof that the checks can fail.
#[derive(Clone, Copy, Debug)]
pub struct NoLock;

impl Contender for NoLock {
    type Hold = ();

    async fn lock(&self, _: &str) -> Result<(), Failed> {
        Ok(())
    }

    async fn unlock(&self, (): ()) -> Result<(), Failed> {
        Ok(())
    }
}

fn options() -> LockOptions {
    LockOptions::default().max_wait(PATIENCE)
}
