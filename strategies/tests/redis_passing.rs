//! Goal: where the next waiters are a process' own, it passes the key on without waiting for Redis, and
//! nothing of the contract is lost by that (rules 1, 5, 8, 9 and 11, and the order of waiters).
//! Method: a `redis-server` of the test's own, that falls silent, loses answers or connections while a
//! key goes from hand to hand.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use gaggle_strategies::{Error, KeyedMutex, Lock, LockOptions, Nonce, Queue, Redis, RedisOptions};
use redis_support::{Server, ms, patient, proxy::Proxy, secs, take};
use tokio::{sync::mpsc, task::JoinSet};

async fn open(server: &Server) -> Redis {
    Redis::open(server.options().queue(Queue::Passing)).await.unwrap()
}

/// Says it again while nobody answers.
async fn unlock_at_last(redis: &Redis, lock: &Lock) {
    for _ in 0..10 {
        match redis.unlock(lock).await {
            Err(Error::Unknown | Error::Unavailable { .. }) => {}
            done => return done.unwrap(),
        }
    }
    panic!("nobody answers");
}

/// A waiter that tells of its grant and keeps it.
async fn waiter(
    server: &Server,
    redis: &Arc<Redis>,
    (place, queued): (usize, u64),
    granted: &mpsc::UnboundedSender<(usize, Lock)>,
) {
    let (redis, granted) = (redis.clone(), granted.clone());
    tokio::spawn(async move {
        let lock = redis.lock("k", patient()).await.unwrap();
        granted.send((place, lock)).unwrap();
    });
    server.queued("k", queued).await;
}

/// `redis` holds the key, and knows of the two that wait behind; returns the holder, and who hears of
/// grants.
async fn line(
    server: &Server,
    redis: &Arc<Redis>,
) -> (Lock, mpsc::UnboundedReceiver<(usize, Lock)>) {
    let (granted, mut grants) = mpsc::unbounded_channel();
    let first = take(redis, "k", secs(20)).await;
    for place in 0..3 {
        waiter(server, redis, (place, place as u64 + 1), &granted).await;
    }
    redis.unlock(&first).await.unwrap();
    let (place, held) = grants.recv().await.unwrap();
    assert_eq!(place, 0);
    (held, grants)
}

#[tokio::test]
async fn a_key_goes_from_hand_to_hand_while_redis_is_silent() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let redis =
        Arc::new(Redis::open(RedisOptions::new(proxy.url()).queue(Queue::Passing)).await.unwrap());
    let (mut held, mut grants) = line(&server, &redis).await;
    proxy.swallow(true);
    let started = Instant::now();
    for place in 1..3 {
        redis.unlock(&held).await.unwrap();
        let (next, lock) = grants.recv().await.unwrap();
        assert_eq!(next, place);
        assert!(lock.fencing_token() > held.fencing_token(), "tokens rise");
        held = lock;
    }
    assert!(started.elapsed() < ms(900), "within no request's timeout: {:?}", started.elapsed());
    // Nobody waits here any more, so that Redis must hear of it.
    let last = redis.unlock(&held).await;
    assert!(matches!(last, Err(Error::Unknown)), "{last:?}");
    proxy.swallow(false);
    // Said again, it leaves with all that were before it.
    unlock_at_last(&redis, &held).await;
    assert_eq!(redis.inspect("k").await.unwrap(), None);
    redis.close().await;
    assert_eq!(server.residue().await, Vec::<String>::new());
}

/// The caller of the last unlock is told `Unknown` in time; the unlock leaves all the same.
#[tokio::test]
async fn the_last_unlock_outlives_its_caller_and_commands_that_fail() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let options = RedisOptions::new(proxy.url()).queue(Queue::Passing).request_timeout(ms(600));
    let redis = Arc::new(Redis::open(options).await.unwrap());
    let (mut held, mut grants) = line(&server, &redis).await;
    proxy.swallow(true);
    for _ in 1..3 {
        redis.unlock(&held).await.unwrap();
        (_, held) = grants.recv().await.unwrap();
    }
    // Between the commands of the two before it: it leaves with the second one at the earliest.
    tokio::time::sleep(ms(200)).await;
    let last = redis.unlock(&held).await;
    assert!(matches!(last, Err(Error::Unknown | Error::Unavailable { .. })), "{last:?}");
    // The one that carries it fails when nobody waits for it any more.
    tokio::time::sleep(ms(1800)).await;
    proxy.swallow(false);
    let other = open(&server).await;
    let next = take(&other, "k", secs(1)).await;
    assert!(next.fencing_token() > held.fencing_token());
}

