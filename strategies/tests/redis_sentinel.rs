//! Goal: a handle finds the master through Sentinels, follows a failover, and loses what the new
//! master does not know; and TLS is what it says.
//! Method: a master, two replicas and three Sentinels of the test's own; the master is killed, or
//! does not reply any more.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test that meets an error has failed

mod redis_support;

use std::time::Instant;

use gaggle_fixtures::{RedisSentinel, free_port};
use gaggle_strategies::{KeyedMutex, LockOptions, Redis, RedisOptions};
use redis_support::{Server, ask, by_sentinels, cut_off, master, ms, replied, secs, take};

/// A master with two replicas, and three Sentinels that know all of them.
async fn watched() -> (Server, [Server; 2], [RedisSentinel; 3]) {
    let master = Server::start().await;
    let port = master.port().to_string();
    let replicas = [(); 2].map(|()| Server::start_with(&["--replicaof", "127.0.0.1", &port]));
    let sentinels = [(); 3].map(|()| RedisSentinel::start(master.port()));
    let limit = Instant::now() + secs(30);
    for sentinel in &sentinels {
        while !knows_all(sentinel).await {
            assert!(Instant::now() < limit, "the Sentinels do not find each other");
            tokio::time::sleep(ms(50)).await;
        }
    }
    (master, replicas, sentinels)
}

