//! Goal: nothing is left in Redis after its clients have died, and `close` waits for no server.
//! Method: handles as processes on the test's own `redis-server`; a process dies by the shutdown of
//! its runtime.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Instant};

use gaggle_strategies::{KeyedMutex, LockOptions, Redis};
use redis_support::{Doomed, Server, at_once, ms, secs, take};

#[tokio::test]
async fn keys_expire_without_clients() {
    let server = Server::start().await;
    let doomed = Doomed::start();
    let options = server.options().waiter_ttl(ms(300)).nonce_memory(secs(1));
    doomed
        .run(async move {
            let redis = Arc::new(Redis::open(options).await.unwrap());
            for key in ["a", "b"] {
                take(&redis, key, secs(2)).await;
                for _ in 0..5 {
                    let redis = redis.clone();
                    let options = LockOptions::default().duration(ms(500)).max_wait(secs(20));
                    tokio::spawn(async move { redis.lock(key, options).await });
                }
            }
            std::mem::forget(redis);
        })
        .await;
    server.queued("a", 5).await;
    server.queued("b", 5).await;
    doomed.die();
    let limit = Instant::now() + secs(4);
    while server.keys().await.iter().any(|key| !key.ends_with("}:t")) {
        assert!(Instant::now() < limit, "left: {:?}", server.keys().await);
        tokio::time::sleep(ms(20)).await;
    }
}

#[tokio::test]
async fn close_ends_an_attempt_to_connect() {
    let server = Server::start().await;
    let options = server.options().request_timeout(ms(500)).connect_timeout(secs(20));
    let redis = Redis::open(options).await.unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    server.signal("STOP");
    // The connection is dropped as silent, and the next attempt gets no reply.
    for _ in 0..4 {
        redis.lock("k", at_once(secs(1))).await.unwrap_err();
    }
    let (open, started) = (alive(), Instant::now());
    redis.close().await;
    assert!(started.elapsed() < ms(1_500), "{:?}", started.elapsed());
    assert!(alive() < open);
    server.signal("CONT");
}
