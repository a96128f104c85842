//! The competitors as contenders: each as its own documents say that it is used.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dashmap::DashMap;
use etcd_client::{Client, ConnectOptions, LockOptions};
pub(crate) use gaggle_workloads::BoxError;
use gaggle_workloads::{Contender, Figures};
use redis::{AsyncConnectionConfig, Script, aio::MultiplexedConnection};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_postgres::{NoTls, Statement};

/// The lease where a contender has leases: our default.
const LEASE: Duration = Duration::from_secs(10);

/// The figures, if the lock excluded: what did not is no measurement.
pub(crate) fn excluding(figures: Figures) -> Result<Figures, BoxError> {
    match figures.broken.any() {
        true => Err(format!("it did not exclude: {:?}", figures.broken).into()),
        false => Ok(figures),
    }
}

/// A map of tokio's mutexes, with an entry only while it is used.
#[derive(Default)]
pub(crate) struct Mutexes {
    map: DashMap<String, Arc<Mutex<()>>>,
    /// How long a call waits at the most, by a timer around it.
    wait: Option<Duration>,
}

impl Mutexes {
    /// Waiters that give up, as those of a lock must be able to.
    pub(crate) fn that_give_up_after(wait: Duration) -> Self {
        Self { wait: Some(wait), ..Self::default() }
    }
}

impl Contender for Mutexes {
    type Hold = (OwnedMutexGuard<()>, String);

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        let mutex = match self.map.get(key) {
            Some(mutex) => mutex.clone(),
            None => self.map.entry(key.to_owned()).or_default().clone(),
        };
        let guard = match self.wait {
            Some(wait) => tokio::time::timeout(wait, mutex.lock_owned()).await?,
            None => mutex.lock_owned().await,
        };
        Ok((guard, key.to_owned()))
    }

    async fn unlock(&self, (guard, key): Self::Hold) -> Result<(), BoxError> {
        drop(guard);
        // A waiter holds it too, and took it under the map's own lock.
        self.map.remove_if(&key, |_, mutex| Arc::strong_count(mutex) == 1);
        Ok(())
    }
}

/// The two commands that any lock on Redis needs, and nothing else, by a client that sleeps until
/// each is confirmed: for keys of one task each. Or two scripts, of which the first counts a
/// fencing token as well.
pub(crate) struct BareRedis {
    connection: MultiplexedConnection,
    /// In place of the bare command.
    set: Option<Script>,
    delete: Script,
    number: AtomicU64,
}

impl BareRedis {
    pub(crate) async fn open(url: &str) -> Result<Self, BoxError> {
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection().await?;
        let delete = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                      return redis.call('del', KEYS[1]) else return 0 end";
        let (delete, number) = (Script::new(delete), AtomicU64::new(1));
        Ok(Self { connection, set: None, delete, number })
    }

    /// The least script that gives a lease and a fencing token: no queue, and no memory of nonces.
    pub(crate) async fn with_tokens(url: &str) -> Result<Self, BoxError> {
        let set = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                   return redis.call('incr', KEYS[2]) else return 0 end";
        Ok(Self { set: Some(Script::new(set)), ..Self::open(url).await? })
    }
}

/// A hold of a key, by a value, with a token if there is any.
pub(crate) struct BareHold {
    key: String,
    value: u64,
    token: Option<u64>,
}

impl Contender for BareRedis {
    type Hold = BareHold;

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        let value = self.number.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.connection.clone();
        let lease = LEASE.as_millis() as u64;
        let token = match &self.set {
            None => {
                let mut set = redis::cmd("SET");
                set.arg(key).arg(value).arg("NX").arg("PX").arg(lease);
                set.query_async::<Option<String>>(&mut connection).await?.map(|_| None)
            }
            Some(set) => {
                let mut set = set.key(key);
                set.key("competitors/tokens").arg(value).arg(lease);
                let token = set.invoke_async::<u64>(&mut connection).await?;
                (token > 0).then_some(Some(token))
            }
        };
        match token {
            Some(token) => Ok(BareHold { key: key.to_owned(), value, token }),
            None => Err("the key is taken: this is for one task".into()),
        }
    }

    async fn unlock(&self, BareHold { key, value, .. }: Self::Hold) -> Result<(), BoxError> {
        let mut connection = self.connection.clone();
        let mut delete = self.delete.key(key);
        match delete.arg(value).invoke_async::<u64>(&mut connection).await? {
            1 => Ok(()),
            _ => Err("the key was not held".into()),
        }
    }

    fn token(hold: &Self::Hold) -> Option<u64> {
        hold.token
    }
}

