//! Goal: a holder's deadline on Redis is before the end of its lease, however slow the network
//! (contract, rules 2 and 4).
//! Method: a proxy that delays replies; deadlines are compared with the clock.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::sync::Arc;

use gaggle_fixtures::Proxy;
use gaggle_strategies::{Drift, KeyedMutex, LockOptions, Redis, RedisOptions};
use redis_support::{Server, ms, secs, take};

/// Login and checks take a round trip each, and TLS one more.
#[tokio::test]
async fn far_server_is_reached() {
    #[cfg(feature = "tls")]
    let (certificates, port) = (gaggle_fixtures::Certificates::new(), gaggle_fixtures::free_port());
    #[cfg(feature = "tls")]
    let server = Server::start_tls(&certificates, port);
    #[cfg(not(feature = "tls"))]
    let server = Server::start().await;
    let far = |port| {
        let proxy = Proxy::before(port);
        proxy.delay_replies(ms(600));
        proxy
    };
    let plain = far(server.port());
    let opened = Redis::open(RedisOptions::new(plain.url()));
    #[cfg(feature = "tls")]
    {
        let secure = far(port);
        let options = RedisOptions::new(secure.url()).tls(redis_support::trust(&certificates));
        let redis = Redis::open(options.tls_name("localhost")).await.unwrap();
        take(&redis, "k", secs(20)).await;
    }
    take(&opened.await.unwrap(), "k2", secs(20)).await;
}

/// Its queue position is known already, so that the grant is its first event.
#[tokio::test]
async fn grant_below_half_a_lease_is_extended() {
    let server = Server::start().await;
    let first = server.open().await;
    // A fifth of wait and lease may be drift: after 600 ms that is more than half of the lease.
    let options = server.options().drift(Drift::from_ppm(200_000).unwrap());
    let second = Arc::new(Redis::open(options).await.unwrap());
    take(&second, "warm-up", secs(20)).await;
    for _ in 0..3 {
        let held = take(&first, "k", secs(20)).await;
        let waiter = LockOptions::default().duration(ms(200)).max_wait(secs(20));
        // A task of its own: nothing but the grant wakes it.
        let waiting = second.clone();
        let lock = tokio::spawn(async move { waiting.lock("k", waiter).await });
        server.queued("k", 1).await;
        tokio::time::sleep(ms(600)).await;
        let before = second.clock().now();
        first.unlock(&held).await.unwrap();
        let lock = lock.await.unwrap().unwrap();
        let deadline = lock.deadline().unwrap();
        // As granted it has 39 ms. Extended it has 159 ms; 197 ms if the drift were the default.
        assert!(deadline >= before.after(ms(80)), "not extended: {:?}", deadline.since(before));
        let left = deadline.since(second.clock().now());
        assert!(left < ms(160), "without the drift: {left:?}");
        // On a busy machine it may have expired.
        let _ = second.unlock(&lock).await;
    }
}
