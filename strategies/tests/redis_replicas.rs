//! Goal: with `replicas`, no grant and no extension is reported that fewer replicas have, however
//! it was made, and a failover loses none.
//! Method: a master and a replica of the test's own; the replica is stopped and cut off.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{slice, sync::Arc};

use gaggle_strategies::{
    Error, KeyedMutex, LockOptions, Redis, RedisOptions, error::UnavailableKind,
};
use redis::Value;
use redis_support::{Server, at_once, cluster::eventually, cut_off, ms, patient, secs, take};

async fn pair() -> (Server, Server) {
    let master = Server::start().await;
    let port = master.port().to_string();
    let arguments = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
    let replica = Server::start_with(&arguments);
    eventually(&replica, &["INFO", "replication"], "master_link_status:up").await;
    (master, replica)
}

fn options(master: &Server) -> RedisOptions {
    master.options().replicas(1).request_timeout(ms(400))
}

fn assert_unconfirmed<T: std::fmt::Debug>(result: Result<T, Error>) {
    let Err(error @ Error::Unavailable { kind: UnavailableKind::Refused, .. }) = result else {
        panic!("{result:?}")
    };
    let text = error.to_string();
    let (count, reason) = text.split_once(" replicas of Redis at ").expect(&text);
    assert!(count == "fewer than 1", "{text}");
    // The number is that of the reply to a WAIT, if there was one.
    let reason = reason.replace(" (0):", ":");
    let end = "have acknowledged a grant in time: see `INFO replication`, or lower `replicas`";
    assert!(reason.ends_with(end), "{text}");
}

#[tokio::test]
async fn no_grant_is_reported_that_the_replica_lacks() {
    let (master, replica) = pair().await;
    let redis = Redis::open(options(&master)).await.unwrap();
    let held = take(&redis, "k", secs(60)).await;
    let extended = redis.extend(&held, secs(70)).await.unwrap();
    cut_off(&master, slice::from_ref(&replica)).await;
    assert_unconfirmed(redis.lock("free", at_once(secs(10))).await);
    let options = LockOptions::default().max_wait(secs(1));
    assert_unconfirmed(redis.lock("free", options).await);
    assert!(matches!(redis.extend(&extended, secs(80)).await, Err(Error::Unknown)));
    // Withdrawn: another process, which needs no replica, may lock it.
    let other = master.open().await;
    let lock = take(&other, "free", secs(10)).await;
    other.unlock(&lock).await.unwrap();
    replica.signal("CONT");
    take(&redis, "free", secs(10)).await;
    redis.unlock(&extended).await.unwrap();
}

#[tokio::test]
async fn published_grant_waits_for_the_replica() {
    let (master, replica) = pair().await;
    let holder = master.open().await;
    let waiting = Arc::new(Redis::open(options(&master)).await.unwrap());
    let held = take(&holder, "k", secs(60)).await;
    let waiter = waiting.clone();
    let waiter = tokio::spawn(async move { waiter.lock("k", patient()).await });
    master.queued("k", 1).await;
    cut_off(&master, slice::from_ref(&replica)).await;
    holder.unlock(&held).await.unwrap();
    tokio::time::sleep(ms(600)).await;
    assert!(!waiter.is_finished());
    replica.signal("CONT");
    let lock = waiter.await.unwrap().unwrap();
    assert!(lock.fencing_token() > held.fencing_token());
    // The replica has it: as master it knows the holder.
    let _: Value = replica.command(&["REPLICAOF", "NO", "ONE"]).await;
    let promoted = replica.open().await;
    assert!(matches!(promoted.lock("k", at_once(secs(1))).await, Err(Error::Held(_))));
}
