//! Goal: a TCP channel handles connections that end, stall or are slow, and leaves nothing behind.
//! Method: one channel, and peers that are sockets of the test's own.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;
use gaggle_channels::{Channel, NodeName, Received, Tcp, TcpOptions};
use gaggle_fixtures::Events;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout, timeout_at},
};

const HELLO_A: &[u8] = b"\0\0\0\x08gaggle\x01a";
const HELLO_B: &[u8] = b"\0\0\0\x08gaggle\x01b";

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// `b`, which waits for `a` to dial.
async fn listening() -> Tcp {
    let b =
        Tcp::new(TcpOptions::new(name("b"), loopback()).peer(name("a"), "127.0.0.1:1")).unwrap();
    b.connect().await.unwrap();
    b
}

/// A connection of `a` to it, which is up.
async fn dialled(b: &Tcp) -> TcpStream {
    let mut stream = TcpStream::connect(b.address().unwrap()).await.unwrap();
    stream.write_all(HELLO_A).await.unwrap();
    let mut reply = [0; HELLO_B.len()];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, HELLO_B);
    stream.write_all(&[&head(2)[..], b"up"].concat()).await.unwrap();
    assert!(matches!(received(b).await, Received::Frame { .. }));
    stream
}

async fn received(b: &Tcp) -> Received {
    timeout(Duration::from_secs(60), b.receive()).await.unwrap().unwrap()
}

/// Contract, rule 11: a program that ends with unread bytes resets its connection, after its last
/// frame.
#[tokio::test]
async fn frame_before_a_reset_arrives() {
    for _ in 0..20 {
        let b = listening().await;
        let mut stream = dialled(&b).await.into_std().unwrap();
        b.send(&name("a"), "unread".into()).unwrap();
        stream.write_all(&[&head(5)[..], b"last!"].concat()).unwrap();
        drop(stream);
        // The channel notices the reset as it writes, before its task has read the frame.
        b.send(&name("a"), "late".into()).unwrap();
        let (from, frame) = (name("a"), "last!".into());
        assert_eq!(received(&b).await, Received::Frame { from, frame });
        assert_eq!(received(&b).await, Received::Down { peer: name("a") });
    }
}

#[tokio::test]
async fn dialled_node_of_another_name_is_refused() {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let a = Tcp::new(TcpOptions::new(name("a"), loopback()).peer(name("b"), at)).unwrap();
    a.connect().await.unwrap();
    let (mut wrong, _) = listener.accept().await.unwrap();
    let mut hello = [0; HELLO_A.len()];
    wrong.read_exact(&mut hello).await.unwrap();
    assert_eq!(hello, HELLO_A);
    wrong.write_all(b"\0\0\0\x08gaggle\x01z").await.unwrap();
    let end = timeout(Duration::from_secs(10), wrong.read(&mut [0])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert_eq!((a.counters().sent, a.counters().malformed), (0, 0));
}

/// A load balancer sends such checks: the second is reset.
#[tokio::test]
async fn health_check_is_counted_and_no_warning() {
    let (events, _recording) = Events::of_thread();
    let b = listening().await;
    for is_reset in [false, true] {
        let stream = TcpStream::connect(b.address().unwrap()).await.unwrap();
        if is_reset {
            stream.set_zero_linger().unwrap();
        }
    }
    while b.counters().refused_before_authentication < 2 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(events.with("WARN").is_empty(), "{events:?}");
    assert_eq!(events.with("probably a health check").len(), 2, "{events:?}");
    // A stranger that says something is named.
    refused(&b, b"GET / HTTP/1.0").await;
    while b.counters().refused_before_authentication < 3 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(events.with("refused a connection").len(), 1, "{events:?}");
}

/// A connection that is refused has all that it was sent, and is closed in order.
async fn refused(b: &Tcp, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(b.address().unwrap()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut reply = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut reply)).await;
    read.unwrap().unwrap();
    reply
}

#[tokio::test]
async fn refused_name_gets_a_code_and_no_hello() {
    let options = TcpOptions::new(name("b"), loopback()).peer(name("a"), "127.0.0.1:1");
    let b = Tcp::new(options.peer(name("c"), "127.0.0.1:1")).unwrap();
    b.connect().await.unwrap();
    let mut long = vec![22, 3, 1, 2, 0];
    long.resize(517, 0);
    for (bytes, code) in [
        (&b"\0\0\0\x08gaggle\x01x"[..], 1),
        // The node `b` would dial this one.
        (b"\0\0\0\x08gaggle\x01c", 0),
        (HELLO_B, 0),
        (b"GET / HTTP/1.1\r\n\r\n", 0),
        // The record of a handshake of TLS.
        (&long, 0),
    ] {
        let reply = refused(&b, bytes).await;
        assert_eq!(reply, [&b"\0\0\0\x08refused"[..], &[code]].concat(), "{bytes:?}");
    }
}

