//! How fast the Redis strategy is, against a `redis-server` of its own on loopback:
//!
//! ```text
//! cargo bench -p gaggle-strategies --bench redis
//! ```
//!
//! - `solo`: one task, one key, lock and unlock in turn.
//! - `fan64`: 64 tasks on one handle, each with its own key.
//! - `hot8`: 8 handles and one key; the hand-off counts from before the unlock to the return of
//!   the next holder's lock.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

#[path = "../tests/redis_support/mod.rs"]
mod redis_support;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gaggle_strategies::{KeyedMutex, LockOptions, Redis};
use redis_support::{Server, patient};
use tokio::task::JoinSet;

const WINDOW: Duration = Duration::from_secs(3);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = Server::start().await;
    println!("solo   {:>9.0} pairs/s", distinct(&server, 1).await);
    println!("fan64  {:>9.0} pairs/s", distinct(&server, 64).await);
    hot(&server, 8).await;
}

/// Pairs a second of `tasks` tasks on one handle, each with its own key.
async fn distinct(server: &Server, tasks: usize) -> f64 {
    let redis = Arc::new(server.open().await);
    let started = Instant::now();
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let redis = redis.clone();
        running.spawn(async move {
            let (key, mut pairs) = (format!("fan/{task}"), 0_u64);
            while started.elapsed() < WINDOW {
                let lock = redis.lock(&key, LockOptions::default()).await.unwrap();
                redis.unlock(&lock).await.unwrap();
                pairs += 1;
            }
            pairs
        });
    }
    let pairs: u64 = running.join_all().await.into_iter().sum();
    redis.close().await;
    pairs as f64 / started.elapsed().as_secs_f64()
}

async fn hot(server: &Server, handles: usize) {
    let (started, handed) = (Instant::now(), Arc::new(Mutex::new(None)));
    let mut running = JoinSet::new();
    for handle in 0..handles {
        let redis: Redis = server.open().await;
        let handed = handed.clone();
        running.spawn(async move {
            let (mut times, mut pairs) = (Vec::new(), 0_u64);
            while started.elapsed() < WINDOW {
                let lock = redis.lock("hot", patient()).await.unwrap();
                let now = Instant::now();
                if let Some((from, at)) = handed.lock().unwrap().take()
                    && from != handle
                {
                    times.push(now.duration_since(at));
                }
                pairs += 1;
                *handed.lock().unwrap() = Some((handle, Instant::now()));
                redis.unlock(&lock).await.unwrap();
            }
            redis.close().await;
            (times, pairs)
        });
    }
    let (mut times, mut pairs) = (Vec::new(), 0);
    while let Some(ended) = running.join_next().await {
        let (some, count) = ended.unwrap();
        times.extend(some);
        pairs += count;
    }
    times.sort();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_micros();
    println!(
        "hot8   {:>9.0} pairs/s, {:.1} % handed over, p50 {} µs, p99 {} µs",
        pairs as f64 / started.elapsed().as_secs_f64(),
        times.len() as f64 * 100.0 / pairs as f64,
        at(0.5),
        at(0.99),
    );
}
