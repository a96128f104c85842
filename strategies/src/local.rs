//! [`Local`]: the lock table alone, in one process.

mod call;
#[cfg(test)]
mod interleavings;
mod operator;
mod shard;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use smallvec::SmallVec;
use tokio::{sync::Notify, task::consume_budget};

use self::call::Call;
use crate::{
    capabilities::{Capabilities, Exclusion, Order, Survives},
    clock::{BootClock, Clock, Instant},
    deadline::{Drift, check_lasting, extended, whole_ms},
    error::Error,
    limits::DURATION_MAX,
    lock::{Inspection, Lock, LossCause, Nonce, Owner},
    lock_table::{Command, Grant, LockTable, Sizes, TableConfig},
    losses::{LossRegistry, LossWatch},
    mutex::KeyedMutex,
    operator::Operator,
    options::{LockOptions, check_duration, check_key, check_request},
    sync::{AtomicBool, Mutex, MutexGuard},
};

/// A keyed mutex within one process: for programs of one process, and for tests of programs that
/// use another strategy in production. Tasks share one `Local`, or clones of one `Locker` over it.
///
/// It has no task, thread or socket. Its table has sixteen shards. Only calls for a shard's keys
/// advance it, so an expired lease occupies memory until the next such call. Waiting needs the
/// tokio runtime's timer; everything else works outside any runtime.
///
/// # Guarantees
///
/// At most one live lease per key, always. Waiters are granted in FIFO order. Nothing survives the
/// process. Fencing tokens begin at the wall clock's nanoseconds, so they grow across restarts
/// unless the wall clock was set back.
///
/// # Limits
///
/// About a million keys may be held, and 131,072 callers may wait for each. Each shard has a
/// sixteenth of the limits on keys and nonces plus an eighth of that, because keys spread unevenly:
/// 147,456 holders and waiters together. A call beyond a limit gets [`Error::Limit`].
///
/// # Examples
///
/// ```
/// use gaggle_strategies::{KeyedMutex, Local, LockOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let mutex = Local::new();
/// let lock = mutex.lock("orders/42", LockOptions::default()).await?;
/// let at_once = LockOptions::default().max_wait(std::time::Duration::ZERO);
/// assert!(mutex.lock("orders/42", at_once).await.is_err());
/// mutex.unlock(&lock).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Local {
    shards: Shards,
}

/// All shards of a table.
#[derive(Debug)]
struct Shards {
    clock: Arc<dyn Clock>,
    drift: Drift,
    losses: LossRegistry,
    shards: Box<[Mutex<Shard>]>,
}

/// A shard: the lock table and the waiters of its keys.
#[derive(Debug)]
struct Shard {
    table: LockTable,
    /// Calls that wait, or have not returned their lock yet.
    waiters: BTreeMap<Nonce, Waiter>,
    /// The owner of locks without a label. Each shard has its own, so that threads do not contend
    /// for one reference count.
    owner: Arc<Owner>,
    closed: bool,
}

/// A waiting call.
#[derive(Debug)]
struct Waiter {
    signal: Arc<Signal>,
    /// When the call checks the table without a notification.
    look_at: Instant,
    grant: Option<Grant>,
}

/// Wakes a waiting call, and identifies it: several calls may share a given nonce.
#[derive(Debug, Default)]
struct Signal {
    notify: Notify,
    /// Whether `unlock_all` has ended the wait.
    is_withdrawn: AtomicBool,
}

/// A locked shard, and the time. The clock and subscribers of log events, which are called with the
/// mutex held, must not call this table.
struct Access<'a> {
    // Dropped in this order: the mutex is released before a waker runs, also in a panic.
    shard: MutexGuard<'a, Shard>,
    now: Instant,
    notifications: Notifications<'a>,
}

/// Losses and wake-ups, delivered on drop: wakers run foreign code, which may call the table.
struct Notifications<'a> {
    losses: &'a LossRegistry,
    woken: SmallVec<[Arc<Signal>; 2]>,
    /// The lost locks, each with its cause, and the process and reason of a force-unlock.
    lost: Vec<(Lock, LossCause, Option<Arc<str>>)>,
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl Local {
    /// An empty table on the [`BootClock`].
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(BootClock))
    }

    /// An empty table on this clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(TableConfig::default(), Drift::default(), clock)
    }

    fn with_limits(limits: TableConfig, drift: Drift, clock: Arc<dyn Clock>) -> Self {
        // No LOCK is sent twice, so that no ended nonce has to be remembered.
        let (first_token, nonce_memory_ms) = (clock.wall_nanos(), 0);
        let table = TableConfig { first_token, nonce_memory_ms, ..limits };
        Self { shards: Shards::new(table, drift, clock) }
    }

    /// How much the table holds.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        self.shards.each().fold(Sizes::default(), |mut all, mut access| {
            access.step(&Command::Noop);
            let Sizes { keys, waiters, nonces_remembered } = access.shard.table.sizes();
            all.keys += keys;
            all.waiters += waiters;
            all.nonces_remembered += nonces_remembered;
            all
        })
    }

    fn end(&self, lock: &Lock) -> Result<(), Error> {
        let held = self.shards.held(lock).map(|mut it| it.unlock(lock.key(), lock.nonce()));
        if held.is_err() && lock.nonce().is_given() {
            // The nonce may wait.
            self.shards.access(lock.key())?.unlock(lock.key(), lock.nonce());
        }
        held
    }
}

// Most calls never wait: each consumes a unit of the task's budget, so that other tasks run too.
#[async_trait]
impl KeyedMutex for Local {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        check_request(key, &options)?;
        check_lasting(options.get_duration(), self.shards.drift, DURATION_MAX)?;
        consume_budget().await;
        Call::lock(&self.shards, key, options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        consume_budget().await;
        self.end(lock)
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        check_duration(duration)?;
        consume_budget().await;
        let duration = Duration::from_millis(whole_ms(duration));
        let mut access = self.shards.held(lock)?;
        let now = access.now;
        if lock.deadline().is_some_and(|deadline| deadline <= now) {
            return Err(Error::Expired);
        }
        access.extend(lock.key(), lock.nonce(), duration);
        extended(lock, now, duration, self.shards.drift, now)
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        consume_budget().await;
        let mut access = self.shards.access(key)?;
        access.step(&Command::Noop);
        Ok(access.shard.table.inspect(&key.into()))
    }

    async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.shards.access("").map(drop)?;
        self.shards.each().for_each(|mut access| access.end_waits(prefix));
        for lock in self.shards.losses.lose_prefix(prefix) {
            self.release(&lock);
        }
        Ok(())
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    async fn ready(&self) -> Result<(), Error> {
        self.shards.access("").map(drop)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            exclusion: Exclusion::Always,
            order: Order::Fifo,
            survives: Survives::Nothing,
            notifies_forced: true,
            ..Capabilities::none("local")
        }
    }

    async fn close(&self) {
        // Needs no unlocks: a closed table grants no key.
        self.shards.losses.lose_all();
        self.shards.close();
        // Watches that began during the close.
        self.shards.losses.lose_all();
    }

    fn release(&self, lock: &Lock) {
        // After an error the lock is lost, or the handle is closed.
        self.end(lock).ok();
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.shards.losses.watch(lock);
        match self.shards.held(lock).map(drop) {
            Ok(()) => {}
            Err(Error::Expired) => _ = self.shards.losses.report(lock, LossCause::Deadline, None),
            Err(_) => _ = self.shards.losses.report(lock, LossCause::Ended, None),
        }
        watch
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.shards.clock.clone()
    }
}