/// Waits until `a` knows why it is not connected to `b`.
async fn failure(a: &Tcp, expected: &str) {
    let known = timeout(Duration::from_secs(10), async {
        while a.failures().get(&name("b")).is_none_or(|failure| failure != expected) {
            sleep(Duration::from_millis(10)).await;
        }
    });
    known.await.unwrap_or_else(|_| panic!("{expected}: {:?}", a.failures()));
}

#[tokio::test]
async fn failed_connection_is_known_with_its_cause() {
    let port = gaggle_fixtures::free_port();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let a = TcpOptions::new(name("a"), loopback()).peer(name("b"), at.to_string());
    let a = Tcp::new(a).unwrap();
    a.connect().await.unwrap();
    failure(&a, &format!("{at}: connection refused")).await;
    let b = Tcp::new(TcpOptions::new(name("b"), at).peer(name("c"), "127.0.0.1:1")).unwrap();
    b.connect().await.unwrap();
    failure(&a, &format!("{at}: it refused: \"a\" is not in its option peers")).await;
    b.add_peer(name("a"), "127.0.0.1:1").await;
    let connected = timeout(Duration::from_secs(10), async {
        while !a.failures().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    connected.await.unwrap();
}

#[tokio::test]
async fn port_in_use_is_named_with_its_cause() {
    let taken = TcpListener::bind(loopback()).await.unwrap();
    let a = Tcp::new(TcpOptions::new(name("a"), taken.local_addr().unwrap())).unwrap();
    let error = a.connect().await.unwrap_err().to_string();
    let cause = "): another process, perhaps this member itself, uses the port";
    assert!(error.starts_with("cannot listen on 127.0.0.1:") && error.ends_with(cause), "{error}");
}

/// Many other tasks are runnable: a `disconnect` that returned too early would be noticed.
#[tokio::test]
async fn disconnect_closes_accepted_sockets() {
    for _ in 0..200 {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..20 {
        let b = listening().await;
        // A peer has sent no hello, the other one has.
        let stranger = TcpStream::connect(b.address().unwrap()).await.unwrap();
        let peer = dialled(&b).await;
        b.disconnect().await;
        for stream in [stranger, peer] {
            let read = stream.into_std().unwrap().read(&mut [0; 64]);
            let open = matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock);
            assert!(!open, "{read:?}");
        }
    }
}

#[tokio::test]
async fn a_connect_during_a_disconnect_holds() {
    let b = listening().await;
    let _before = dialled(&b).await;
    let ((), connected) = tokio::join!(b.disconnect(), b.connect());
    connected.unwrap();
    let _after = dialled(&b).await;
    b.send(&name("b"), Bytes::from_static(b"to myself")).unwrap();
    assert!(matches!(received(&b).await, Received::Frame { .. }));
}

/// A peer that takes connections and ends them at once: the pauses grow all the same.
#[tokio::test]
async fn redial_backs_off_after_early_ends() {
    let peer = TcpListener::bind(loopback()).await.unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let a = Tcp::new(TcpOptions::new(name("a"), loopback()).peer(name("b"), address)).unwrap();
    a.connect().await.unwrap();
    let end = Instant::now() + Duration::from_millis(1_500);
    let mut connections = 0;
    while let Ok(accepted) = timeout_at(end, peer.accept()).await {
        let (mut stream, _) = accepted.unwrap();
        stream.write_all(HELLO_B).await.unwrap();
        let mut hello = [0; HELLO_A.len()];
        stream.read_exact(&mut hello).await.unwrap();
        connections += 1;
    }
    // At 10, 30, 70, 150, 310 ms, and so on, at the earliest.
    assert!((2..=12).contains(&connections), "{connections} in 1.5 s");
}

/// The head of a frame of `bytes` bytes of data.
fn head(bytes: u32) -> [u8; 5] {
    let [a, b, c, d] = (bytes + 1).to_be_bytes();
    [a, b, c, d, 1]
}

/// Sends in virtual time, which stands still until the bytes have arrived.
async fn carry(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    std::thread::sleep(Duration::from_millis(5));
}

#[tokio::test]
async fn long_slow_frame_is_a_sign_of_life() {
    let b = listening().await;
    let mut stream = dialled(&b).await;
    tokio::time::pause();
    carry(&mut stream, &head(20)).await;
    for byte in 0..20 {
        sleep(Duration::from_secs(1)).await;
        carry(&mut stream, &[byte]).await;
    }
    let Received::Frame { frame, .. } = received(&b).await else { panic!("it was cut off") };
    assert_eq!(frame, (0..20).collect::<Vec<u8>>());
}

#[tokio::test]
async fn a_frame_of_which_no_more_comes_is_none() {
    let b = listening().await;
    let before = Instant::now();
    let mut stream = dialled(&b).await;
    tokio::time::pause();
    let begun = Instant::now();
    carry(&mut stream, &head(20)).await;
    carry(&mut stream, b"half").await;
    assert_eq!(received(&b).await, Received::Down { peer: name("a") });
    // The channel checks every 3 s; bytes that arrived since the last check count.
    let (most, least) = (before.elapsed().as_millis(), begun.elapsed().as_millis());
    assert!(most >= 5_000 && least <= 6_100, "{least} to {most} ms");
}