#[tokio::test]
async fn redis_follows_and_the_holder_extends() {
    let server = Server::start().await;
    let redis = Arc::new(open(&server).await);
    let (held, mut grants) = line(&server, &redis).await;
    redis.unlock(&held).await.unwrap();
    let (_, second) = grants.recv().await.unwrap();
    // At once: Redis may not have heard yet who has the key.
    let second = redis.extend(&second, secs(30)).await.unwrap();
    let shown = redis.inspect("k").await.unwrap().unwrap();
    assert_eq!((shown.nonce, shown.fencing_token), (second.nonce(), second.fencing_token()));
    assert_eq!(shown.waiters, 1);
    redis.unlock(&second).await.unwrap();
    let (_, third) = grants.recv().await.unwrap();
    redis.unlock(&third).await.unwrap();
    // When the last unlock is answered all of them are done.
    let other = open(&server).await;
    let next = other.try_lock("k", secs(1)).await.unwrap();
    assert!(next.fencing_token() > third.fencing_token());
}

/// Contract: `unlock` frees the acquisition once, and nothing makes it live again.
#[tokio::test]
async fn what_was_unlocked_is_gone_before_redis_has_heard() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let options = RedisOptions::new(proxy.url()).queue(Queue::Passing);
    let redis = Arc::new(Redis::open(options).await.unwrap());
    let (held, mut grants) = line(&server, &redis).await;
    proxy.swallow(true);
    redis.unlock(&held).await.unwrap();
    let extended = redis.extend(&held, secs(30)).await;
    assert!(matches!(extended, Err(Error::NotHolder)), "{extended:?}");
    let again = redis.unlock(&held).await;
    assert!(matches!(again, Err(Error::NotHolder)), "{again:?}");
    // Nor is it granted once more to its nonce.
    let options = LockOptions::default().nonce(held.nonce()).max_wait(ms(300));
    let asked = redis.lock("k", options).await;
    assert!(asked.is_err(), "{asked:?}");
    let (_, second) = grants.recv().await.unwrap();
    redis.unlock(&second).await.unwrap();
    proxy.swallow(false);
    let (_, third) = grants.recv().await.unwrap();
    unlock_at_last(&redis, &third).await;
}

#[tokio::test]
async fn the_last_of_a_line_is_unlocked_once() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let options = RedisOptions::new(proxy.url()).queue(Queue::Passing);
    let redis = Arc::new(Redis::open(options).await.unwrap());
    let (mut held, mut grants) = line(&server, &redis).await;
    // While the command with those before it is under way.
    proxy.delay_answers(ms(100));
    for _ in 1..3 {
        redis.unlock(&held).await.unwrap();
        (_, held) = grants.recv().await.unwrap();
    }
    let (one, other) = tokio::join!(redis.unlock(&held), redis.unlock(&held));
    assert!(one.is_ok() && matches!(other, Err(Error::NotHolder)), "{one:?} {other:?}");
}

/// A nonce that its caller gave may be asked for again, so that its unlock waits for Redis.
#[tokio::test]
async fn a_given_nonce_passes_nothing_on() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let options = RedisOptions::new(proxy.url()).queue(Queue::Passing);
    let redis = Arc::new(Redis::open(options).await.unwrap());
    let (granted, _grants) = mpsc::unbounded_channel();
    let first = take(&redis, "k", secs(20)).await;
    let nonce = Nonce::from_u128(7);
    let given = {
        let redis = redis.clone();
        tokio::spawn(async move { redis.lock("k", patient().nonce(nonce)).await.unwrap() })
    };
    server.queued("k", 1).await;
    waiter(&server, &redis, (1, 2), &granted).await;
    redis.unlock(&first).await.unwrap();
    let given = given.await.unwrap();
    // Redis is silent, and without it nobody is next.
    proxy.swallow(true);
    let unlocked = redis.unlock(&given).await;
    assert!(matches!(unlocked, Err(Error::Unknown)), "{unlocked:?}");
}

#[tokio::test]
async fn by_default_redis_hears_before_the_next_holder_does() {
    let server = Server::start().await;
    let redis = Arc::new(server.open().await);
    let (held, mut grants) = line(&server, &redis).await;
    redis.unlock(&held).await.unwrap();
    let shown = server.open().await.inspect("k").await.unwrap().unwrap();
    assert!(shown.fencing_token > held.fencing_token());
    let asked = server.keys().await.into_iter().find(|name| name.ends_with(":a:k")).unwrap();
    let heirs: Option<String> = server.command(&["HGET", &asked, "#h"]).await;
    assert_eq!(heirs, None, "it tells nobody who is next");
    let (_, second) = grants.recv().await.unwrap();
    assert_eq!(shown.fencing_token, second.fencing_token());
}

#[tokio::test]
async fn waiters_of_other_processes_keep_their_places() {
    let server = Server::start().await;
    let (one, other) = (Arc::new(open(&server).await), Arc::new(open(&server).await));
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut held = take(&one, "k", secs(20)).await;
    let order = [&one, &one, &one, &other, &one, &one, &other, &other, &one];
    for (place, redis) in order.iter().enumerate() {
        waiter(&server, redis, (place, place as u64 + 1), &granted).await;
    }
    let mut holder = &one;
    for (place, next) in order.iter().enumerate() {
        holder.unlock(&held).await.unwrap();
        let (granted, lock) = grants.recv().await.unwrap();
        assert_eq!(granted, place);
        assert!(lock.fencing_token() > held.fencing_token(), "tokens rise");
        (held, holder) = (lock, next);
    }
    holder.unlock(&held).await.unwrap();
}

