//! Goal: a server or a runtime that cannot serve is named at once, on the first connection and on
//! every later one, and a handle recovers when its reason has passed.
//! Method: a `redis-server` of the test's own whose settings, users and rights are changed.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gaggle_channels::NodeName;
#[cfg(feature = "tls")]
use gaggle_fixtures::Certificates;
use gaggle_fixtures::free_port;
use gaggle_strategies::{
    Error, Gaggle, KeyedMutex, MemberOptions, Redis, RedisOptions,
    clock::{Clock, Instant as ClockInstant},
    error::UnavailableKind,
};
use redis::Value;
use redis_support::{Server, at_once, ms, secs, take};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

/// The kind and the cause of a result that must be `Unavailable`.
fn unavailable<T: std::fmt::Debug>(result: Result<T, Error>) -> (UnavailableKind, String) {
    match result {
        Err(error @ Error::Unavailable { kind, .. }) => (kind, error.to_string()),
        other => panic!("{other:?}"),
    }
}

async fn set_policy(server: &Server, policy: &str) {
    let _: Value = server.command(&["CONFIG", "SET", "maxmemory-policy", policy]).await;
}

/// The cause of a refusal that only a change of settings ends.
async fn misconfigured(options: RedisOptions) -> String {
    let (kind, cause) = unavailable(Redis::open(options).await);
    assert_eq!(kind, UnavailableKind::Misconfigured, "{cause}");
    cause
}

#[tokio::test]
async fn unreachable_server_and_cause_are_named() {
    let port = free_port();
    let opened = Redis::open(RedisOptions::new(format!("redis://u:p@127.0.0.1:{port}"))).await;
    let (kind, cause) = unavailable(opened);
    let expected = format!("cannot reach Redis at 127.0.0.1:{port}: connection refused");
    assert_eq!((kind, cause), (UnavailableKind::Unreachable, expected));
}

#[cfg(unix)]
#[tokio::test]
async fn missing_socket_is_named() {
    let opened = Redis::open(RedisOptions::new("redis+unix:///nowhere/redis.sock")).await;
    let (kind, cause) = unavailable(opened);
    let expected = "cannot reach Redis at /nowhere/redis.sock: no such socket";
    assert_eq!((kind, &*cause), (UnavailableKind::Unreachable, expected));
}

/// A listener that replies to no client, and the clients that fill its queue.
async fn full_listener() -> (TcpListener, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // A client that connects while two wait to be accepted gets no reply.
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    let address = listener.local_addr().unwrap();
    while let Ok(connected) = timeout(ms(200), TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
    }
    (listener, waiting)
}

/// Like a machine that is switched off: no reply to the first packet.
#[tokio::test]
async fn host_that_is_down_is_named() {
    let (listener, _waiting) = full_listener().await;
    let address = listener.local_addr().unwrap();
    let options = RedisOptions::new(format!("redis://{address}")).connect_timeout(secs(1));
    let (kind, cause) = unavailable(Redis::open(options).await);
    let expected = format!("cannot reach Redis at {address}: no connection within 1s");
    assert_eq!((kind, cause), (UnavailableKind::Unreachable, expected));
}

/// Systems send the first packet again after 1 s.
#[tokio::test]
async fn one_lost_packet_does_not_end_an_attempt() {
    let (server, (listener, waiting)) = (Server::start().await, full_listener().await);
    let options = RedisOptions::new(format!("redis://{}", listener.local_addr().unwrap()));
    let recovers = async {
        tokio::time::sleep(ms(500)).await;
        drop(waiting);
        loop {
            let mut here = listener.accept().await.unwrap().0;
            let mut there = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            });
        }
    };
    tokio::select! {
        opened = Redis::open(options) => drop(opened.unwrap()),
        () = recovers => {}
    }
}

/// A clock that shows the time that it is set to.
#[derive(Debug, Default)]
struct Hands(watch::Sender<ClockInstant>);

impl Clock for Hands {
    fn now(&self) -> ClockInstant {
        *self.0.borrow()
    }

    fn sleep_until<'a>(
        &'a self,
        at: ClockInstant,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            self.0.subscribe().wait_for(|now| at <= *now).await.unwrap();
        })
    }
}

#[tokio::test]
async fn only_the_clock_ends_a_silent_attempt() {
    const HOUR: Duration = secs(3_600);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let options = RedisOptions::new(format!("redis://{address}"));
    let cases = [
        (options.clone().sentinels("main", [address.to_string()]), "the Sentinel"),
        (options.cluster([""; 0]), "Redis"),
    ];
    for (options, server) in cases {
        let clock = Arc::new(Hands::default());
        let options = options.connect_timeout(HOUR).clock(clock.clone());
        let opened = timeout(secs(10), async {
            let silent = async {
                let mut stream = listener.accept().await.unwrap().0;
                stream.read_u8().await.unwrap();
                clock.0.send_replace(clock.now().after(HOUR / 2));
                stream
            };
            tokio::join!(Redis::open(options), silent).0
        });
        let (_, cause) = unavailable(opened.await.expect("the clock ends the attempt"));
        assert_eq!(cause, format!("cannot reach {server} at {address}: no reply within 30m"));
    }
}

