//! Goal: a waiter whose publication was lost finds its grant within one check, however many others
//! are checked at the same time.
//! Method: a proxy before a `redis-server` of the test's own that delays the server's bytes and
//! loses publications; the time from the unlock to the grant is measured.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use gaggle_fixtures::Proxy;
use gaggle_strategies::{KeyedMutex, Lock, LockOptions, Redis, RedisOptions};
use redis_support::{Server, ms, patient, secs, take};
use tokio::task::JoinSet;

/// How many buckets the keys of a namespace are spread over.
const BUCKETS: usize = 16;

/// The longest time between two checks of a waiter.
const CHECK: Duration = secs(1);

/// A lock of one key in every bucket.
async fn one_in_each_bucket(server: &Server, redis: &Redis) -> Vec<Lock> {
    let mut held = BTreeMap::new();
    for number in 0.. {
        if held.len() == BUCKETS {
            break;
        }
        let key = format!("k{number}");
        let lock = take(redis, &key, secs(60)).await;
        let name = server.name("l", &key).await;
        let bucket = name.split(['{', '}']).nth(1).unwrap().to_owned();
        if let Some(lock) = held.insert(bucket, lock) {
            redis.unlock(&lock).await.unwrap();
        }
    }
    held.into_values().collect()
}

/// Waits for a key in a task, which unlocks it and returns the time of its grant.
fn wait_for(tasks: &mut JoinSet<Instant>, redis: &Arc<Redis>, key: &str, options: LockOptions) {
    let (redis, key) = (redis.clone(), key.to_owned());
    tasks.spawn(async move {
        let lock = redis.lock(&key, options).await.unwrap();
        let granted = Instant::now();
        redis.unlock(&lock).await.unwrap();
        granted
    });
}

#[tokio::test]
async fn all_buckets_are_checked_at_once() {
    // Checks one after another take 3.2 s.
    const DELAY: Duration = ms(200);
    let server = Server::start().await;
    let (holder, proxy) = (server.open().await, Proxy::before(server.port()));
    let waiting = Arc::new(Redis::open(RedisOptions::new(proxy.url())).await.unwrap());
    let held = one_in_each_bucket(&server, &holder).await;
    proxy.delay_replies(DELAY);
    proxy.lose_publications(true);
    let mut tasks = JoinSet::new();
    for lock in &held {
        wait_for(&mut tasks, &waiting, lock.key(), patient());
        server.queued(lock.key(), 1).await;
    }
    // Long enough for checks of all of them.
    tokio::time::sleep(2 * CHECK).await;
    for lock in &held {
        holder.unlock(lock).await.unwrap();
    }
    let unlocked = Instant::now();
    for granted in tasks.join_all().await {
        let took = granted.saturating_duration_since(unlocked);
        assert!(took < CHECK + DELAY + CHECK / 2, "{took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_checks_keep_a_crowd_alive() {
    let waiters: usize = std::env::var("GAGGLE_WAITERS").map_or(20_000, |n| n.parse().unwrap());
    let server = Server::start().await;
    let options = server.options().waiters_max(2 * waiters as u64);
    let (holder, waiting) = (server.open().await, Arc::new(Redis::open(options).await.unwrap()));
    let held = take(&holder, "k", secs(600)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        wait_for(&mut tasks, &waiting, "k", patient().max_wait(secs(600)));
    }
    server.queued_within("k", waiters as u64, secs(120)).await;
    // Longer than a process may be silent.
    let (before, started) = (server.calls("evalsha").await, Instant::now());
    tokio::time::sleep(secs(5)).await;
    server.queued("k", waiters as u64).await;
    let (sent, took) = (server.calls("evalsha").await - before, started.elapsed().as_secs_f64());
    // Each waiter at most every 0.6 s (four fifths of a second, less a quarter of it), in scripts
    // of 512 but for the last of each turn.
    let most = took / 0.6 * (waiters.div_ceil(512) + 4) as f64;
    assert!((sent as f64) < most, "{sent} scripts in {took} s, not {most}");
    // Each is due at least every second, the first time within one. On a busy machine every other
    // check may be late.
    let least = (took - 1.0) / 2.0 * (waiters / 512) as f64;
    assert!(sent as f64 > least, "{sent} scripts in {took} s, not {least}");
    holder.unlock(&held).await.unwrap();
    let unlocked = Instant::now();
    let granted = tasks.join_next().await.unwrap().unwrap();
    assert!(granted.saturating_duration_since(unlocked) < CHECK + CHECK / 2);
}
