//! Goal: the Redis channel survives a server that refuses, stalls or sends malformed bytes.
//! Method: servers of the test's own; one of a few lines for bytes that no Redis sends.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::time::Duration;

use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, NodeName, Received, Redis, RedisOptions};
use gaggle_fixtures::{Events, RedisServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
    time::{Instant, sleep, timeout},
};

const LIMIT: Duration = Duration::from_secs(10);

fn channel(url: impl Into<String>, name: &str) -> Redis {
    Redis::new(RedisOptions::new(url, "c", NodeName::new(name).unwrap())).unwrap()
}

async fn connected(url: impl Into<String>, name: &str) -> Redis {
    let channel = channel(url, name);
    channel.connect().await.unwrap();
    channel
}

async fn next(channel: &Redis) -> Received {
    timeout(LIMIT, channel.receive()).await.unwrap().unwrap()
}

async fn frame_arrives(from: &Redis, to: &Redis) {
    from.send(to.name(), Bytes::from_static(b"frame")).unwrap();
    let frame = Received::Frame { from: from.name().clone(), frame: Bytes::from_static(b"frame") };
    assert_eq!(next(to).await, frame);
}

/// Sends frames to itself until one is not dropped, which arrives.
async fn comes_up(a: &Redis) {
    let sent = a.counters().sent;
    while a.counters().sent == sent {
        sleep(Duration::from_millis(5)).await;
        a.send(a.name(), Bytes::from_static(b"up")).unwrap();
    }
    assert!(matches!(next(a).await, Received::Frame { .. }));
}

/// Runs a command on a fresh connection, as the first user.
async fn command(server: &RedisServer, words: &[&str]) -> redis::Value {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd.query_async(&mut connection).await.unwrap()
}

async fn user(server: &RedisServer, rules: &[&str]) -> String {
    let fixed = ["ACL", "SETUSER", "someone", "reset", "on", ">secret", "&gaggle:*"];
    command(server, &[&fixed[..], rules].concat()).await;
    format!("redis://someone:secret@127.0.0.1:{}/3", server.port())
}

#[cfg(unix)]
#[tokio::test]
async fn redis_is_reached_over_a_unix_socket() {
    let server = RedisServer::start();
    let path = std::env::temp_dir().join(format!("gaggle-channel-{}.sock", std::process::id()));
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let url = format!("redis+unix://{}?db=3", path.display());
    let port = server.port();
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            let mut there = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            });
        }
    });
    let (a, b) = (connected(url, "a").await, connected(server.url(), "b").await);
    std::fs::remove_file(&path).unwrap();
    frame_arrives(&a, &b).await;
    frame_arrives(&b, &a).await;
}

