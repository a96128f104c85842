//! Locks per second of `Local` on one thread: uncontended (the target is a million), and handed
//! from task to task.
//!
//! `cargo bench -p gaggle-strategies --bench local`
#![allow(clippy::disallowed_methods)] // a benchmark reads the clock
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use gaggle_strategies::{KeyedMutex, Local, LockOptions};

const PAIRS: u32 = 2_000_000;
const TASKS: u32 = 100;
const ROUNDS: u32 = 2000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        say("one key, uncontended", PAIRS, uncontended(1).await);
        say("1,000 keys held besides", PAIRS, uncontended(1000).await);
        say("watched, as by a guard", PAIRS, watched().await);
        say("one key, 100 tasks in turn", TASKS * ROUNDS, contended().await);
    });
}

fn say(what: &str, pairs: u32, took: Duration) {
    let ns = took.as_nanos() as f64 / f64::from(pairs);
    println!("{what:<28} {ns:>7.0} ns per lock and unlock, {:>9.0} per second", 1e9 / ns);
}

async fn uncontended(held: u32) -> Duration {
    let local = Local::new();
    for number in 1..held {
        let options = LockOptions::default().duration(Duration::from_secs(3600));
        local.lock(&format!("held/{number}"), options).await.expect("free");
    }
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let lock = local.lock("orders/42", LockOptions::default()).await.expect("free");
        local.unlock(&lock).await.expect("held");
    }
    begun.elapsed()
}

async fn watched() -> Duration {
    let local = Local::new();
    let begun = Instant::now();
    for _ in 0..PAIRS {
        let lock = local.lock("orders/42", LockOptions::default()).await.expect("free");
        let _watch = local.watch(&lock);
        local.unlock(&lock).await.expect("held");
    }
    begun.elapsed()
}

async fn contended() -> Duration {
    let local = Arc::new(Local::new());
    let begun = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let local = local.clone();
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let options = LockOptions::default().max_wait(Duration::from_secs(60));
                let lock = local.lock("orders/42", options).await.expect("granted in time");
                tokio::task::yield_now().await;
                local.unlock(&lock).await.expect("held");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
    begun.elapsed()
}