#[tokio::test]
async fn server_that_is_no_redis_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let page = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 6\r\n\r\n<html>";
        stream.write_all(page).await.unwrap();
        // Kept open: the reply decides, not the end of the connection.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let cause = misconfigured(RedisOptions::new(format!("redis://{address}"))).await;
    assert_eq!(cause, format!("the server at {address} did not answer with the Redis protocol"));
}

/// The cause that a server with these arguments is refused with.
async fn refused_with(arguments: &[&str]) -> String {
    let server = Server::start_with(arguments);
    let (_, cause) = unavailable(Redis::open(server.options()).await);
    cause.replace(&server.port().to_string(), "PORT")
}

#[tokio::test]
async fn cluster_and_replica_are_named() {
    let cause = refused_with(&["--cluster-enabled", "yes"]).await;
    assert!(cause.starts_with("Redis at 127.0.0.1:PORT is a node of a Cluster"), "{cause}");
    let master = Server::start().await;
    let cause = refused_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]).await;
    assert!(cause.starts_with("Redis at 127.0.0.1:PORT is a replica"), "{cause}");
    assert!(cause.ends_with(&format!("its master is 127.0.0.1:{}", master.port())), "{cause}");
}

/// A server, a Sentinel, the master that a plain Sentinel names, and a node of a Cluster.
#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_port_is_named() {
    use gaggle_fixtures::RedisSentinel;
    let (certificates, port, down) = (Certificates::new(), free_port(), free_port());
    let server = Server::start_tls(&certificates, port);
    let sentinels =
        [RedisSentinel::start_tls(server.port(), &certificates), RedisSentinel::start(port)];
    redis_support::replied(&sentinels).await;
    let [secure, plain] = &sentinels;
    let by = |sentinel: &RedisSentinel| {
        RedisOptions::new("redis://master").sentinels("main", [sentinel.address()])
    };
    let cluster = RedisOptions::new(format!("redis://127.0.0.1:{down}"));
    let node = format!("127.0.0.1:{port}");
    for (options, at) in [
        (RedisOptions::new(format!("redis://u:p@{node}")), node.clone()),
        (by(secure), secure.address()),
        (by(plain), node.clone()),
        (cluster.cluster([node.clone()]), node),
    ] {
        let cause = misconfigured(options).await;
        assert_eq!(cause, format!("the server at {at} speaks TLS: write rediss in place of redis"));
    }
}

/// The text names the scheme of the URL that works, which keeps TLS.
#[cfg(feature = "tls")]
#[tokio::test]
async fn other_kind_of_server_is_named_with_its_scheme() {
    use gaggle_fixtures::{RedisSentinel, tls_arguments};
    let (certificates, port, node) = (Certificates::new(), free_port(), free_port());
    let _server = Server::start_tls(&certificates, port);
    let mut arguments = tls_arguments(&certificates, node);
    arguments.extend(["--cluster-enabled", "yes"].map(str::to_owned));
    let _node = Server::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let sentinels = [RedisSentinel::start_tls(port, &certificates)];
    redis_support::replied(&sentinels).await;
    let sentinel = sentinels[0].address();
    let (server, node) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{node}"));
    let at = |address: &str| RedisOptions::new(format!("rediss://{address}"));
    for (options, remedy) in [
        (at(&node), format!("write rediss+cluster://{node}")),
        (at(&sentinel), format!("write rediss+sentinel://{sentinel}/MASTER")),
        (at(&server).cluster([""; 0]), format!("write rediss://{server}")),
        (at("m").sentinels("main", [server.clone()]), format!("write rediss://{server}")),
    ] {
        let options = options.tls(redis_support::trust(&certificates)).tls_name("localhost");
        let cause = misconfigured(options).await;
        assert!(cause.ends_with(&remedy), "{remedy}: {cause}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn required_certificate_is_named_with_its_options() {
    use gaggle_fixtures::tls_arguments;
    let (certificates, port) = (Certificates::new(), free_port());
    let mut arguments = tls_arguments(&certificates, port);
    arguments.extend(["--tls-auth-clients", "yes"].map(str::to_owned));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--tls-protocols", version]);
        let _server = Server::start_with(&arguments);
        let options = RedisOptions::new(format!("rediss://localhost:{port}"));
        let cause = misconfigured(options.tls(redis_support::trust(&certificates))).await;
        assert!(cause.contains("requires a certificate: give tls_cert and tls_key"), "{cause}");
    }
}

#[tokio::test]
async fn wrong_part_of_the_url_is_named() {
    let server = Server::start().await;
    let at = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    for (url, end) in [
        (at("") + "/9999", "refused SELECT: DB index is out of range"),
        (at("someone:wrong@"), "refused the user name or the password"),
    ] {
        let cause = misconfigured(RedisOptions::new(url)).await;
        assert!(cause.ends_with(end), "{cause}");
    }
    let _: Value = server.command(&["CONFIG", "SET", "requirepass", "secret"]).await;
    let cause = misconfigured(server.options()).await;
    assert!(cause.ends_with("write :PASSWORD@ before the host"), "{cause}");
}

/// A server that is full replies with an error, and closes.
#[tokio::test]
async fn full_node_and_full_sentinel_are_no_permanent_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.write_all(b"-ERR max number of clients reached\r\n").await;
                let _ = stream.shutdown().await;
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    for login in ["", "u:p@"] {
        let node = RedisOptions::new(format!("redis://{login}{address}")).cluster([""; 0]);
        let sentinel = RedisOptions::new("redis://m").sentinels("main", [address.clone()]);
        let sentinel = match login {
            "" => sentinel,
            _ => sentinel.sentinel_login(Some("u"), "p"),
        };
        for options in [node, sentinel] {
            let (kind, cause) = unavailable(Redis::open(options).await);
            assert_eq!(kind, UnavailableKind::Refused, "{cause}");
            assert!(cause.contains("as many clients as its maxclients allows"), "{cause}");
        }
    }
}

