//! Goal: a handle finds the master through Sentinels, follows a failover, and loses what the new
//! master does not know; and TLS is what it says.
//! Method: a master, two replicas and three Sentinels of the test's own; the master is killed.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test that meets an error has failed

mod redis_support;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio, id},
    time::{Duration, Instant},
};

use gaggle_channels::testing::{free_port, redis_program};
use gaggle_strategies::{KeyedMutex, LockOptions, Redis, RedisOptions};
use redis_support::{Server, ms, secs, take};

/// After this silence a Sentinel presumes a master dead.
const DOWN_AFTER: Duration = ms(500);

/// A Sentinel in a directory of its own.
struct Sentinel {
    process: Child,
    directory: PathBuf,
    port: u16,
}

impl Sentinel {
    fn start(master: u16) -> Self {
        let port = free_port();
        let directory = std::env::temp_dir().join(format!("gaggle-sentinel-{}-{port}", id()));
        fs::create_dir_all(&directory).unwrap();
        let settings = directory.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds main {}\nsentinel failover-timeout main 3000\n",
            directory.display(),
            DOWN_AFTER.as_millis()
        );
        fs::write(&settings, text).unwrap();
        let mut command = Command::new(redis_program());
        command.arg(&settings).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null());
        Self { process: command.spawn().unwrap(), directory, port }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// One reply of it, as redis-cli prints it.
    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://{}", self.address())).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await?;
        let mut cmd = redis::Cmd::new();
        cmd.arg(words);
        cmd.query_async(&mut connection).await
    }

    /// The port of the master that it names.
    async fn master(&self) -> Option<u16> {
        let reply = self.ask::<(String, u16)>(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        reply.await.ok().map(|(_, port)| port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A master with two replicas, and three Sentinels that know all of them.
async fn watched() -> (Server, [Server; 2], [Sentinel; 3]) {
    let master = Server::start().await;
    let port = master.port().to_string();
    let replicas = [(); 2].map(|()| Server::start_with(&["--replicaof", "127.0.0.1", &port]));
    let sentinels = [(); 3].map(|()| Sentinel::start(master.port()));
    let limit = Instant::now() + secs(30);
    for sentinel in &sentinels {
        while !knows_all(sentinel).await {
            assert!(Instant::now() < limit, "the Sentinels do not find each other");
            tokio::time::sleep(ms(50)).await;
        }
    }
    (master, replicas, sentinels)
}

async fn knows_all(sentinel: &Sentinel) -> bool {
    let reply = sentinel.ask::<Vec<String>>(&["SENTINEL", "MASTER", "main"]).await;
    let fields = reply.unwrap_or_default();
    let has = |name: &str, value: &str| fields.chunks(2).any(|pair| pair == [name, value]);
    has("num-slaves", "2") && has("num-other-sentinels", "2")
}

fn options(addresses: impl IntoIterator<Item = String>) -> RedisOptions {
    RedisOptions::new("redis://master").sentinels("main", addresses)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_is_followed_and_loss_notified() {
    let (master, replicas, sentinels) = watched().await;
    let redis = Redis::open(options(sentinels.iter().map(Sentinel::address))).await.unwrap();
    let kept = take(&redis, "kept", secs(60)).await;
    let _: u64 = master.command(&["WAIT", "2", "5000"]).await;
    // A lease that no replica knows: it is granted while none can be reached.
    replicas.iter().for_each(|replica| replica.signal("STOP"));
    // Otherwise their sockets keep what the master sends, and they read it later.
    let _: u64 = master.command(&["CLIENT", "KILL", "TYPE", "replica"]).await;
    let lost = take(&redis, "lost", secs(60)).await;
    let (watch_kept, watch_lost) = (redis.watch(&kept), redis.watch(&lost));
    let former = master.port();
    master.down();
    replicas.iter().for_each(|replica| replica.signal("CONT"));
    let granted = tokio::spawn(async move {
        let next = redis.lock("lost", LockOptions::default().max_wait(secs(30))).await;
        (redis, next, Instant::now())
    });
    let limit = Instant::now() + secs(30);
    'switched: loop {
        for sentinel in &sentinels {
            if sentinel.master().await.is_some_and(|port| port != former) {
                break 'switched;
            }
        }
        assert!(Instant::now() < limit, "the Sentinels do not switch");
        tokio::time::sleep(ms(10)).await;
    }
    let switched = Instant::now();
    let (redis, next, at) = granted.await.unwrap();
    let next = next.unwrap();
    let late = at.saturating_duration_since(switched);
    assert!(late < secs(1), "granted {late:?} after the switch");
    assert!(next.fencing_token() > lost.fencing_token());
    assert!(watch_lost.is_lost() && !watch_kept.is_lost());
    redis.unlock(&kept).await.unwrap();
    redis.unlock(&next).await.unwrap();
}

#[tokio::test]
async fn a_wrong_sentinel_is_passed_over() {
    let (master, decoy) = (Server::start().await, Server::start().await);
    let port = master.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    // One is down, one names a replica, one is a plain Redis, and the last one is right.
    let (wrong, right) = (Sentinel::start(replica.port()), Sentinel::start(master.port()));
    let limit = Instant::now() + secs(10);
    while wrong.master().await.is_none() || right.master().await.is_none() {
        assert!(Instant::now() < limit, "the Sentinels do not reply");
        tokio::time::sleep(ms(10)).await;
    }
    let addresses = [
        format!("127.0.0.1:{}", free_port()),
        wrong.address(),
        format!("127.0.0.1:{}", decoy.port()),
        right.address(),
    ];
    let redis = Redis::open(options(addresses.clone())).await.unwrap();
    take(&redis, "k", secs(10)).await;
    let error = Redis::open(options(addresses[..2].to_vec())).await.unwrap_err().to_string();
    assert!(error.contains("is a replica"), "{error}");
    let error = Redis::open(options(addresses[..1].to_vec())).await.unwrap_err().to_string();
    let expected = format!("cannot reach the Sentinel at {}: connection refused", addresses[0]);
    assert_eq!(error, expected);
    let unknown = options([right.address()]).sentinels("other", [right.address()]);
    let error = Redis::open(unknown).await.unwrap_err().to_string();
    assert!(error.contains("knows no master \"other\""), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_serves_and_its_errors_are_named() {
    use gaggle_channels::{testing::Certificates, tls::TlsFiles};
    let (certificates, port) = (Certificates::new(), free_port());
    let server = redis_support::tls_server(&certificates, "localhost", port);
    let (url, ca) = (format!("rediss://localhost:{port}"), certificates.path("ca.pem"));
    let files = TlsFiles { ca: Some(ca), ..TlsFiles::default() };
    let redis = Redis::open(RedisOptions::new(&url).tls(files.clone())).await.unwrap();
    let lock = take(&redis, "k", secs(10)).await;
    redis.unlock(&lock).await.unwrap();
    let fails = async |options: RedisOptions| Redis::open(options).await.unwrap_err().to_string();
    let by_address = RedisOptions::new(format!("rediss://127.0.0.1:{port}")).tls(files.clone());
    Redis::open(by_address.clone().tls_name("localhost")).await.unwrap();
    let error = fails(by_address).await;
    assert!(error.contains("certificate is not for 127.0.0.1"), "{error}");
    let foreign = Certificates::new();
    let other = TlsFiles { ca: Some(foreign.path("ca.pem")), ..TlsFiles::default() };
    let error = fails(RedisOptions::new(&url).tls(other)).await;
    assert!(error.contains("unknown authority"), "{error}");
    let plain = format!("rediss://localhost:{}", server.port());
    let error = fails(RedisOptions::new(plain).tls(files)).await;
    assert!(error.contains("does not speak TLS") && error.contains("write redis:"), "{error}");
}
