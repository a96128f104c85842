//! Goal: few checks keep many waiters alive, and cost a grant no time.
//! Method: a `redis-server` of the test's own counts the scripts; the time from the unlock to the
//! grant is measured.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gaggle_strategies::{KeyedMutex, LockOptions, Redis};
use redis_support::{Server, patient, secs, take};
use tokio::task::JoinSet;

/// The longest time between two checks of a waiter.
const CHECK: Duration = secs(1);

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