/// The error of connecting, and whether an operator has to change something.
async fn refused(url: impl Into<String>) -> (String, bool) {
    let channel = channel(url, "a");
    match timeout(Duration::from_secs(5), channel.connect()).await.unwrap().unwrap_err() {
        ChannelError::Misconfigured { source } => (source.to_string(), true),
        error @ (ChannelError::Unavailable { .. } | ChannelError::Refused { .. }) => {
            (error.to_string(), false)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn connect_needs_the_right_to_publish() {
    let server = RedisServer::start();
    let (text, permanent) = refused(user(&server, &["+subscribe", "+select"]).await).await;
    let address = format!("Redis at 127.0.0.1:{} refused", server.port());
    assert!(permanent && text.starts_with(&address) && text.contains("publish"), "{text}");
}

#[tokio::test]
async fn connect_errors_name_address_and_cause() {
    let mut server = RedisServer::start();
    let port = server.port();
    let login = |login: &str| format!("redis://{login}127.0.0.1:{port}/");
    let password = format!("Redis at 127.0.0.1:{port} refused the user name or the password");
    assert_eq!(refused(login("unknown:secret@")).await, (password.clone(), true));
    command(&server, &["CONFIG", "SET", "requirepass", "right"]).await;
    assert_eq!(refused(login(":secret@")).await, (password, true));
    let text =
        format!("Redis at 127.0.0.1:{port} requires a password: write :PASSWORD@ before the host");
    assert_eq!(refused(login("")).await, (text, true));
    server.stop();
    let text = format!("cannot reach Redis at 127.0.0.1:{port}: connection refused");
    assert_eq!(refused(login("")).await, (text, false));
}

#[tokio::test]
async fn database_beyond_the_last_is_named() {
    let server = RedisServer::start();
    let (text, permanent) = refused(format!("{}99", server.url())).await;
    assert!(permanent && text.ends_with("DB index is out of range"), "{text}");
}

#[tokio::test]
async fn server_with_too_many_clients_is_no_permanent_failure() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut one = client.get_multiplexed_async_connection().await.unwrap();
    // Not at the start, when the connection that tests the server may still count.
    let limit = ["SET", "maxclients", "1"];
    redis::cmd("CONFIG").arg(&limit).exec_async(&mut one).await.unwrap();
    let (text, permanent) = refused(server.url()).await;
    assert!(!permanent && text.contains("maxclients"), "{text}");
}

#[tokio::test]
async fn web_server_is_no_redis() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let page = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 6\r\n\r\n<html>";
        stream.write_all(page).await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let text = format!("the server at {address} did not answer with the Redis protocol");
    assert_eq!(refused(format!("redis://{address}/")).await, (text, true));
}

#[tokio::test]
async fn refusing_server_is_down_until_it_accepts() {
    let server = RedisServer::start();
    let url = user(&server, &["+publish", "+subscribe", "+select"]).await;
    let a = connected(url, "a").await;
    frame_arrives(&a, &a).await;
    command(&server, &["ACL", "SETUSER", "someone", "-publish"]).await;
    let refused = async {
        while a.counters().dropped_outgoing == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, refused).await.expect("the refusal is counted");
    a.send(a.name(), Bytes::from_static(b"down")).unwrap();
    assert_eq!(a.counters().dropped_outgoing, 2, "there is no connection");
    command(&server, &["ACL", "SETUSER", "someone", "+publish"]).await;
    timeout(LIMIT, comes_up(&a)).await.unwrap();
    frame_arrives(&a, &a).await;
}

/// How many connections the server has accepted so far, this one included.
async fn connections(server: &RedisServer) -> u64 {
    let stats: String = redis::from_redis_value(command(server, &["INFO", "stats"]).await).unwrap();
    let accepted = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    accepted.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn refused_publications_slow_reconnects_down() {
    let server = RedisServer::start();
    // The user may publish to `a`, which connecting needs, and not to `b`.
    let topics = ["resetchannels", "&gaggle:1:c:node:a"];
    let url = user(&server, &[&topics[..], &["+publish", "+subscribe", "+select"]].concat()).await;
    let (a, b) = (connected(url, "a").await, NodeName::new("b").unwrap());
    let (before, begun) = (connections(&server).await, Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        a.send(&b, Bytes::from_static(b"refused")).unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    let made = connections(&server).await - before - 1;
    assert!((2..=10).contains(&made), "{made} connections in 3 s");
}

#[tokio::test]
async fn only_a_silent_server_is_dropped() {
    let server = RedisServer::start();
    let a = connected(server.url(), "a").await;
    let idle = timeout(Duration::from_millis(4_500), a.receive()).await;
    assert!(idle.is_err(), "nothing was sent, but {idle:?} came");
    let begun = Instant::now();
    let mut other = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    other.write_all(b"DEBUG SLEEP 8\r\n").await.unwrap();
    // The channel notices the silence after 3 to 4 s.
    sleep(Duration::from_secs(6)).await;
    a.send(a.name(), Bytes::from_static(b"down")).unwrap();
    assert_eq!(a.counters().dropped_outgoing, 1, "it was dropped");
    timeout(LIMIT, comes_up(&a)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(11));
    frame_arrives(&a, &a).await;
}

#[tokio::test]
async fn cancelled_disconnect_leaves_no_task() {
    let mut server = RedisServer::start();
    let a = connected(server.url(), "a").await;
    server.stop();
    let down = async {
        while a.counters().dropped_outgoing == 0 {
            a.send(a.name(), Bytes::from_static(b"down")).unwrap();
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, down).await.expect("a frame is dropped");
    assert!(futures_util::poll!(a.disconnect()).is_pending());
    drop(a);
    let ended = async {
        while Handle::current().metrics().num_alive_tasks() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, ended).await.expect("it ends");
}

#[tokio::test]
async fn channel_connects_after_a_cancelled_disconnect() {
    let server = RedisServer::start();
    let a = connected(server.url(), "a").await;
    assert!(futures_util::poll!(a.disconnect()).is_pending());
    a.connect().await.unwrap();
    frame_arrives(&a, &a).await;
}

/// How many bytes the first command takes, once it is whole: `*n`, and n times `$length` and text.
fn command_bytes(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| {
        let end = at + bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        let number: usize = std::str::from_utf8(&bytes[at + 1..end]).unwrap().parse().unwrap();
        Some((number, end + 2))
    };
    let (words, mut at) = number(0)?;
    for _ in 0..words {
        let (length, begin) = number(at)?;
        at = begin + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// A server that replies `+OK` to everything. Once the sender is set, it sends `malformed`.
async fn pretender(malformed: &'static [u8]) -> (String, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (sender, signal) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut signal = signal.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                loop {
                    while let Some(used) = command_bytes(&bytes) {
                        bytes.drain(..used);
                        stream.write_all(b"+OK\r\n").await.unwrap();
                    }
                    tokio::select! {
                        read = stream.read_buf(&mut bytes) => if !matches!(read, Ok(1..)) { return },
                        Ok(()) = signal.changed() => {
                            if stream.write_all(malformed).await.is_err() { return }
                        }
                    }
                }
            });
        }
    });
    (url, sender)
}

