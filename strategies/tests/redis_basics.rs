//! Goal: the Redis strategy keeps what every strategy promises, and leaves nothing in Redis.
//! Method: handles as processes against a `redis-server` of the test's own; what is left is read
//! from the server itself.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::time::Instant;

use gaggle_strategies::{
    Error, KeyedMutex, Lock, LockOptions, MaxWait, Nonce, Queue, Redis, RedisOptions,
    limits::DURATION_MAX,
};
use redis_support::{Server, ms, patient, secs, take};

#[tokio::test]
async fn a_lock_is_granted_refused_to_others_extended_and_freed() {
    let server = Server::start().await;
    let (first, second) = (server.open().await, server.open().await);
    let held = take(&first, "k", secs(10)).await;
    assert!(matches!(second.try_lock("k", secs(1)).await, Err(Error::Held)));
    let longer = first.extend(&held, secs(20)).await.unwrap();
    assert!(longer.deadline() > held.deadline());
    let shown = second.inspect("k").await.unwrap().unwrap();
    assert_eq!(shown.nonce, held.nonce());
    assert_eq!(shown.owner.pid, std::process::id());
    assert!(shown.remaining > secs(19), "{:?}", shown.remaining);
    first.unlock(&longer).await.unwrap();
    assert!(matches!(first.unlock(&longer).await, Err(Error::NotHolder)));
    assert!(matches!(first.extend(&longer, secs(1)).await, Err(Error::NotHolder)));
    let next = second.try_lock("k", secs(1)).await.unwrap();
    assert!(next.fencing_token() > held.fencing_token());
    second.unlock(&next).await.unwrap();
    assert_eq!(second.inspect("k").await.unwrap(), None);
    assert_eq!(server.residue().await, Vec::<String>::new());
}

