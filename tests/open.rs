//! Goal: every kind of URL opens what the table of `gaggle::open` says, and a wrong one is a typed
//! error without the password.
//! Method: one lock and unlock through each; a `redis-server` of the test's own.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::time::Duration;

use gaggle::{
    Error, Exclusion, LockOptions, Locker, OpenError, Order,
    channels::testing::{RedisServer, free_port},
    open,
};

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
    let held = one.clone().try_lock("k", Duration::from_secs(1)).await;
    assert!(matches!(held, Err(Error::Held)), "clones share it: {held:?}");
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
async fn members_meet_over_memory_tcp_and_redis() {
    let names = ["a", "b", "c"];
    let memory = |name| format!("gaggle+memory://meet?name={name}&members=a,b,c");
    cluster(&names.map(memory)).await;
    cluster(&names.map(|_| "raft+memory://any?size=3&replicate=heartbeat".to_owned())).await;

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
async fn redis_that_is_not_there_is_an_error_without_the_password() {
    for url in
        ["redis://:hunter2@127.0.0.1:1/", "gaggle+redis://:hunter2@127.0.0.1:1/?cluster=c&size=1"]
    {
        let opened = open(url).await;
        let text = match opened {
            Err(error) => format!("{error:?}"),
            Ok(locker) => {
                let held = locker.try_lock("k", Duration::from_secs(1)).await;
                assert!(matches!(held, Err(Error::Unavailable { .. })), "{held:?}");
                format!("{locker:?} {held:?}")
            }
        };
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn tcp_beyond_loopback_is_refused_unless_told_insecure() {
    let url = "gaggle+tcp://0.0.0.0:0?cluster=c&name=a&peers=a@127.0.0.1:1";
    let refused = open(url).await.unwrap_err();
    assert!(matches!(refused, OpenError::InvalidOption { .. }), "{refused:?}");
    assert!(refused.to_string().contains("insecure"), "{refused}");
    open(&format!("{url}&insecure=true")).await.unwrap().close().await;
}

#[tokio::test]
async fn option_that_the_strategy_refuses_is_its_error() {
    let url = "gaggle+memory://d?size=1&heartbeat=1s&election_timeout=1s..2s";
    match open(url).await {
        Err(error @ OpenError::InvalidOption { option: "election_timeout", .. }) => {
            assert!(error.to_string().contains("three heartbeats"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
