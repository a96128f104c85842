//! The Redis strategy: the lock table is a few keys in one Redis, and each verb one script.
//!
//! - `settle.lua` and one file a verb: what happens in Redis, all of it within one script each.
//! - `script`, `keys`, `reply`: the scripts, the names of keys, and what comes back.
//! - `wire`: one connection. `resp`: what comes on it. `link`: the shared one for requests.
//!   `trouble`: what can go wrong with it.
//! - `waiters`: who waits here; pure. `acquire`: one call of `lock`. `hold`: unlock and extend.
//!   `tasks`: the subscriber, the poller and the releaser.
//! - `shared`: what all of them hold. `greet`: the first words with a server.
//!
//! **One wait:** `acquire` joins `waiters`, then sends the LOCK from the calling task. A place in
//! the queue parks the call where its answer is read, without waking it, until the subscriber hears of
//! the grant (or an unlock of this process brings it along); the poller asks in case nobody does. Whoever leaves withdraws through the
//! releaser.

mod acquire;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod decoders;
mod greet;
mod hold;
mod keys;
mod link;
mod options;
mod reply;
mod script;
mod shared;
mod tasks;
mod trouble;
mod waiters;
#[cfg(test)]
#[path = "../tests/support/wakes.rs"]
mod wakes;
mod wire;

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

pub use self::options::{Queue, RedisOptions};
use self::{
    hold::HandOver,
    link::Server,
    shared::{Shared, tell},
};
use crate::{
    Capabilities, Clock, Error, Exclusion, Inspection, KeyedMutex, Lock, LockOptions, LossWatch,
    Order, Survives, check_duration, check_key,
};

/// Locks in one Redis: a free key costs one round trip; waiters queue in Redis, first come, first
/// served across all processes, and are told of their turn.
///
/// ```no_run
/// use gaggle_strategies::{KeyedMutex, LockOptions, Redis, RedisOptions};
///
/// # async fn example() -> Result<(), gaggle_strategies::Error> {
/// let redis = Redis::open(RedisOptions::new("redis://127.0.0.1:6379")).await?;
/// let lock = redis.lock("orders/42", LockOptions::default()).await?;
/// // Hand lock.fencing_token() to the resource with every write.
/// redis.unlock(&lock).await?;
/// redis.close().await;
/// # Ok(())
/// # }
/// ```
///
/// It works with Redis 7 and later and with Valkey. It belongs to the runtime in which it was
/// opened: that drives its connections and tasks.
///
/// # Guarantees
///
/// **While that Redis keeps its memory** (no restart without its data, no failover to a replica, no
/// eviction, no flush) and its wall clock is neither stepped nor slewed beyond
/// [`RedisOptions::drift`]: at most one live lease per key, granted once per nonce, given up by its
/// holder before Redis lets it go; waiters are served in the order in which their LOCKs took their
/// places in Redis; a key becomes free within its lease and `waiter_ttl` after the death of everybody who
/// wanted it.
///
/// **Always**: fencing tokens rise per key, also across the loss of Redis' memory, as long as its
/// wall clock is not behind the last token: a token is the greater of the last one plus 1 and
/// `TIME` in microseconds.
/// A call ends by its deadline. An error of Redis is never reported as
/// [`Error::Held`].
///
/// # Limits and failure modes
///
/// - **Failover and restart.** Replication is asynchronous: a promoted replica may not know a lease
///   that its master granted, and a Redis that restarts without its data knows none. Then two
///   holders can believe in their locks until the first one's lease ends or its next extend fails;
///   what protects the resource is the fencing token. With `appendfsync always` a restart keeps
///   leases. Where this will not do, use a strategy with a majority.
/// - **Eviction.** A Redis that may evict can drop a lock under memory pressure: it is refused, by
///   [`Error::InvalidOptions`] naming `maxmemory-policy`, unless
///   [`RedisOptions::allow_eviction`]. Full memory without eviction refuses new locks
///   ([`Error::Unavailable`]).
/// - **Clock.** Leases end by Redis' clock (`PX`), and so does a waiter's time in the queue. A step
///   forward ends leases early.
/// - **A lost publication** costs the waiter at most one poll: after the told end of the holder's
///   lease, a third of its own lease, or 1 s, whichever comes first. One poll serves all waiters of
///   a process in one bucket, and is its sign of life.
/// - **A waiter's death.** A process that was silent for `waiter_ttl`, and a sixteenth of it at the
///   most, is passed over, and its places with it. If it was alive after all, it queues again at the tail. A lock handed to a process that died less
///   than `waiter_ttl` ago lasts for its lease.
/// - **A Redis that comes back empty** in mid-queue: waiters queue again at their next poll, each
///   process' in their old order; between processes the order is new. Watched locks that are gone
///   are marked lost when the subscription is restored, and otherwise by the next extend.
/// - **Forgetting.** A LOCK that Redis sees later than `nonce_memory` after the newest time its
///   sender knew is refused and repeated at once: the first lock after an idle time of that length
///   takes two round trips.
/// - **Same nonce.** A nonce names one acquisition of one key. What ended is remembered by bucket, so
///   one that is given for two keys at once may be granted on both, where other strategies answer
///   [`Error::Spent`]: one script sees one slot of a cluster. While a call of the same handle waits with it, it
///   is refused as [`Error::InvalidOptions`]. A call that is dropped withdraws its
///   nonce, also where it was to ask after the outcome of an earlier call.
/// - **What others may do to it.** Whoever can write to the namespace can break locks. The scripts
///   need read and write access to `<namespace>:*`, publishing and subscribing there, and the commands
///   `HELLO`, `PING`, `INFO`, `TIME`, `SCRIPT LOAD`, `EVAL`, `EVALSHA`, and `SELECT` for another database than 0.
///
/// # What is in Redis
///
/// Keys of users are spread over 16 buckets by a fixed hash. All names of a key carry the
/// hash tag of its bucket, so that they lie in one slot of a Redis Cluster, and end with the key
/// itself, whatever it contains:
///
/// | name | what | expires |
/// |---|---|---|
/// | `gaggle:{b7}:t` | the bucket's last token | never |
/// | `gaggle:{b7}:x` | ended nonces of which a copy may be under way | with the last of them |
/// | `gaggle:{b7}:l:<key>` | the holder | with the lease |
/// | `gaggle:{b7}:f:<key>` | the queue, first in first out | with its last waiter, or after two `waiter_ttl` of silence |
/// | `gaggle:{b7}:a:<key>` | what the waiters asked for | with the queue |
/// | `gaggle:{b7}:g:<key>` | a holder that came from the queue | with its unlock, or `nonce_memory` after its lease |
///
/// Publications go to `gaggle:p:<process>`. With no queue ([`Queue::None`]) a waiter tries again
/// every 150 to 300 ms and takes no place; it never overtakes processes that queue.
///
/// # The scripts
///
/// Sent by `EVALSHA`, and by `EVAL` where Redis does not know them (any more). Each includes the first
/// part where it says so.
///
/// ```lua
#[doc = include_str!("redis/settle.lua")]
/// ```
///
/// ## LOCK
///
/// ```lua
#[doc = include_str!("redis/lock.lua")]
/// ```
///
/// ## UNLOCK
///
/// ```lua
#[doc = include_str!("redis/unlock.lua")]
/// ```
///
/// ## EXTEND
///
/// ```lua
#[doc = include_str!("redis/extend.lua")]
/// ```
///
/// ## POLL
///
/// ```lua
#[doc = include_str!("redis/poll.lua")]
/// ```
///
/// ## INSPECT
///
/// ```lua
#[doc = include_str!("redis/inspect.lua")]
/// ```
#[derive(Debug)]
pub struct Redis {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Redis {
    /// Connects, checks the server, and starts the tasks of this handle.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] before any I/O, and for a server that may evict keys;
    /// [`Error::Unavailable`] for one that cannot be reached, or is older than Redis 7.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(options: RedisOptions) -> Result<Self, Error> {
        options.check()?;
        let server = Server::new(&options.url, options.connect_timeout)?;
        let (shared, releases) = Shared::new(options, server);
        shared.greet().await?;
        let stop = watch::Sender::new(false);
        let mut tasks =
            vec![tokio::spawn(tasks::release(shared.clone(), releases, stop.subscribe()))];
        if shared.options.queue != Queue::None {
            tasks.push(tokio::spawn(tasks::subscribe(shared.clone(), stop.subscribe())));
            tasks.push(tokio::spawn(tasks::poll(shared.clone(), stop.subscribe())));
        }
        Ok(Self { shared, stop, tasks: Mutex::new(tasks) })
    }
}

