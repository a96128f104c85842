//! Goal: what a holder on Redis counts on ends before its lease does, however slow the way (contract,
//! rules 2 and 4), and what comes late grants nothing (rule 6).
//! Method: a proxy before a `redis-server` of the test's own that keeps answers, or one LOCK, under
//! way; deadlines are compared with readings of the same clock around the call.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Drift, Error, Instant, KeyedMutex, Lock, LockOptions, Redis, RedisOptions,
};
use redis_support::{Server, ms, patient, proxy::Proxy, secs, take};

/// Far more than the drift and rounding of the leases below.
const DELAY: Duration = ms(200);

async fn slow(server: &Server) -> (Proxy, Redis) {
    let proxy = Proxy::before(server).await;
    let redis = Redis::open(RedisOptions::new(proxy.url())).await.unwrap();
    proxy.delay_answers(DELAY);
    (proxy, redis)
}

/// The lease began after `asked` and before its answer was on its way.
fn ends_with_its_lease(lock: &Lock, began_by: Instant, lease: Duration) {
    let deadline = lock.deadline().unwrap();
    assert!(deadline < began_by.after(lease), "{:?} late", deadline.since(began_by.after(lease)));
}

#[tokio::test]
async fn a_grant_counts_from_before_its_send_although_the_answer_comes_late() {
    let server = Server::start().await;
    let (_proxy, redis) = slow(&server).await;
    let clock = redis.clock();
    for lease in [secs(1), secs(2)] {
        let asked = clock.now();
        let lock = redis.try_lock("k", lease).await.unwrap();
        assert!(clock.now().since(asked) >= DELAY);
        ends_with_its_lease(&lock, asked, lease);
        redis.unlock(&lock).await.unwrap();
    }
}

#[tokio::test]
async fn an_extend_counts_from_before_its_send_although_the_answer_comes_late() {
    let server = Server::start().await;
    let (_proxy, redis) = slow(&server).await;
    let clock = redis.clock();
    let lock = take(&redis, "k", secs(2)).await;
    let asked = clock.now();
    let longer = redis.extend(&lock, secs(4)).await.unwrap();
    assert!(clock.now().since(asked) >= DELAY);
    ends_with_its_lease(&longer, asked, secs(4));
    assert!(longer.deadline() > lock.deadline());
}

#[tokio::test]
async fn a_waiter_counts_from_the_moment_of_its_grant_although_it_is_told_late() {
    let server = Server::start().await;
    let first = server.open().await;
    let (_proxy, second) = slow(&server).await;
    let clock = second.clock();
    let held = take(&first, "k", secs(20)).await;
    let waiter = LockOptions::default().duration(secs(2)).max_wait(secs(20));
    let (lock, freed) = tokio::join!(second.lock("k", waiter), async {
        server.queued("k", 1).await;
        tokio::time::sleep(2 * DELAY).await;
        first.unlock(&held).await.unwrap();
        clock.now()
    });
    ends_with_its_lease(&lock.unwrap(), freed, secs(2));
}

/// Its place was noted where the answer was read, so that the grant is the first that it hears.
#[tokio::test]
async fn a_grant_of_which_less_than_half_can_be_relied_on_is_extended() {
    let server = Server::start().await;
    let first = server.open().await;
    // A tenth of wait and lease may be drift: after 600 ms that is more than half of the lease.
    let options = server.options().drift(Drift::from_ppm(100_000).unwrap());
    let second = Arc::new(Redis::open(options).await.unwrap());
    take(&second, "warm-up", secs(20)).await;
    for _ in 0..3 {
        let held = take(&first, "k", secs(20)).await;
        let waiter = LockOptions::default().duration(ms(100)).max_wait(secs(20));
        // A task of its own: nothing but the grant wakes it.
        let waiting = second.clone();
        let lock = tokio::spawn(async move { waiting.lock("k", waiter).await });
        server.queued("k", 1).await;
        tokio::time::sleep(ms(600)).await;
        first.unlock(&held).await.unwrap();
        let lock = lock.await.unwrap().unwrap();
        let left = lock.deadline().unwrap().since(second.clock().now());
        assert!(left >= ms(20), "extended: {left:?}");
        second.unlock(&lock).await.unwrap();
    }
}

/// Its nonce was withdrawn, and that is forgotten by the time the LOCK arrives.
#[tokio::test]
async fn a_lock_that_was_under_way_for_longer_than_its_withdrawal_is_remembered_grants_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::before(&server).await;
    let options = RedisOptions::new(proxy.url()).nonce_memory(secs(1)).request_timeout(ms(200));
    let redis = Redis::open(options.clone()).await.unwrap();
    // It knows the server's time.
    let known = redis.try_lock("other", secs(1)).await.unwrap();
    redis.unlock(&known).await.unwrap();
    proxy.hold_next_script(secs(3));
    let lost = redis.lock("k", patient().max_wait(ms(150))).await;
    assert!(matches!(lost, Err(Error::TimedOut | Error::Unknown | Error::Unavailable { .. })));
    tokio::time::sleep(ms(2_000)).await;
    assert!(server.keys().await.iter().all(|key| !key.ends_with("}:x")), "it is forgotten");
    for _ in 0..30 {
        tokio::time::sleep(ms(50)).await;
        let shown = redis.inspect("k").await.unwrap();
        assert_eq!(shown, None, "a ghost holds the key");
    }
}
