//! Goal: nothing is left in Redis after its clients have died, and `close` waits for no server.
//! Method: handles as processes on the test's own `redis-server`; a process dies by the shutdown of
//! its runtime.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Instant};

use gaggle_strategies::{Error, KeyedMutex, LockOptions, Redis, lock::Nonce};
use redis_support::{Doomed, Server, at_once, ms, patient, secs, take};

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

/// A LOCK of another process may arrive after the nonce was unlocked, or its lease expired.
#[tokio::test]
async fn ended_given_nonce_is_not_granted_again() {
    let server = Server::start().await;
    let [a, b] = [server.options(), server.options()].map(Redis::open);
    let (a, b) = (a.await.unwrap(), b.await.unwrap());
    for (bits, expires) in [(7, false), (8, true)] {
        let given = LockOptions::default().nonce(Nonce::given(bits)).max_wait(ms(300));
        let lock = a.lock("k", given.clone().duration(ms(50))).await.unwrap();
        if expires {
            tokio::time::sleep(ms(60)).await;
        } else {
            a.unlock(&lock).await.unwrap();
        }
        assert!(matches!(b.lock("k", given).await, Err(Error::TimedOut(None))), "{expires}");
        assert!(b.inspect("k").await.unwrap().is_none());
    }
}

/// A repeated LOCK of a given nonce keeps its position, and moves the wait to the process that
/// repeats it. The former process unlocks nothing.
#[tokio::test]
async fn given_nonce_is_taken_over_in_its_position() {
    let server = Server::start().await;
    let [a, b] = [server.options(), server.options()].map(Redis::open);
    let (a, b) = (Arc::new(a.await.unwrap()), Arc::new(b.await.unwrap()));
    let first = take(&a, "k", secs(20)).await;
    let given = LockOptions::default().nonce(Nonce::given(7)).max_wait(secs(20));
    let wait = |redis: &Arc<Redis>, options: LockOptions| {
        let redis = redis.clone();
        tokio::spawn(async move { redis.lock("k", options).await })
    };
    let former = wait(&a, given.clone().max_wait(secs(1)));
    server.queued("k", 1).await;
    let other = wait(&a, patient());
    server.queued("k", 2).await;
    let moved = wait(&b, given);
    // The wait of the former call is over, and the place is kept.
    assert!(matches!(former.await.unwrap(), Err(Error::TimedOut(None))));
    a.unlock(&first).await.unwrap();
    let began = Instant::now();
    let lock = moved.await.unwrap().unwrap();
    assert!(began.elapsed() < ms(500), "it was published to its new process");
    assert_eq!(lock.nonce(), Nonce::given(7));
    tokio::time::sleep(ms(100)).await;
    assert!(!other.is_finished(), "it waits behind the given nonce");
    b.unlock(&lock).await.unwrap();
    assert!(other.await.unwrap().unwrap().fencing_token() > lock.fencing_token());
}
