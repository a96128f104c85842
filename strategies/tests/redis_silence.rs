//! Goal: a silent process keeps no free key for longer than promised, and a living one keeps its
//! position, for every waiter_ttl, round trip and request_timeout (contract, rules 7 and 9).
//! Method: handles as processes on the test's own `redis-server`; one dies by the shutdown of its
//! runtime, one is far behind a proxy, one waits for a replica that is not there.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Duration};

use gaggle_fixtures::Proxy;
use gaggle_strategies::{KeyedMutex, LockOptions, MaxWait, Redis, RedisOptions};
use redis_support::{Doomed, Server, at_once, ms, secs, take};
use tokio::time::{sleep, timeout};

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

/// A process that waits for the key without end, and is dead when this returns.
async fn dead_waiter(server: &Server, key: &'static str, ttl: Duration) {
    let (doomed, options) = (Doomed::start(), server.options().waiter_ttl(ttl));
    let waits = async move { wait_for(&open(options).await, key, forever("dead")) };
    doomed.run(waits).await;
    server.queued(key, 1).await;
    doomed.die();
}

/// Its signs of life come further apart than half of waiter_ttl, if each one waits for the reply to
/// the one before.
#[tokio::test]
async fn dead_head_delays_no_distant_waiter() {
    const TTL: Duration = ms(150);
    let server = Server::start().await;
    let holder = open(server.options().waiter_ttl(TTL)).await;
    let held = take(&holder, "k", secs(60)).await;
    dead_waiter(&server, "k", TTL).await;
    let proxy = Proxy::before(server.port());
    let far = open(RedisOptions::new(proxy.url()).waiter_ttl(TTL)).await;
    proxy.delay_replies(ms(120));
    let waiting = tokio::spawn(async move { far.lock("k", forever("far")).await.unwrap() });
    server.queued("k", 2).await;
    sleep(3 * TTL).await;
    holder.unlock(&held).await.unwrap();
    timeout(secs(3), waiting).await.unwrap().unwrap();
}

/// Its checks and its `WAIT` use one connection, and the server runs them in order.
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

#[tokio::test]
async fn dead_waiter_refuses_no_try() {
    const TTL: Duration = ms(400);
    let server = Server::start().await;
    let holder = open(server.options().waiter_ttl(TTL)).await;
    let held = take(&holder, "k", secs(60)).await;
    dead_waiter(&server, "k", TTL).await;
    sleep(TTL * 5 / 4).await;
    holder.unlock(&held).await.unwrap();
    holder.lock("k", at_once(secs(1))).await.unwrap();
}
