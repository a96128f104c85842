//! Goal: every kind of URL opens what the table of `gaggle::open` says, each option has its effect
//! on that, and a wrong one is a typed error without the password.
//! Method: one lock and unlock through each; a `redis-server` of the test's own.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::time::Duration;

use futures_util::FutureExt;
use gaggle::{Error, Exclusion, LockOptions, Locker, OpenError, Order, open};
use gaggle_fixtures::{RedisServer, free_port};

async fn locks(locker: &Locker) {
    let options = LockOptions::default().max_wait(Duration::from_secs(20));
    let guard = locker.lock_with("k", options).await.unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// All members of a cluster lock; then all are closed.
async fn cluster(urls: &[String]) {
    let mut members = Vec::new();
    for url in urls {
        members.push(open(url).await.unwrap());
    }
    for member in &members {
        member.ready().await.unwrap();
        locks(member).await;
    }
    for member in &members {
        member.close().await;
        assert!(matches!(member.lock("k").await, Err(Error::Closed)));
    }
}

#[tokio::test]
async fn local_opens_a_table_of_its_own_each_time() {
    let (one, other) = (open("local:").await.unwrap(), open("local:").await.unwrap());
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    let held = one.clone().lock_with("k", LockOptions::default()).try_now().await;
    assert!(matches!(held, Err(Error::Held(_))), "clones share it: {held:?}");
    guard.unlock().await.unwrap();
    assert_eq!(one.capabilities().order, Order::Fifo);
}

#[tokio::test]
async fn noop_opens_and_promises_nothing() {
    let noop = open("noop:").await.unwrap();
    locks(&noop).await;
    assert_eq!(noop.capabilities().exclusion, Exclusion::Never);
}

#[tokio::test]
async fn redis_opens_with_its_options() {
    let server = RedisServer::start();
    let one = open(&format!("{}?namespace=one", server.url())).await.unwrap();
    let other = open(&format!("{}?namespace=other&queue=none", server.url())).await.unwrap();
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    guard.unlock().await.unwrap();
    assert_eq!((one.capabilities().strategy, one.capabilities().order), ("redis", Order::Fifo));
    assert_eq!(other.capabilities().order, Order::None);
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn redis_opens_over_a_unix_socket() {
    let server = RedisServer::start();
    let socket = server.socket();
    let url = |rest: &str| format!("redis+unix://{}?{rest}", socket.display());
    let (one, other) = (open(&url("db=1")).await.unwrap(), open(&url("db=2")).await.unwrap());
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    let same = open(&format!("{}1", server.url())).await.unwrap();
    let held = same.lock_with("k", LockOptions::default()).try_now().await;
    assert!(matches!(held, Err(Error::Held(_))), "the same database over TCP: {held:?}");
    guard.unlock().await.unwrap();
    let denied = open(&url("user=unknown&pass=hunter2")).await.unwrap_err();
    let OpenError::Strategy(error) = denied else { panic!("{denied:?}") };
    assert!(error.is_permanent(), "user and password are sent: {error:?}");
    for locker in [one, other, same] {
        locker.close().await;
    }
}

#[test]
fn open_outside_a_runtime_is_an_error() {
    let server = RedisServer::start();
    let member = "gaggle+memory://outside?name=a&members=a";
    for url in [member, server.url().as_str()] {
        let opened = open(url).now_or_never().expect("nothing to wait for");
        let Err(OpenError::Strategy(error)) = opened else { panic!("{url}: {opened:?}") };
        assert!(error.is_permanent(), "{url}: {error:?}");
    }
    open("local:").now_or_never().expect("nothing to wait for").unwrap();
}

#[tokio::test]
async fn locker_knows_its_groups_status() {
    let local = open("local:").await.unwrap();
    assert_eq!(local.group_status(), None);
    let urls = ["a", "b"].map(|me| format!("gaggle+memory://status?name={me}&members=a,b"));
    let (a, b) = (open(&urls[0]).await.unwrap(), open(&urls[1]).await.unwrap());
    assert!(!a.group_status().unwrap().ready);
    a.ready().await.unwrap();
    b.ready().await.unwrap();
    let (seen_by_a, seen_by_b) = (a.group_status().unwrap(), b.group_status().unwrap());
    assert!(seen_by_a.ready && seen_by_b.ready && seen_by_a.term > 0);
    assert_eq!((seen_by_a.leader, seen_by_a.term), (seen_by_b.leader, seen_by_b.term));
    assert!(seen_by_a.leads != seen_by_b.leads);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn members_meet_over_memory_tcp_and_redis() {
    let names = ["a", "b", "c"];
    let memory = |name| format!("gaggle+memory://meet?name={name}&members=a,b,c");
    cluster(&names.map(memory)).await;

    let ports = names.map(|_| free_port());
    let peers =
        [0, 1, 2].map(|node| format!("{}@localhost:{}", names[node], ports[node])).join(",");
    let tcp = |node: usize| {
        let (name, port) = (names[node], ports[node]);
        format!("gaggle+tcp://localhost:{port}?cluster=meet&name={name}&peers={peers}")
    };
    cluster(&[0, 1, 2].map(tcp)).await;

    let server = RedisServer::start();
    let redis = |name| {
        let server = server.url();
        format!("raft+{server}?cluster=meet&name={name}&members=a,b,c&heartbeat=40ms")
    };
    cluster(&names.map(redis)).await;
}

#[tokio::test]
async fn member_names_its_redis_and_the_cause() {
    let member = |login: &str, port: u16| {
        format!("gaggle+redis://{login}127.0.0.1:{port}/?cluster=c&name=a&members=a")
    };
    let server = RedisServer::start();
    let (closed, port) = (free_port(), server.port());
    let refused = format!("Redis at 127.0.0.1:{port} refused the user name or the password");
    for (url, text, permanent) in [
        (
            member("", closed),
            format!("cannot reach Redis at 127.0.0.1:{closed}: connection refused"),
            false,
        ),
        (member("unknown:secret@", port), refused, true),
    ] {
        let Err(OpenError::Strategy(error)) = open(&url).await else { panic!("{url} opened") };
        assert_eq!((error.to_string(), error.is_permanent()), (text, permanent));
    }
}

#[tokio::test]
async fn option_refused_by_the_strategy_is_named() {
    let error = open("gaggle+memory://d?name=a&members=a&heartbeat=10s").await.unwrap_err();
    assert!(error.to_string().starts_with("option heartbeat: "), "{error}");
    let peers: Vec<_> = (0..32).map(|number| format!("p{number}@127.0.0.1:1")).collect();
    let peers = peers.join(",");
    let url = format!("gaggle+tcp://127.0.0.1:1?cluster=c&name=p0&peers={peers}");
    let error = open(&url).await.unwrap_err();
    assert!(error.to_string().starts_with("option peers: "), "{error}");
    let url = "gaggle+memory://d?name=a&members=a&heartbeat=1s&election_timeout=1s..2s";
    let error = open(url).await.unwrap_err().to_string();
    assert!(error.starts_with("option election_timeout: "), "{error}");
    assert!(error.contains("three heartbeats"), "{error}");
}

/// The strategy or the channel refuses it.
#[tokio::test]
async fn refused_field_is_named_as_in_the_url() {
    let cluster = "x".repeat(65);
    let files = "tls_ca=/none&tls_cert=/none&tls_key=/none";
    for (url, problem) in [
        (
            format!("gaggle+memory://{cluster}?name=a&members=a"),
            "invalid URL: the cluster's name: the limit is 1 to 64 bytes; ",
        ),
        (
            format!("gaggle+redis://127.0.0.1:1?cluster={cluster}&name=a&members=a"),
            "option cluster: 65 bytes, the limit is 1 to 64; ",
        ),
        ("rediss://127.0.0.1:1?tls_ca=/none".into(), "option tls_ca: /none: No such file"),
        (
            format!("gaggle+tcp://127.0.0.1:0?cluster=c&name=a&peers=a@127.0.0.1:1&{files}"),
            "option tls_ca: /none: No such file",
        ),
    ] {
        let error = open(&url).await.unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

#[tokio::test]
async fn eviction_is_accepted_if_it_is_allowed() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = open(&server.url()).await.unwrap_err();
    assert!(refused.to_string().contains("allow_eviction=true"), "{refused}");
    let locker = open(&format!("{}?allow_eviction=true", server.url())).await.unwrap();
    locker.lock("k").await.unwrap().unlock().await.unwrap();
    locker.close().await;
}