#[tokio::test]
async fn open_needs_the_right_to_publish() {
    let server = Server::start().await;
    let user = ["ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish"];
    let _: Value = server.command(&user).await;
    let url = format!("redis://mute:pw@127.0.0.1:{}", server.port());
    let cause = misconfigured(RedisOptions::new(url)).await;
    assert!(cause.contains("PUBLISH") && cause.contains("NOPERM"), "{cause}");
}

#[tokio::test]
async fn reconnect_refuses_eviction_too() {
    let server = Server::start().await;
    let redis = server.open().await;
    set_policy(&server, "allkeys-lru").await;
    // On the connection that there is, nothing has changed.
    let held = take(&redis, "k", secs(10)).await;
    // The connections of handles are subscribed.
    server.kill("pubsub").await;
    let limit = Instant::now() + secs(5);
    let (kind, cause) = loop {
        match redis.lock("other", at_once(secs(1))).await {
            Ok(lock) => redis.unlock(&lock).await.unwrap(),
            refused => break unavailable(refused),
        }
        assert!(Instant::now() < limit, "never refused");
    };
    assert_eq!(kind, UnavailableKind::Misconfigured);
    assert!(cause.contains("maxmemory-policy, allkeys-lru,"), "{cause}");
    set_policy(&server, "noeviction").await;
    while let Err(error) = redis.unlock(&held).await {
        assert!(Instant::now() < limit, "{error:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

#[test]
fn handle_whose_runtime_has_ended_is_closed() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let server = second.block_on(Server::start());
    let options = server.options();
    let redis = Arc::new(first.block_on(Redis::open(options)).unwrap());
    let held = first.block_on(take(&redis, "k", secs(20)));
    let watch = redis.watch(&held);
    first.shutdown_background();
    second.block_on(async {
        timeout(secs(5), watch.lost()).await.unwrap();
        let locked = redis.lock("other", at_once(secs(1))).await;
        assert!(matches!(locked, Err(Error::Closed)), "{locked:?}");
        let unlocked = redis.unlock(&held).await;
        assert!(matches!(unlocked, Err(Error::Closed)), "{unlocked:?}");
        assert!(matches!(redis.inspect("k").await, Err(Error::Closed)));
        redis.close().await;
    });
}

/// The same for a member whose frames go over that server.
#[tokio::test]
async fn channel_with_too_many_clients_is_no_permanent_failure() {
    let server = Server::start().await;
    let mut one = server.connection().await;
    let limit = ["SET", "maxclients", "1"];
    redis::cmd("CONFIG").arg(&limit).exec_async(&mut one).await.unwrap();
    let name = NodeName::new("a").unwrap();
    let options = gaggle_channels::RedisOptions::new(server.url(), "c", name.clone());
    let channel = Arc::new(gaggle_channels::Redis::new(options).unwrap());
    let member = Gaggle::open(channel, MemberOptions::named("c", [name])).await;
    let (kind, cause) = unavailable(member);
    assert_eq!(kind, UnavailableKind::Refused);
    assert!(cause.contains("maxclients"), "{cause}");
}
