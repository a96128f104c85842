//! Goal: a server of another kind is named with what was expected and what to do.
//! Method: servers of the test's own, and sockets that reply as proxies and old servers do.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

#[cfg(feature = "tls")]
use std::time::Instant;

use gaggle_channels::{Channel, ChannelError, NodeName};
use gaggle_strategies::{
    Error, KeyedMutex, Redis, RedisOptions, error::UnavailableKind::Misconfigured,
};
use redis::Value;
use redis_support::{
    cluster::{eventually, node_with},
    secs, take,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// A server that replies to everything with this line.
async fn replying(line: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                while matches!(stream.read(&mut [0; 4096]).await, Ok(1..))
                    && stream.write_all(line.as_bytes()).await.is_ok()
                {}
            });
        }
    });
    address
}

#[tokio::test]
async fn server_without_resp3_is_named() {
    for line in [
        // A Redis 5, a proxy, and a server of another version of the protocol.
        "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `hunter2`\r\n",
        "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'hunter2'\r\n",
        "-ERR invalid request\r\n",
        "-NOPROTO unsupported protocol version\r\n",
    ] {
        let address = replying(line).await;
        let direct = RedisOptions::new(format!("redis://u:hunter2@{address}"));
        let sentinels = RedisOptions::new("redis://m").sentinels("main", [address.clone()]);
        let cluster = direct.clone().cluster([""; 0]);
        let expected = "does not know HELLO 3 (RESP3): expected a Redis 7 or later; a proxy before \
                        it cannot be used, give the address of the Redis itself";
        for options in [direct, sentinels, cluster] {
            let error = Redis::open(options).await.unwrap_err();
            assert!(matches!(error, Error::Unavailable { kind: Misconfigured, .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains(&address), "{line}: {text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
        let url = format!("redis://u:hunter2@{address}");
        let name = NodeName::new("a").unwrap();
        let channel = gaggle_channels::RedisOptions::new(url, "c", name);
        let channel = gaggle_channels::Redis::new(channel).unwrap();
        let error = channel.connect().await.unwrap_err();
        let ChannelError::Misconfigured { source } = error else { panic!("{error:?}") };
        assert!(source.to_string().contains(expected), "{source}");
    }
}

/// Soon enough for a call that does not wait.
#[cfg(feature = "tls")]
#[tokio::test]
async fn plain_server_behind_rediss_is_named_within_a_second() {
    let server = redis_support::Server::start().await;
    let began = Instant::now();
    let options = RedisOptions::new(format!("rediss://127.0.0.1:{}", server.port()));
    let error = Redis::open(options).await.unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("does not speak TLS: write redis in place of rediss"), "{text}");
    assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
}

/// A node has none if its preferred endpoint is a host name that it does not have.
#[tokio::test]
async fn unknown_endpoint_is_the_address_that_was_asked() {
    let node = node_with(&["--cluster-preferred-endpoint-type", "hostname"]);
    let _: Value = node.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
    eventually(&node, &["CLUSTER", "INFO"], "cluster_state:ok").await;
    let slots: Value = node.command(&["CLUSTER", "SLOTS"]).await;
    assert!(format!("{slots:?}").contains('?'), "{slots:?}");
    let redis = Redis::open(node.options().cluster([""; 0])).await.unwrap();
    let lock = take(&redis, "k", secs(10)).await;
    redis.unlock(&lock).await.unwrap();
}
