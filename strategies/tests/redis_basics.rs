//! Goal: the behaviour of the Redis strategy beyond the conformance suite.
//! Method: handles as processes on the test's own `redis-server`.
// A test that meets an error has failed, and it measures time.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::time::Instant;

use gaggle_strategies::{
    Error, KeyedMutex, Lock, LockOptions, Redis, RedisOptions, limits::DURATION_MAX,
    operator::ListOptions,
};
use redis_support::{Server, ms, patient, secs, take};

/// An unlock under another token frees the nonce, too, and says that this lock was not held.
#[tokio::test]
async fn unlock_by_a_former_value_ends_the_watch() {
    let server = Server::start().await;
    let redis = server.open().await;
    for waits in [false, true] {
        let lock = take(&redis, "k", secs(10)).await;
        let watch = redis.watch(&lock);
        let former = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token() - 1, None);
        if waits {
            assert!(matches!(redis.unlock(&former).await, Err(Error::NotHolder)));
        } else {
            redis.release(&former);
        }
        while redis.inspect("k").await.unwrap().is_some() {
            tokio::time::sleep(ms(1)).await;
        }
        assert!(watch.is_lost(), "waits: {waits}");
    }
}

/// An extend names the token as well.
#[tokio::test]
async fn extend_with_another_token_is_refused() {
    let server = Server::start().await;
    let redis = server.open().await;
    let lock = take(&redis, "k", secs(10)).await;
    let watch = redis.watch(&lock);
    let former = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token() - 1, None);
    let outcome = redis.extend(&former, secs(60)).await;
    assert!(matches!(outcome, Err(Error::NotHolder)), "{outcome:?}");
    assert!(!watch.is_lost());
    let left = redis.inspect("k").await.unwrap().unwrap().remaining;
    assert!(left < secs(11), "{left:?}");
    redis.extend(&lock, secs(60)).await.unwrap();
}

#[tokio::test]
async fn free_key_is_taken_by_one_command() {
    let server = Server::start().await;
    let redis = server.open().await;
    take(&redis, "k", secs(10)).await;
    let before = server.calls("evalsha").await;
    let free = take(&redis, "other", secs(10)).await;
    let locked = server.calls("evalsha").await;
    assert_eq!(locked - before, 1);
    redis.unlock(&free).await.unwrap();
    let unlocked = server.calls("evalsha").await;
    assert_eq!(unlocked - locked, 1);
    assert_eq!(server.calls("eval").await, 0, "every script was known by its hash");
}

#[tokio::test]
async fn handle_opens_from_the_users_client() {
    let server = Server::start().await;
    let client = redis::Client::open(format!("{}3", server.url())).unwrap();
    let redis = Redis::open(RedisOptions::from(&client)).await.unwrap();
    take(&redis, "k", secs(10)).await;
    let keyspace: String = server.command(&["INFO", "keyspace"]).await;
    assert!(keyspace.contains("db3:"), "{keyspace}");
}

#[tokio::test]
async fn shortest_and_longest_leases_are_kept() {
    let server = Server::start().await;
    let (first, second) = (server.open().await, server.open().await);
    let brief = take(&first, "brief", ms(3)).await;
    let started = Instant::now();
    let next = second.lock("brief", patient()).await.unwrap();
    assert!(started.elapsed() < secs(1), "{:?}", started.elapsed());
    assert!(next.fencing_token() > brief.fencing_token());
    let day = first.lock("day", LockOptions::default().duration(DURATION_MAX)).await.unwrap();
    let ttl: i64 = server.command(&["PTTL", &server.name("l", "day").await]).await;
    assert!((86_390_000..=86_400_000).contains(&ttl), "{ttl}");
    first.unlock(&day).await.unwrap();
    // Too short for half of it to be left.
    let started = Instant::now();
    let result = first.lock("tiny", LockOptions::default().duration(ms(1))).await;
    assert!(matches!(result, Err(Error::InvalidOptions { .. })), "{result:?}");
    assert!(started.elapsed() < secs(2));
}

/// Another program wrote the value: the other keys are listed all the same.
#[tokio::test]
async fn value_that_is_no_lock_is_named() {
    let server = Server::start().await;
    let redis = server.open().await;
    for bucket in 0..16 {
        let name = |key| format!("gaggle:{{b{bucket}}}:l:{key}");
        server.command::<()>(&["SET", &name("junk"), "junk"]).await;
        server.command::<u8>(&["HSET", &name("hash"), "a", "b"]).await;
    }
    let _held = take(&redis, "k", secs(10)).await;
    let operator = redis.operator().unwrap();
    let page = operator.list(ListOptions::default()).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["k"]);
    assert_eq!(page.unreadable.iter().map(|key| &**key).collect::<Vec<_>>(), ["hash", "junk"]);
    for key in ["hash", "junk"] {
        let refused = [
            redis.inspect(key).await.unwrap_err().to_string(),
            operator.force_unlock(key, None, "").await.unwrap_err().to_string(),
        ];
        assert!(refused.iter().all(|text| text.contains(&format!("{key:?}"))), "{refused:?}");
    }
}
