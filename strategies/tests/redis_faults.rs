//! Goal: losses between a process and its Redis cost time, never the lock (contract, rules 5, 6,
//! 8). Method: the test's own `redis-server` is killed, flushed and restarted, and a proxy loses
//! replies and publications.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::time::Instant;

use gaggle_fixtures::Proxy;
use gaggle_strategies::{Error, KeyedMutex, LockOptions, Redis, RedisOptions};
use redis_support::{Server, at_once, ms, patient, secs, take};

async fn through(proxy: &Proxy) -> Redis {
    Redis::open(RedisOptions::new(proxy.url())).await.unwrap()
}

#[tokio::test]
async fn lost_publication_costs_at_most_one_check() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.port());
    let (first, second) = (server.open().await, through(&proxy).await);
    // Less than half of the short lease may be left, so that it is extended.
    for (duration, most) in [(secs(20), 1), (ms(750), 2)] {
        let (held, lost) = (take(&first, "k", secs(20)).await, proxy.publications_lost());
        let waiter = LockOptions::default().duration(duration).max_wait(secs(20));
        let (next, (token, before, unlocked)) = tokio::join!(second.lock("k", waiter), async {
            server.queued("k", 1).await;
            proxy.lose_publications(true);
            first.unlock(&held).await.unwrap();
            let unlocked = Instant::now();
            let granted = first.inspect("k").await.unwrap().unwrap();
            (granted.fencing_token, server.calls("evalsha").await, unlocked)
        });
        let (next, took) = (next.unwrap(), unlocked.elapsed());
        let sent = server.calls("evalsha").await - before;
        assert!(sent <= most, "{sent} scripts for a lease of {duration:?}");
        assert!(took < ms(1_500), "{took:?} for a lease of {duration:?}");
        assert_eq!(next.fencing_token(), token, "the grant that was not notified");
        assert!(proxy.publications_lost() > lost);
        proxy.lose_publications(false);
        second.unlock(&next).await.unwrap();
    }
}

#[tokio::test]
async fn reconnect_checks_waiters_at_once() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.port());
    let (first, second) = (server.open().await, through(&proxy).await);
    let held = take(&first, "k", secs(20)).await;
    let (next, killed) = tokio::join!(second.lock("k", patient()), async {
        server.queued("k", 1).await;
        proxy.lose_publications(true);
        first.unlock(&held).await.unwrap();
        while proxy.publications_lost() == 0 {
            tokio::time::sleep(ms(1)).await;
        }
        proxy.lose_publications(false);
        server.kill("pubsub").await;
        Instant::now()
    });
    // Its regular check is due 800 ms after it queued, or later.
    assert!(killed.elapsed() < ms(700), "{:?}", killed.elapsed());
    second.unlock(&next.unwrap()).await.unwrap();
}

#[tokio::test]
async fn repeated_lock_finds_its_grant_on_redis() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.port());
    let redis = through(&proxy).await;
    for (waits, cuts) in [(true, 1), (false, 2)] {
        proxy.cut_replies(1);
        let held = if waits {
            take(&redis, "k", secs(10)).await
        } else {
            redis.lock("k", at_once(secs(10))).await.unwrap()
        };
        assert_eq!(proxy.cuts(), cuts);
        let shown = redis.inspect("k").await.unwrap().unwrap();
        assert_eq!((shown.nonce, shown.fencing_token), (held.nonce(), held.fencing_token()));
        redis.unlock(&held).await.unwrap();
        assert_eq!(server.residue().await, Vec::<String>::new());
        // A copy may be in flight, so the end is remembered.
        let remembered = server.keys().await.into_iter().filter(|key| key.ends_with("}:x")).count();
        assert_eq!(remembered, 1);
    }
}

#[tokio::test]
async fn repeated_extend_succeeds_and_repeated_unlock_is_unknown() {
    let server = Server::start().await;
    let proxy = Proxy::before(server.port());
    let redis = through(&proxy).await;
    let held = take(&redis, "k", secs(10)).await;
    proxy.cut_replies(1);
    let repeated = redis.unlock(&held).await;
    assert!(
        matches!(repeated, Err(Error::Unknown)),
        "the reply of the first was lost: {repeated:?}"
    );
    assert_eq!(proxy.cuts(), 1);
    assert_eq!(server.residue().await, Vec::<String>::new());
    assert!(matches!(redis.unlock(&held).await, Err(Error::NotHolder)));
    let held = take(&redis, "k", secs(10)).await;
    proxy.cut_replies(1);
    let longer = redis.extend(&held, secs(20)).await.unwrap();
    assert!(longer.deadline() > held.deadline());
    redis.unlock(&longer).await.unwrap();
}

#[tokio::test]
async fn lock_lost_by_a_restart_is_lost_on_reconnect() {
    let server = Server::start().await;
    let redis = server.open().await;
    let held = take(&redis, "k", secs(60)).await;
    let watch = redis.watch(&held);
    server.down();
    server.up().await;
    tokio::time::timeout(secs(5), watch.lost()).await.unwrap();
}

/// Contract, Outcomes: the holder relies on its lock until the unlock, and its bytes are lost.
#[tokio::test]
async fn unlock_of_a_lock_that_another_held_is_not_ok() {
    for way in ["force-unlock", "FLUSHALL", "unlock by the value"] {
        let server = Server::start().await;
        let proxy = Proxy::before(server.port());
        let (first, second) = (through(&proxy).await, server.open().await);
        let held = take(&first, "k", secs(30)).await;
        proxy.swallow(true);
        match way {
            "force-unlock" => {
                drop(second.operator().unwrap().force_unlock("k", None, "it hangs").await.unwrap());
            }
            "FLUSHALL" => server.command::<()>(&["FLUSHALL"]).await,
            _ => second.unlock(&held).await.unwrap(),
        }
        let between = take(&second, "k", secs(30)).await;
        let (outcome, severed) = tokio::join!(first.unlock(&held), async {
            // The UNLOCK leaves in between.
            tokio::time::sleep(ms(20)).await;
            proxy.swallow(false);
            proxy.sever()
        });
        assert!(severed > 0);
        assert!(matches!(outcome, Err(Error::Unknown | Error::NotHolder)), "{way}: {outcome:?}");
        second.unlock(&between).await.unwrap();
    }
}
