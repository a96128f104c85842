//! Goal: a server that stands still takes no waiter its place (contract, rules 7 and 9): silence
//! counts only while the server ran scripts. Method: a `redis-server` of the test's own that is
//! stopped and continued, or ended and started again with its memory, for longer than `waiter_ttl`,
//! while two processes wait in turn.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Instant};

use gaggle_strategies::{Error, KeyedMutex, Lock, LockOptions, Redis};
use redis_support::{Doomed, Server, ms, secs, take};
use tokio::sync::mpsc;

/// Longer than `waiter_ttl`, which is 3 s by default.
const STANDSTILL_S: u64 = 4;

fn patient() -> LockOptions {
    LockOptions::default().duration(secs(60)).max_wait(secs(60))
}

/// Six waiters behind the holder, in turn of two processes. Returns the holder's process and lock,
/// and the places in the order in which they are served; each has the key for a moment.
async fn queue(server: &Server) -> (Redis, Lock, mpsc::UnboundedReceiver<usize>) {
    let holder = server.open().await;
    let held = take(&holder, "k", secs(60)).await;
    let (served, order) = mpsc::unbounded_channel();
    let processes = [Arc::new(server.open().await), Arc::new(server.open().await)];
    for place in 0..6 {
        let (redis, served) = (processes[place % 2].clone(), served.clone());
        tokio::spawn(async move {
            let lock = redis.lock("k", patient()).await.unwrap();
            served.send(place).unwrap();
            redis.unlock(&lock).await.unwrap();
        });
        server.queued("k", place as u64 + 1).await;
    }
    (holder, held, order)
}

/// Again until it is answered; one of those before may have taken effect.
async fn unlock_at_last(redis: &Redis, lock: &Lock) {
    while let Err(Error::Unknown | Error::Unavailable { .. }) = redis.unlock(lock).await {}
}

async fn keeps_its_order(mut order: mpsc::UnboundedReceiver<usize>) {
    let mut served = Vec::new();
    while let Some(place) = tokio::time::timeout(secs(20), order.recv()).await.unwrap() {
        served.push(place);
    }
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
}

/// The unlock is the first that the server runs when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_survives_a_server_that_was_stopped() {
    let server = Server::start().await;
    let (holder, held, order) = queue(&server).await;
    server.signal("STOP");
    let (unlocked, ()) =
        tokio::join!(tokio::spawn(async move { unlock_at_last(&holder, &held).await }), async {
            tokio::time::sleep(secs(STANDSTILL_S)).await;
            server.signal("CONT");
        });
    unlocked.unwrap();
    keeps_its_order(order).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_survives_a_restart_with_memory() {
    let server = Server::start().await;
    let (holder, held, order) = queue(&server).await;
    let _: redis::Value = server.command(&["SAVE"]).await;
    server.down();
    tokio::time::sleep(secs(STANDSTILL_S)).await;
    server.up().await;
    unlock_at_last(&holder, &held).await;
    keeps_its_order(order).await;
}

/// A dead process costs half of `waiter_ttl` more than it would without the standstill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_process_is_skipped_after_a_standstill() {
    let server = Server::start().await;
    let holder = server.open().await;
    let held = take(&holder, "k", secs(60)).await;
    let doomed = Doomed::start();
    let options = server.options();
    let redis = doomed.run(async move { Redis::open(options).await.unwrap() }).await;
    doomed.leave(async move { redis.lock("k", patient()).await });
    server.queued("k", 1).await;
    let living = server.open().await;
    let waiting = tokio::spawn(async move { living.lock("k", patient()).await.map(|_| ()) });
    server.queued("k", 2).await;
    doomed.die();
    server.signal("STOP");
    tokio::time::sleep(secs(STANDSTILL_S)).await;
    server.signal("CONT");
    unlock_at_last(&holder, &held).await;
    let unlocked = Instant::now();
    waiting.await.unwrap().unwrap();
    // Half of 3 s from the first sign of life, which may come a second after, and a poll.
    assert!(unlocked.elapsed() < ms(3_500), "{:?}", unlocked.elapsed());
}