/// An unlock names the nonce, whatever the token of its value.
#[tokio::test]
async fn unlock_by_another_value_of_the_nonce_ends_its_watch() {
    let server = Server::start().await;
    let redis = server.open().await;
    for waits in [false, true] {
        let lock = take(&redis, "k", secs(10)).await;
        let watch = redis.watch(&lock);
        let former = Lock::new(lock.key().clone(), lock.nonce(), lock.fencing_token() - 1, None);
        if waits {
            redis.unlock(&former).await.unwrap();
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
async fn a_free_key_is_taken_by_one_command() {
    let server = Server::start().await;
    let redis = server.open().await;
    take(&redis, "k", secs(10)).await;
    let processed = |info: String| -> u64 {
        let line =
            info.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap().to_owned();
        line.split(['=', ',']).nth(1).unwrap().parse().unwrap()
    };
    let before = processed(server.command(&["INFO", "commandstats"]).await);
    let free = take(&redis, "other", secs(10)).await;
    let locked = processed(server.command(&["INFO", "commandstats"]).await);
    assert_eq!(locked - before, 1);
    redis.unlock(&free).await.unwrap();
    let unlocked = processed(server.command(&["INFO", "commandstats"]).await);
    assert_eq!(unlocked - locked, 1);
    let stats: String = server.command(&["INFO", "commandstats"]).await;
    assert!(!stats.contains("cmdstat_eval:"), "every script was known by its hash: {stats}");
}

#[tokio::test]
async fn a_wrong_nonce_is_refused_at_once() {
    let server = Server::start().await;
    let redis = server.open().await;
    let held = take(&redis, "k", secs(10)).await;
    let forged = gaggle_strategies::Lock::new("k", Nonce::random(), 1, held.deadline());
    assert!(matches!(redis.unlock(&forged).await, Err(Error::NotHolder)));
    assert!(matches!(redis.extend(&forged, secs(5)).await, Err(Error::NotHolder)));
    redis.unlock(&held).await.unwrap();
}

#[tokio::test]
async fn an_unlock_after_expiry_is_expired_and_spares_the_new_holder() {
    let server = Server::start().await;
    let (first, second) = (server.open().await, server.open().await);
    let ended = take(&first, "k", ms(100)).await;
    let next = second.lock("k", patient()).await.unwrap();
    assert!(matches!(first.unlock(&ended).await, Err(Error::Expired)));
    assert!(matches!(first.extend(&ended, secs(1)).await, Err(Error::Expired)));
    assert_eq!(first.inspect("k").await.unwrap().unwrap().nonce, next.nonce());
    second.unlock(&next).await.unwrap();
}

#[tokio::test]
async fn leases_of_three_milliseconds_and_of_a_day_are_kept() {
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
    // Too short for half of it to be left: refused at once, and nothing stays.
    let started = Instant::now();
    let result = first.lock("tiny", LockOptions::default().duration(ms(1))).await;
    assert!(matches!(result, Err(Error::TimedOut)), "{result:?}");
    assert!(started.elapsed() < secs(2));
}

#[tokio::test]
async fn odd_keys_are_kept_apart() {
    let server = Server::start().await;
    let redis = server.open().await;
    let keys = ["{", "}", "{}", "{b3}", "a b", "k\r\n", "\0", "\u{1f512}", ":l:k", "k", "K", "*"];
    let mut held = Vec::new();
    for key in keys {
        held.push(redis.try_lock(key, secs(10)).await.unwrap());
    }
    for key in keys {
        assert!(matches!(redis.try_lock(key, secs(10)).await, Err(Error::Held)), "{key:?}");
    }
    for lock in &held {
        redis.unlock(lock).await.unwrap();
    }
    assert_eq!(server.residue().await, Vec::<String>::new());
}

#[tokio::test]
async fn labels_of_any_bytes_are_shown() {
    let server = Server::start().await;
    let redis = server.open().await;
    let label = " a\nb\0 - + {x}";
    let lock = redis.lock("k", LockOptions::default().label(label)).await.unwrap();
    let shown = redis.inspect("k").await.unwrap().unwrap();
    assert_eq!(shown.owner.label.as_deref(), Some(label));
    redis.unlock(&lock).await.unwrap();
}

#[tokio::test]
async fn without_a_queue_waiters_try_again_within_max_wait() {
    let server = Server::start().await;
    let options = server.options().queue(Queue::None);
    let first = Redis::open(options.clone()).await.unwrap();
    let second = Redis::open(options).await.unwrap();
    let held = take(&first, "k", secs(10)).await;
    let started = Instant::now();
    let result = second.lock("k", LockOptions::default().max_wait(ms(100))).await;
    assert!(matches!(result, Err(Error::TimedOut)));
    let took = started.elapsed();
    assert!(took >= ms(100) && took < ms(150), "{took:?}");
    assert!(server.residue().await.len() == 1, "nothing queues");
    let waiting = tokio::spawn(async move {
        let lock = second.lock("k", patient()).await.unwrap();
        second.unlock(&lock).await.unwrap();
        second
    });
    tokio::time::sleep(ms(50)).await;
    first.unlock(&held).await.unwrap();
    let started = Instant::now();
    let second = waiting.await.unwrap();
    assert!(started.elapsed() < ms(400));
    assert_eq!(second.capabilities().order, gaggle_strategies::Order::None);
}

#[tokio::test]
async fn bad_options_and_servers_that_may_evict_are_refused() {
    let bad = Redis::open(RedisOptions::new("nonsense")).await;
    assert!(matches!(bad, Err(Error::InvalidOptions { field: "url", .. })), "{bad:?}");
    let bad = Redis::open(RedisOptions::new("redis://h").namespace("{")).await;
    assert!(matches!(bad, Err(Error::InvalidOptions { field: "namespace", .. })));
    let server = Server::start().await;
    let _: String = server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let refused = Redis::open(server.options()).await;
    let right = matches!(&refused, Err(Error::InvalidOptions { field: "maxmemory-policy", .. }));
    assert!(right, "{refused:?}");
    Redis::open(server.options().allow_eviction(true)).await.unwrap();
}

#[tokio::test]
async fn a_lock_handed_over_can_be_extended_and_unlocked_elsewhere() {
    let server = Server::start().await;
    let (first, second) = (server.open().await, server.open().await);
    let held = take(&first, "k", secs(5)).await;
    let carried: gaggle_strategies::Lock =
        serde_json::from_str(&serde_json::to_string(&held).unwrap()).unwrap();
    assert_eq!(carried.deadline(), None);
    let extended = second.extend(&carried, secs(5)).await.unwrap();
    assert!(extended.deadline().is_some());
    second.unlock(&extended).await.unwrap();
    assert!(matches!(first.unlock(&held).await, Err(Error::NotHolder)));
}

#[tokio::test]
async fn waiting_for_ever_ends_with_the_grant_or_the_close() {
    let server = Server::start().await;
    let (first, second) = (server.open().await, server.open().await);
    let held = take(&first, "k", secs(10)).await;
    let forever = LockOptions::default().max_wait(MaxWait::Forever);
    let (result, ()) = tokio::join!(second.lock("k", forever), async {
        server.queued("k", 1).await;
        second.close().await;
    });
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    server.queued("k", 0).await;
    first.unlock(&held).await.unwrap();
    assert!(matches!(second.try_lock("k", secs(1)).await, Err(Error::Closed)));
    assert!(matches!(second.ready().await, Err(Error::Closed)));
    second.close().await;
}

/// Contract, rule 11: whoever gets its grant while the handle closes either has the lock, or is told
/// `Closed` and has it withdrawn; and nobody relies on a lock beyond the closing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_at_the_moment_of_closing_is_not_relied_on() {
    let server = Server::start().await;
    let other = server.open().await;
    for round in 0..60 {
        let redis = std::sync::Arc::new(server.open().await);
        let taking = {
            let redis = redis.clone();
            tokio::spawn(async move { redis.lock("closing", patient()).await })
        };
        // Anywhere around the answer, which takes some 30 to 300 µs.
        tokio::time::sleep(std::time::Duration::from_micros(round * 17 % 700)).await;
        redis.close().await;
        match taking.await.unwrap() {
            Ok(lock) => {
                assert!(redis.watch(&lock).is_lost(), "round {round}: valid after the close");
                let _ = other.unlock(&lock).await;
            }
            Err(error) => assert!(matches!(error, Error::Closed), "round {round}: {error:?}"),
        }
        // Withdrawn with the close, or unlocked just now.
        let free = other.try_lock("closing", secs(5)).await;
        other
            .unlock(&free.unwrap_or_else(|error| panic!("round {round}: {error:?}")))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn an_unlock_tells_every_guard_of_the_acquisition() {
    let server = Server::start().await;
    let redis = server.open().await;
    let held = take(&redis, "k", secs(20)).await;
    let watch = redis.watch(&held);
    redis.unlock(&held).await.unwrap();
    assert!(watch.is_lost());
}
