//! The Redis strategy: the lock table is a few keys in one Redis, and each verb one script. For
//! drivers; may change in 0.x.
//!
//! - `settle.lua` and one file per verb: the scripts, each of which takes a list of requests.
//!   `script`, `keys`: their texts, and the names of keys.
//! - `backend`: the granting side of the client core: commands in, events out. `lists`: the requests
//!   of a turn, by their scripts. `request`: the only place that encodes a list. `protocol`: the only
//!   place that reads replies and publications. `waiters`: the waiters of this process, and its
//!   signs of life. `replicas`: grants that are not reported before enough replicas have them.
//! - `connect`: one connection for requests and publications, opened again when it breaks.
//!
//! **One lock:** the core submits a LOCK, which is sent at the end of the turn. If the key is free,
//! the reply grants it. Otherwise the LOCK queues the waiter, which is granted the key later: by a
//! publication, or by the reply to an UNLOCK of the same process. Checks (POLLs) find lost grants,
//! and show that the process is alive.

mod backend;
mod connect;
mod error;
mod keys;
mod lists;
mod options;
mod protocol;
mod replicas;
mod request;
mod script;
mod waiters;

use std::sync::Arc;

pub use self::{
    backend::Backend,
    connect::{Dial, DialFuture, ServerStream, Stream},
    options::{Queue, RedisOptions},
};
use crate::{
    client::{Client, Remote, check_runtime},
    clock::Clock,
    error::Error,
    fork::unshared_random,
    lock::Owner,
};

/// Locks in one Redis: a free key costs one round trip; waiters queue in Redis, first come, first
/// served across all processes, and are notified of their grant.
///
/// ```no_run
/// use gaggle_strategies::{KeyedMutex, LockOptions, Redis, RedisOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let redis = Redis::open(RedisOptions::new("redis://127.0.0.1:6379")).await?;
/// let lock = redis.lock("orders/42", LockOptions::default()).await?;
/// // Pass lock.fencing_token() to the resource with every access.
/// redis.unlock(&lock).await?;
/// redis.close().await;
/// # Ok(())
/// # }
/// ```
///
/// It works with Redis 7 and later; Valkey replies alike. It belongs to the runtime in which it was
/// opened, which drives its connection; when that runtime ends, calls end with [`Error::Closed`].
///
/// # Guarantees
///
/// **While that Redis keeps its memory** (no restart without its data, no failover to a replica, no
/// eviction, no flush) and its wall clock is neither stepped nor slewed by more than 1 %:
///
/// - A key has at most one live lease, granted once per nonce. The holder's local deadline is never
///   later than the expiry in Redis.
/// - Waiters are granted a key in the order in which their LOCKs entered the queue in Redis.
/// - A key becomes free within its lease and one and a half `waiter_ttl` after the death of every
///   process that held it or waited for it.
///
/// **Always**:
///
/// - Fencing tokens grow with every grant of a key, even across the loss of Redis' memory, unless
///   its wall clock is behind the last token. A token is the greater of the last one plus 1 and
///   `TIME` in microseconds.
/// - A call ends by its deadline. An error of Redis is never reported as [`Error::Held`].
///
/// # Limits and failure modes
///
/// A failover, a restart, an eviction or a stepped clock can lose locks: then only the fencing
/// token protects the resource. `docs/redis.md` lists events, rights and
/// settings. `docs/contract.md` has the rules for silent processes and
/// ended nonces.
///
/// # Keys in Redis
///
/// Keys of users are spread over 16 buckets by a fixed hash. All names of a key carry the hash tag
/// of its bucket, and end with the key itself:
///
/// | name | content | expires |
/// |---|---|---|
/// | `gaggle:{b7}:t` | the bucket's last token | never |
/// | `gaggle:{b7}:x` | ended nonces of which a copy may still arrive | with the last of them |
/// | `gaggle:{b7}:l:<key>` | the holder | with the lease |
/// | `gaggle:{b7}:f:<key>` | the queue | with its last waiter, or after four `waiter_ttl` |
/// | `gaggle:{b7}:a:<key>` | the requests of the waiters | with the queue |
/// | `gaggle:{b7}:g:<key>` | a holder to be remembered | at its unlock, or `nonce_memory` later |
/// | `gaggle:{b0}:w` | nothing: written before each `WAIT` of `replicas` | after 1 s |
///
/// In a Cluster they begin with `{gaggle}:b7:`, so that one node has all of them.
/// Publications go to `gaggle:p:<process>`. Without a queue ([`Queue::None`]) a waiter retries
/// every 150 to 300 ms; it never overtakes processes that queue.
#[doc(alias = "redlock")]
#[derive(Debug)]
pub struct Redis {
    client: Client<Backend>,
}

/// The whole texts of the scripts, each with the name of its verb: `lock`, `unlock`, `extend`,
/// `poll`, `inspect` and `mark`.
#[must_use]
pub fn scripts() -> [(&'static str, &'static str); 6] {
    script::all().each_ref().map(|script| (script.name, script.text.as_str()))
}

impl Redis {
    /// Connects, checks the server, and starts the task of this handle on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] before any I/O;
    /// [`Error::Unavailable`] for a server that cannot be reached, refuses the login, or is older
    /// than Redis 7, and outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    pub async fn open(options: RedisOptions) -> Result<Self, Error> {
        check_runtime()?;
        let clock = options.clock.clone();
        let mut backend = Backend::new(options, None, unshared_random(), clock.now())?;
        backend.connect(&*clock).await.map_err(|error| error.cause().to_error())?;
        Ok(Self::start(backend, clock))
    }

    /// Not an `async fn`: a crate that awaits one compiles its code again, here the whole driver.
    fn start(backend: Backend, clock: Arc<dyn Clock>) -> Self {
        let (client, driver) = Client::new(backend, clock, Owner::this_process(None), None);
        tokio::spawn(client.run(driver));
        Self { client }
    }
}

impl Remote for Redis {
    type Backend = Backend;

    fn client(&self) -> &Client<Backend> {
        &self.client
    }
}
