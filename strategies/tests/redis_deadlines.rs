//! Goal: a Redis behind a slow network is reached.
//! Method: a proxy that delays replies.
// A test that meets an error has failed, and the shared helpers read the clock.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use gaggle_fixtures::Proxy;
use gaggle_strategies::{Redis, RedisOptions};
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
