//! A `redis-server` of the test's own: a free loopback port, its own directory, no disk.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part, and any failure is its own"
)]

pub(crate) mod cluster;

use std::{
    process::Command,
    sync::Mutex,
    time::{Duration, Instant},
};

#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsFiles;
use gaggle_fixtures::Certificates;
use gaggle_fixtures::{RedisSentinel, RedisServer};
use gaggle_strategies::{KeyedMutex, Lock, LockOptions, Redis, RedisOptions};
use redis::{AsyncConnectionConfig, FromRedisValue, Value, aio::MultiplexedConnection};

/// A [`RedisServer`] that tests share, with questions about its content.
pub(crate) struct Server(Mutex<RedisServer>);

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self(Mutex::new(RedisServer::start_with(arguments)))
    }

    /// Starts a server with TLS on a second port.
    #[cfg(feature = "tls")]
    pub(crate) fn start_tls(certificates: &Certificates, tls_port: u16) -> Self {
        Self(Mutex::new(RedisServer::start_tls(certificates, tls_port)))
    }

    fn server(&self) -> std::sync::MutexGuard<'_, RedisServer> {
        self.0.lock().unwrap()
    }

    pub(crate) fn port(&self) -> u16 {
        self.server().port()
    }

    pub(crate) fn url(&self) -> String {
        self.server().url()
    }

    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::new(self.url())
    }

    pub(crate) async fn open(&self) -> Redis {
        Redis::open(self.options()).await.unwrap()
    }

    /// Starts the server again, empty or with the data that `SAVE` kept.
    pub(crate) async fn up(&self) {
        self.server().restart();
    }

    /// Sends the server a signal: after `STOP` it keeps its connections and replies to nothing.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.server().pid().unwrap().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Kills the server; its memory is lost.
    pub(crate) fn down(&self) {
        self.server().stop();
    }

    /// How often the server has run a command.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats: String = self.command(&["INFO", "commandstats"]).await;
        let start = format!("cmdstat_{command}:calls=");
        let calls = stats.lines().find_map(|line| line.strip_prefix(&*start));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    /// For how long the server has used a core.
    pub(crate) async fn cpu_secs(&self) -> f64 {
        let stats: String = self.command(&["INFO", "cpu"]).await;
        let parts = ["used_cpu_sys:", "used_cpu_user:"].map(|start| {
            let part = stats.lines().find_map(|line| line.strip_prefix(start));
            part.unwrap().parse::<f64>().unwrap()
        });
        parts.iter().sum()
    }

    /// A connection of the test's own, for a server that may be busy.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        let patience = Some(secs(20));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(patience)
            .set_response_timeout(patience);
        client.get_multiplexed_async_connection_with_config(&config).await.unwrap()
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut cmd = redis::Cmd::new();
        for word in words {
            cmd.arg(word);
        }
        cmd.query_async(&mut self.connection().await).await.unwrap()
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]).await;
        keys.sort();
        keys
    }

    /// All keys but token counters and remembered nonces.
    pub(crate) async fn residue(&self) -> Vec<String> {
        self.keys().await.into_iter().filter(|key| is_residue(key)).collect()
    }

    /// Waits until `count` nonces wait for `key`.
    pub(crate) async fn queued(&self, key: &str, count: u64) {
        self.queued_within(key, count, secs(20)).await;
    }

    /// Like [`queued`](Self::queued), within another time.
    pub(crate) async fn queued_within(&self, key: &str, count: u64, limit: Duration) {
        let limit = Instant::now() + limit;
        loop {
            let mut waiting = 0;
            for name in self.keys().await {
                if name.ends_with(&format!(":f:{key}")) {
                    waiting = self.command::<u64>(&["ZCARD", &name]).await;
                }
            }
            if waiting == count {
                return;
            }
            assert!(Instant::now() < limit, "{waiting} wait, not {count}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// The name of one part (`l`, `f`, `a`, `g`) of a key that is there.
    pub(crate) async fn name(&self, part: &str, key: &str) -> String {
        let tail = format!(":{part}:{key}");
        let found = self.keys().await.into_iter().find(|name| name.ends_with(&tail));
        found.unwrap_or_else(|| panic!("{tail} is not there"))
    }

    /// Ends connections by the type that Redis gives them: `normal`, `pubsub`.
    pub(crate) async fn kill(&self, kind: &str) {
        self.command::<Value>(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await;
    }
}

/// Stops these replicas, and cuts their connections, whose buffers keep what the master sends.
pub(crate) async fn cut_off(master: &Server, replicas: &[Server]) {
    replicas.iter().for_each(|replica| replica.signal("STOP"));
    master.command::<Value>(&["CLIENT", "KILL", "TYPE", "replica"]).await;
}

/// Whether a key is no token counter and remembers no nonce.
pub(crate) fn is_residue(key: &str) -> bool {
    let part = key.split_once("}:").unwrap().1;
    // In a Cluster, the bucket is not in the braces.
    let part = part.strip_prefix('b').map_or(part, |it| it.split_once(':').unwrap().1);
    !(["t", "x"].contains(&part) || part.starts_with("g:"))
}

/// A reply of a Sentinel.
pub(crate) async fn ask<T: FromRedisValue>(
    sentinel: &RedisSentinel,
    words: &[&str],
) -> redis::RedisResult<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", sentinel.port())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut cmd = redis::Cmd::new();
    cmd.arg(words);
    cmd.query_async(&mut connection).await
}

/// The port of the master that a Sentinel names.
pub(crate) async fn master(sentinel: &RedisSentinel) -> Option<u16> {
    let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
    ask::<(String, u16)>(sentinel, &words).await.ok().map(|(_, port)| port)
}

/// Waits until each of these Sentinels names a master.
pub(crate) async fn replied(sentinels: &[RedisSentinel]) {
    let limit = Instant::now() + secs(10);
    for sentinel in sentinels {
        while master(sentinel).await.is_none() {
            assert!(Instant::now() < limit, "a Sentinel does not reply");
            tokio::time::sleep(ms(10)).await;
        }
    }
}

/// The options of a handle that finds its master by these Sentinels.
pub(crate) fn by_sentinels<'a>(
    sentinels: impl IntoIterator<Item = &'a RedisSentinel>,
) -> RedisOptions {
    let addresses = sentinels.into_iter().map(RedisSentinel::address);
    RedisOptions::new("redis://master").sentinels("main", addresses)
}

/// Trust in the authority of these certificates alone.
#[cfg(feature = "tls")]
pub(crate) fn trust(certificates: &Certificates) -> TlsFiles {
    TlsFiles::default().ca(certificates.path("ca.pem"))
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// An attempt, for this lease.
pub(crate) fn at_once(lease: Duration) -> LockOptions {
    LockOptions::default().duration(lease).max_wait(Duration::ZERO)
}

/// Holds long, waits long.
pub(crate) fn patient() -> LockOptions {
    LockOptions::default().duration(secs(20)).max_wait(secs(20))
}

/// A lock that must be granted.
pub(crate) async fn take(redis: &Redis, key: &str, duration: Duration) -> Lock {
    redis.lock(key, LockOptions::default().duration(duration)).await.unwrap()
}

/// A process that dies without a word: its runtime, with all tasks and connections, goes at once.
pub(crate) struct Doomed {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Doomed {
    pub(crate) fn start() -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        Self { runtime: Some(runtime) }
    }

    /// Runs `work` there, and waits for it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.runtime.as_ref().unwrap().spawn(work).await.unwrap()
    }

    pub(crate) fn die(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
