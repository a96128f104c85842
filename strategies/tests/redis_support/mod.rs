//! A `redis-server` of the test's own: a free loopback port, a directory of its own, no disk.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part, and any failure is its own"
)]

pub(crate) mod proxy;

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use gaggle_channels::testing::{free_port, redis_program};
use gaggle_strategies::{KeyedMutex, Lock, LockOptions, Redis, RedisOptions};
use redis::{AsyncConnectionConfig, FromRedisValue, Value, aio::MultiplexedConnection};

pub(crate) struct Server {
    port: u16,
    directory: PathBuf,
    settings: &'static [&'static str],
    child: Mutex<Option<Child>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With these options of its command line as well.
    pub(crate) async fn start_with(settings: &'static [&'static str]) -> Self {
        let port = free_port();
        let name = format!("gaggle-test-redis-{}-{port}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let server = Self { port, directory, settings, child: Mutex::new(None) };
        server.up().await;
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn options(&self) -> RedisOptions {
        RedisOptions::new(self.url())
    }

    pub(crate) async fn open(&self) -> Redis {
        Redis::open(self.options()).await.unwrap()
    }

    /// Starts the server, empty.
    pub(crate) async fn up(&self) {
        let mut command = Command::new(redis_program());
        if self.settings.contains(&"--cluster-enabled") {
            // Its own choice, 10,000 above the other, may be anybody's.
            command.args(["--cluster-port", &free_port().to_string()]);
        }
        let child = command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--enable-debug-command", "yes", "--dir"])
            .arg(&self.directory)
            .args(self.settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server must be installed for this test");
        *self.child.lock().unwrap() = Some(child);
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            let client = redis::Client::open(self.url()).unwrap();
            if client.get_multiplexed_async_connection().await.is_ok() {
                return;
            }
            assert!(Instant::now() < limit, "redis-server has not started");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Sends the server a signal, such as `STOP`: it keeps its connections and answers nothing.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.lock().unwrap().as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Kills the server; its memory is lost.
    pub(crate) fn down(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
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

    /// What is left besides token counters and remembered nonces.
    pub(crate) async fn residue(&self) -> Vec<String> {
        let keys = self.keys().await.into_iter();
        let stays =
            |key: &String| key.ends_with("}:t") || key.ends_with("}:x") || key.contains("}:g:");
        keys.filter(|key| !stays(key)).collect()
    }

    /// Waits until `count` nonces wait for `key`.
    pub(crate) async fn queued(&self, key: &str, count: u64) {
        self.queued_within(key, count, secs(20)).await;
    }

    /// As [`queued`](Self::queued), within another time.
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

impl Drop for Server {
    fn drop(&mut self) {
        self.down();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
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

    /// Runs `work` there until the end.
    pub(crate) fn leave<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) {
        self.runtime.as_ref().unwrap().spawn(work);
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