#[async_trait]
impl KeyedMutex for Redis {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        acquire::lock(&self.shared, key, options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        self.shared.open()?;
        let handed_over = HandOver::new(&self.shared, lock);
        let result = self.shared.unlock(lock).await;
        handed_over.disarm();
        if result.is_ok() {
            // Others in this process may hold a guard of the nonce, also of a later acquisition of it: that is
            // what was freed.
            self.shared.holds.lose(lock.key(), lock.nonce(), u64::MAX);
        }
        result
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        check_duration(duration)?;
        self.shared.open()?;
        self.shared.extend(lock, duration).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.shared.open()
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        check_key(key)?;
        self.shared.open()?;
        let until = self.shared.now().after(self.shared.options.request_timeout);
        let result = self.shared.inspect(key, keys::bucket(key), until).await;
        result.map_err(|trouble| self.shared.failed(trouble, false))
    }

    fn capabilities(&self) -> Capabilities {
        let order = match self.shared.options.queue {
            Queue::Fifo => Order::Fifo,
            Queue::None => Order::None,
        };
        Capabilities {
            exclusion: Exclusion::WhileServerKeepsMemory,
            order,
            survives: Survives::AnyClient,
            distributed: true,
            ..Capabilities::none("redis")
        }
    }

    async fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let (told, withdrawals) = self.shared.waiters().close();
        tell(told);
        let until = self.shared.now().after(self.shared.options.request_timeout);
        let shared = &self.shared;
        let held = shared.holds.lose_all();
        let held = held.iter().map(|lock| async move {
            let (key, nonce) = (lock.key(), lock.nonce());
            let _ = shared.free(key, keys::bucket(key), (nonce, false), false, until).await;
        });
        let waited = withdrawals.iter().map(|withdrawal| async move {
            let request = &withdrawal.request;
            let (key, copies) = (&request.key, withdrawal.copies);
            let _ = shared.free(key, request.bucket, (request.nonce, copies), false, until).await;
        });
        tokio::join!(join_all(held), join_all(waited));
        self.stop.send_replace(true);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for mut task in tasks {
            // The releaser has one more request timeout for what was handed to it before.
            if timeout(self.shared.options.request_timeout, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.shared.link.close().await;
    }

    fn release(&self, lock: &Lock) {
        self.shared.holds.lose(lock.key(), lock.nonce(), u64::MAX);
        self.shared.release_lock(lock);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        let watch = self.shared.holds.watch(lock);
        if self.shared.open().is_err() {
            self.shared.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
            self.shared.release_lock(lock);
        }
        watch
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.options.clock.clone()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.stop.send_replace(true);
    }
}