/// A hand-off by Redis without polling and without a script: a token in a list is popped to lock
/// and pushed to unlock, by clients that sleep until the reply. FIFO; no lease, no nonce, no
/// fencing token, and the death of a holder is not noticed. A connection a task, since a waiting
/// connection takes no other request.
pub(crate) struct Token {
    connection: MultiplexedConnection,
    /// The keys that this session knows to have a token.
    made: Mutex<BTreeSet<String>>,
}

impl Token {
    pub(crate) async fn open(url: &str) -> Result<Self, BoxError> {
        let client = redis::Client::open(url)?;
        // By itself it gives up a wait after half a second.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        Ok(Self { connection, made: Mutex::default() })
    }

    /// Creates the token of a key, once for all sessions. Its creator holds it.
    async fn make(&self, key: &str) -> Result<bool, BoxError> {
        let mut made = self.made.lock().await;
        if !made.insert(key.to_owned()) {
            return Ok(false);
        }
        let mut set = redis::cmd("SET");
        set.arg(format!("{key}/made")).arg(1).arg("NX");
        Ok(set.query_async::<Option<String>>(&mut self.connection.clone()).await?.is_some())
    }
}

impl Contender for Token {
    type Hold = String;

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        // The token stays when all is over, where others would take it for a lock.
        let key = format!("token/{key}");
        if self.make(&key).await? {
            return Ok(key);
        }
        let mut pop = redis::cmd("BLPOP");
        pop.arg(&key).arg(0);
        pop.query_async::<(String, String)>(&mut self.connection.clone()).await?;
        Ok(key)
    }

    async fn unlock(&self, key: Self::Hold) -> Result<(), BoxError> {
        let mut push = redis::cmd("RPUSH");
        push.arg(key).arg("token");
        match push.query_async::<u64>(&mut self.connection.clone()).await? {
            // If a client waits, it is popped after this reply was counted.
            1 => Ok(()),
            _ => Err("the key was not held".into()),
        }
    }
}

/// rslock over one Redis, with its own retries (at random within 200 ms).
pub(crate) struct Rslock(rslock::LockManager);

impl Rslock {
    pub(crate) fn new(url: &str) -> Self {
        Self(rslock::LockManager::new(vec![url]))
    }
}

impl Contender for Rslock {
    type Hold = rslock::LockGuard;

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        Ok(self.0.acquire(key.as_bytes(), LEASE).await?)
    }

    async fn unlock(&self, guard: Self::Hold) -> Result<(), BoxError> {
        guard.release().await;
        Ok(())
    }
}

/// A session of PostgreSQL: an advisory lock belongs to one, so each task has its own.
pub(crate) struct PostgresSession {
    client: tokio_postgres::Client,
    lock: Statement,
    unlock: Statement,
}

impl PostgresSession {
    pub(crate) async fn open(url: &str) -> Result<Self, BoxError> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // Ends with the client.
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Self { client, lock, unlock })
    }
}

impl Contender for PostgresSession {
    type Hold = i64;

    async fn lock(&self, key: &str) -> Result<i64, BoxError> {
        // FNV-1a: PostgreSQL knows keys as numbers.
        let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let key = hash.cast_signed();
        self.client.query(&self.lock, &[&key]).await?;
        Ok(key)
    }

    async fn unlock(&self, key: i64) -> Result<(), BoxError> {
        let row = self.client.query_one(&self.unlock, &[&key]).await?;
        if row.get::<_, bool>(0) { Ok(()) } else { Err("the key was not held".into()) }
    }
}

/// A client of etcd's lock service, with its own connection and lease.
pub(crate) struct EtcdSession {
    client: Client,
    lease: i64,
}

impl EtcdSession {
    pub(crate) async fn open(endpoint: &str) -> Result<Self, BoxError> {
        let options = ConnectOptions::new().with_tcp_keepalive(LEASE);
        let mut client = Client::connect([endpoint], Some(options)).await?;
        // Longer than any workload, because keep-alives are not measured.
        let lease = client.lease_grant(600, None).await?.id();
        Ok(Self { client, lease })
    }
}

impl Contender for EtcdSession {
    type Hold = Vec<u8>;

    async fn lock(&self, key: &str) -> Result<Self::Hold, BoxError> {
        let options = LockOptions::new().with_lease(self.lease);
        Ok(self.client.clone().lock(key, Some(options)).await?.key().to_vec())
    }

    async fn unlock(&self, key: Self::Hold) -> Result<(), BoxError> {
        self.client.clone().unlock(key).await?;
        Ok(())
    }
}