#[tokio::test]
async fn an_heir_that_leaves_is_passed_over() {
    let server = Server::start().await;
    let redis = Arc::new(open(&server).await);
    let (granted, mut grants) = mpsc::unbounded_channel();
    let first = take(&redis, "k", secs(20)).await;
    waiter(&server, &redis, (0, 1), &granted).await;
    let leaving = {
        let redis = redis.clone();
        tokio::spawn(async move { redis.lock("k", patient()).await })
    };
    server.queued("k", 2).await;
    waiter(&server, &redis, (2, 3), &granted).await;
    redis.unlock(&first).await.unwrap();
    let (_, held) = grants.recv().await.unwrap();
    leaving.abort();
    server.queued("k", 1).await;
    redis.unlock(&held).await.unwrap();
    let (place, held) = grants.recv().await.unwrap();
    assert_eq!(place, 2);
    redis.unlock(&held).await.unwrap();
    assert_eq!(redis.inspect("k").await.unwrap(), None);
}

/// An unlock that others pass on is no promise that lasts beyond the lease.
#[tokio::test]
async fn a_process_that_dies_with_a_line_frees_the_key_within_a_lease() {
    let server = Server::start().await;
    let doomed = redis_support::Doomed::start();
    let options = server.options().queue(Queue::Passing);
    let held = doomed
        .run(async move {
            let redis = Arc::new(Redis::open(options).await.unwrap());
            let lease = LockOptions::default().duration(ms(800)).max_wait(secs(5));
            let first = redis.lock("k", lease.clone()).await.unwrap();
            let mut waiting = JoinSet::new();
            for _ in 0..3 {
                let (redis, lease) = (redis.clone(), lease.clone());
                waiting.spawn(async move { redis.lock("k", lease).await.unwrap() });
                tokio::time::sleep(ms(20)).await;
            }
            redis.unlock(&first).await.unwrap();
            let held = waiting.join_next().await.unwrap().unwrap();
            redis.unlock(&held).await.unwrap();
            let held = waiting.join_next().await.unwrap().unwrap();
            // The rest of the line stays with the runtime.
            tokio::spawn(async move {
                let _all = (redis, waiting);
                std::future::pending::<()>().await;
            });
            held
        })
        .await;
    doomed.die();
    let died = Instant::now();
    let other = open(&server).await;
    let next = take(&other, "k", secs(1)).await;
    // Its own lease, and one of a waiter that was alive less than waiter_ttl ago.
    assert!(died.elapsed() < ms(2 * 800 + 400), "{:?}", died.elapsed());
    assert!(next.fencing_token() > held.fencing_token());
}

#[tokio::test]
async fn a_handle_that_closes_frees_what_it_passed_on() {
    let server = Server::start().await;
    let redis = Arc::new(open(&server).await);
    let (held, mut grants) = line(&server, &redis).await;
    redis.unlock(&held).await.unwrap();
    let (_, second) = grants.recv().await.unwrap();
    let watch = redis.watch(&second);
    redis.close().await;
    assert!(watch.is_lost());
    let other = open(&server).await;
    other.try_lock("k", secs(1)).await.unwrap();
}

#[tokio::test]
async fn a_handle_that_closes_sends_what_waited_for_an_answer() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let redis =
        Arc::new(Redis::open(RedisOptions::new(proxy.url()).queue(Queue::Passing)).await.unwrap());
    let (mut held, mut grants) = line(&server, &redis).await;
    proxy.delay_answers(ms(200));
    // The first leaves at once; the other leaves when that is answered.
    for _ in 1..3 {
        redis.unlock(&held).await.unwrap();
        (_, held) = grants.recv().await.unwrap();
    }
    redis.close().await;
    let shown = open(&server).await.inspect("k").await.unwrap().unwrap();
    assert_eq!((shown.nonce, shown.fencing_token), (held.nonce(), held.fencing_token()));
}

/// Two processes of eight tasks each on one key, while connections break.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_break_while_a_key_goes_from_hand_to_hand() {
    let server = Server::start().await;
    let (inside, token, turns) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let until = Instant::now() + secs(3);
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let redis = Arc::new(open(&server).await);
        for _ in 0..8 {
            let (redis, inside, token, turns) =
                (redis.clone(), inside.clone(), token.clone(), turns.clone());
            tasks.spawn(async move {
                while Instant::now() < until {
                    // An answer may be lost, and with it a lease: it is short.
                    let lease = LockOptions::default().duration(ms(500)).max_wait(secs(20));
                    let Ok(lock) = redis.lock("k", lease).await else { continue };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold the key");
                    let before = token.swap(lock.fencing_token(), Ordering::SeqCst);
                    assert!(before < lock.fencing_token(), "tokens rise");
                    turns.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.store(false, Ordering::SeqCst);
                    let _ = redis.unlock(&lock).await;
                }
            });
        }
    }
    while Instant::now() < until {
        tokio::time::sleep(ms(150)).await;
        server.kill("normal").await;
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(turns.load(Ordering::SeqCst) > 500, "{turns:?}");
}