#[tokio::test]
async fn malformed_bytes_end_the_connection() {
    let (url, sender) = pretender(b"?\r\n").await;
    let a = connected(url, "a").await;
    sender.send_replace(true);
    let ended = async {
        while a.counters().dropped_outgoing == 0 {
            sleep(Duration::from_millis(5)).await;
            a.send(a.name(), Bytes::from_static(b"down")).unwrap();
        }
    };
    timeout(LIMIT, ended).await.expect("a frame is dropped");
}

/// A reply of 9 MiB.
#[tokio::test]
async fn reply_that_is_too_long_ends_the_connection() {
    let reply = format!("+{}\r\n", "x".repeat(9 << 20));
    let (url, sender) = pretender(reply.leak().as_bytes()).await;
    let a = connected(url, "a").await;
    sender.send_replace(true);
    let ended = async {
        while a.counters().dropped_outgoing == 0 {
            sleep(Duration::from_millis(5)).await;
            a.send(a.name(), Bytes::from_static(b"down")).unwrap();
        }
    };
    timeout(LIMIT, ended).await.expect("a frame is dropped");
}

#[tokio::test]
async fn malformed_push_is_only_counted() {
    let server = RedisServer::start();
    let a = connected(server.url(), "a").await;
    for rubbish in ["?", "\u{1}\u{9}a", "\u{2}\u{1}a"] {
        command(&server, &["PUBLISH", "gaggle:1:c:node:a", rubbish]).await;
    }
    // The sign of life counts, whichever client it comes from.
    command(&server, &["PUBLISH", "gaggle:1:c:node:a", ""]).await;
    frame_arrives(&a, &a).await;
    assert_eq!(a.counters().malformed, 3);
}

/// A stranger may publish without end.
#[tokio::test]
async fn malformed_pushes_are_warned_of_once() {
    let (events, _recording) = Events::of_thread();
    let server = RedisServer::start();
    let a = connected(server.url(), "a").await;
    let flood = "for n = 1, 100 do redis.call('PUBLISH', KEYS[1], '?') end";
    command(&server, &["EVAL", flood, "1", "gaggle:1:c:node:a"]).await;
    frame_arrives(&a, &a).await;
    assert_eq!(a.counters().malformed, 100);
    assert_eq!(events.with("malformed frame").len(), 1, "{events:?}");
}
