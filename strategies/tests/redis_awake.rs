//! Goal: a call wakes for what it waits for, or stays awake for an answer that comes soon.
//! Method: handles as processes against a `redis-server` of the test's own; wakings are counted.
// A test that meets an error has failed; what starts the server reads the clock.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;
#[path = "support/wakes.rs"]
mod wakes;

use std::time::Duration;

use gaggle_strategies::{Error, KeyedMutex, Nonce, Redis, RedisOptions};
use redis_support::{Server, ms, patient, secs, take};
use wakes::wakes;

/// A task that is woken for nothing costs the runtime a turn, and often the waking of another thread.
#[tokio::test]
async fn a_call_is_woken_by_its_answer_or_by_its_grant_and_by_nothing_else() {
    let server = Server::start().await;
    // Nothing else, that is, where it does not stay awake.
    let redis = subscribed(server.options().spin(Duration::ZERO)).await;
    let (held, woken) = wakes(redis.lock("k", patient())).await;
    assert_eq!(woken, 1, "the answer");
    let held = held.unwrap();
    let waiting = wakes(redis.lock("k", patient()));
    let unlocking = async {
        server.queued("k", 1).await;
        wakes(redis.unlock(&held)).await
    };
    let ((lock, woken), (unlocked, _)) = tokio::join!(waiting, unlocking);
    assert_eq!(woken, 1, "the grant: a place in the queue is nothing to act upon");
    unlocked.unwrap();
    let (unlocked, woken) = wakes(redis.unlock(&lock.unwrap())).await;
    assert_eq!((unlocked.is_ok(), woken), (true, 1));
}

/// A handle that queues: until it is subscribed a call asks again and again.
async fn subscribed(options: RedisOptions) -> Redis {
    let redis = Redis::open(options).await.unwrap();
    let key = Nonce::random().to_string();
    take(&redis, &key, secs(20)).await;
    let subscribed = redis.lock(&key, patient().max_wait(ms(500))).await;
    assert!(matches!(subscribed, Err(Error::TimedOut)), "{subscribed:?}");
    redis
}

/// Whether a call stays awake, of two hundred: after those whose answers were late some sleep.
async fn stays_awake(redis: &Redis, keys: &str) -> bool {
    for key in 0..200 {
        let (lock, woken) = wakes(redis.lock(&format!("{keys}/{key}"), patient())).await;
        lock.unwrap();
        if woken > 1 {
            return true;
        }
    }
    false
}

async fn unlock_stays_awake(redis: &Redis) -> bool {
    for key in 0..200 {
        let held = take(redis, &format!("unlocked/{key}"), secs(20)).await;
        let (unlocked, woken) = wakes(redis.unlock(&held)).await;
        unlocked.unwrap();
        if woken > 1 {
            return true;
        }
    }
    false
}

/// Whoever gives a key to another process leaves the core to it.
#[tokio::test]
async fn a_call_stays_awake_for_its_answer_unless_its_process_gave_a_key_away() {
    let server = Server::start().await;
    let giver = subscribed(server.options().spin(ms(1))).await;
    let taker = subscribed(server.options()).await;
    assert!(stays_awake(&giver, "before").await);
    assert!(unlock_stays_awake(&giver).await);
    let held = take(&giver, "k", secs(20)).await;
    let waiting = taker.lock("k", patient());
    let giving = async {
        server.queued("k", 1).await;
        giver.unlock(&held).await.unwrap();
    };
    let (taken, ()) = tokio::join!(waiting, giving);
    assert!(!stays_awake(&giver, "given away").await);
    taker.unlock(&taken.unwrap()).await.unwrap();
    let other = take(&giver, "k", secs(20)).await;
    giver.unlock(&other).await.unwrap();
    assert!(stays_awake(&giver, "after").await, "nobody else waited");
}