async fn knows_all(sentinel: &RedisSentinel) -> bool {
    let reply = ask::<Vec<String>>(sentinel, &["SENTINEL", "MASTER", "main"]).await;
    let fields = reply.unwrap_or_default();
    let has = |name: &str, value: &str| fields.chunks(2).any(|pair| pair == [name, value]);
    has("num-slaves", "2") && has("num-other-sentinels", "2")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_is_followed_and_loss_notified() {
    follow_failover(Server::down).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_of_a_silent_master_is_followed() {
    follow_failover(|server| server.signal("STOP")).await;
}

async fn follow_failover(fail: fn(&Server)) {
    let (server, replicas, sentinels) = watched().await;
    let redis = Redis::open(by_sentinels(&sentinels)).await.unwrap();
    let kept = take(&redis, "kept", secs(60)).await;
    let _: u64 = server.command(&["WAIT", "2", "5000"]).await;
    // A lease that no replica knows: it is granted while none can be reached.
    cut_off(&server, &replicas).await;
    let lost = take(&redis, "lost", secs(60)).await;
    let (watch_kept, watch_lost) = (redis.watch(&kept), redis.watch(&lost));
    let former = server.port();
    fail(&server);
    replicas.iter().for_each(|replica| replica.signal("CONT"));
    let granted = tokio::spawn(async move {
        let next = redis.lock("lost", LockOptions::default().max_wait(secs(30))).await;
        (redis, next, Instant::now())
    });
    let limit = Instant::now() + secs(30);
    'switched: loop {
        for sentinel in &sentinels {
            if master(sentinel).await.is_some_and(|port| port != former) {
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
async fn a_silent_sentinel_is_passed_over() {
    let master = Server::start().await;
    let sentinel = RedisSentinel::start(master.port());
    replied(std::slice::from_ref(&sentinel)).await;
    // Accepted by the system alone.
    let silent = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let silent = silent.iter().map(|it| it.local_addr().unwrap().to_string());
    let addresses = silent.chain([sentinel.address()]);
    let options = RedisOptions::new("redis://master").sentinels("main", addresses);
    let began = Instant::now();
    let redis = Redis::open(options).await.unwrap();
    assert!(began.elapsed() < ms(1_500), "opened after {:?}", began.elapsed());
    redis.close().await;
}

#[tokio::test]
async fn a_wrong_sentinel_is_passed_over() {
    let (master, decoy) = (Server::start().await, Server::start().await);
    let port = master.port().to_string();
    let replica = Server::start_with(&["--replicaof", "127.0.0.1", &port]);
    // One is down, one names a replica, one is a plain Redis, and the last one is right.
    let sentinels = [&replica, &master].map(|server| RedisSentinel::start(server.port()));
    replied(&sentinels).await;
    let [wrong, right] = sentinels.each_ref().map(RedisSentinel::address);
    let [down, decoy] = [free_port(), decoy.port()].map(|port| format!("127.0.0.1:{port}"));
    let options = |addresses: &[&String]| {
        RedisOptions::new("redis://master").sentinels("main", addresses.iter().copied().cloned())
    };
    let redis = Redis::open(options(&[&down, &wrong, &decoy, &right])).await.unwrap();
    take(&redis, "k", secs(10)).await;
    let fails = async |options: RedisOptions| Redis::open(options).await.unwrap_err().to_string();
    let error = fails(options(&[&down, &wrong])).await;
    assert!(error.contains("is a replica"), "{error}");
    let error = fails(options(&[&decoy])).await;
    assert_eq!(
        error,
        format!(
            "the server at {decoy} is not a Sentinel: give the address of one, or for that \
             server alone write redis://{decoy}"
        )
    );
    let login = options(&[&right, &down]).sentinel_login(Some("she"), "wrong");
    let error = fails(login).await;
    assert!(error.contains(": it refused the user name or the password; sentinel_user"), "{error}");
    let nodes = RedisOptions::new(format!("redis://{down}")).cluster([right.clone()]);
    let error = fails(nodes).await;
    assert!(error.ends_with(&format!("keys: write redis+sentinel://{right}/MASTER")), "{error}");
    let error = fails(options(&[&down])).await;
    assert_eq!(error, format!("cannot reach the Sentinel at {down}: connection refused"));
    let error = fails(options(&[&right]).sentinels("other", [right.clone()])).await;
    assert!(error.contains("knows no master \"other\""), "{error}");
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_serves_and_its_errors_are_named() {
    use gaggle_channels::tls::Validity;
    use gaggle_fixtures::Certificates;
    use redis_support::trust;
    let (certificates, port) = (Certificates::new(), free_port());
    let server = Server::start_tls(&certificates, port);
    let (url, files) = (format!("rediss://localhost:{port}"), trust(&certificates));
    let redis = Redis::open(RedisOptions::new(&url).tls(files.clone())).await.unwrap();
    let lock = take(&redis, "k", secs(10)).await;
    redis.unlock(&lock).await.unwrap();
    let by_address = RedisOptions::new(format!("rediss://127.0.0.1:{port}")).tls(files.clone());
    Redis::open(by_address.clone().tls_name("localhost")).await.unwrap();
    // The first second of 2100.
    let far = 4_102_444_800;
    // Servers whose certificate is expired, not valid yet or for another name.
    let issued = |name, from, until| {
        let (own, port) = (Certificates::new(), free_port());
        own.issue_for("server", name, Validity { from, until });
        let server = Server::start_tls(&own, port);
        let options = RedisOptions::new(format!("rediss://localhost:{port}")).tls(trust(&own));
        (server, own, options)
    };
    let expired = issued("localhost", 0, 1_700_000_000);
    let early = issued("localhost", far, far + 1);
    let misnamed = issued("other.example", 0, far);
    let foreign = Certificates::new();
    let plain = format!("rediss://localhost:{}", server.port());
    for (options, parts) in [
        (by_address, ["certificate is not for 127.0.0.1", "but for localhost"]),
        (misnamed.2.clone(), ["certificate is not for localhost", "but for other.example"]),
        (expired.2.clone(), ["certificate expired at 2023", "clock?"]),
        (early.2.clone(), ["certificate valid from 2100", "clock?"]),
        (RedisOptions::new(&url).tls(trust(&foreign)), ["unknown authority", ""]),
    ] {
        let error = Redis::open(options).await.unwrap_err();
        assert!(error.is_permanent(), "{error}");
        let error = error.to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {error}");
    }
    // A Redis that waits for the end of what it takes for a command replies nothing.
    let error = Redis::open(RedisOptions::new(plain).tls(files)).await.unwrap_err();
    assert!(error.is_permanent(), "{error}");
    assert!(error.to_string().ends_with("TLS: write redis in place of rediss"), "{error}");
}
