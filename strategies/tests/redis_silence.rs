//! Goal: a process that waits for a replica keeps its position in the queue (contract, rule 7).
//! Method: a `redis-server` of the test's own, without replicas.
// A test that meets an error has failed, and its helpers read the clock.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{KeyedMutex, LockOptions, MaxWait, Redis, RedisOptions};
use redis_support::{Server, ms, secs, take};
use tokio::time::sleep;

fn forever(label: &str) -> LockOptions {
    LockOptions::default().duration(secs(30)).max_wait(MaxWait::Forever).label(label)
}

async fn open(options: RedisOptions) -> Arc<Redis> {
    Arc::new(Redis::open(options).await.unwrap())
}

/// Waits for the key in a task until the runtime ends.
fn wait_for(redis: &Arc<Redis>, key: &'static str, options: LockOptions) {
    let redis = redis.clone();
    tokio::spawn(async move { redis.lock(key, options).await });
}

/// The checks of a process and its `WAIT` use one connection, and the server runs them in order.
#[tokio::test]
async fn missing_replica_silences_no_waiter() {
    const TTL: Duration = ms(600);
    let server = Server::start().await;
    let holder = server.open().await;
    let held = take(&holder, "k", secs(60)).await;
    let options = server.options().waiter_ttl(TTL);
    let first = open(options.clone().replicas(1).request_timeout(secs(4))).await;
    wait_for(&first, "k", forever("first"));
    server.queued("k", 1).await;
    wait_for(&open(options).await, "k", forever("second"));
    server.queued("k", 2).await;
    // A grant that no replica acknowledges.
    wait_for(&first, "other", forever("first"));
    sleep(2 * TTL).await;
    holder.unlock(&held).await.unwrap();
    let next = holder.inspect("k").await.unwrap().unwrap();
    assert_eq!(next.owner.label.as_deref(), Some("first"));
}
