//! Goal: all three channels pass the suite, and recover when the transport fails.
//!
//! Method: Memory in virtual time; Redis against a server of the test's own; TCP on free loopback
//! ports.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{
    Channel, ChannelError, Hub, NodeName, Received, Redis, RedisOptions, Tcp, TcpOptions,
};
use gaggle_fixtures::{Fixture, RedisServer, conformance, free_port};
use tokio::{
    io::AsyncWriteExt,
    time::{sleep, timeout},
};

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

struct OverMemory;

#[async_trait]
impl Fixture for OverMemory {
    async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>> {
        let hub = Hub::new();
        let mut nodes: Vec<Arc<dyn Channel>> = Vec::new();
        for each in names {
            nodes.push(Arc::new(hub.channel(name(each))));
            nodes.last().unwrap().connect().await.unwrap();
        }
        nodes
    }
}

struct OverRedis {
    server: RedisServer,
    clusters: AtomicU32,
}

#[async_trait]
impl Fixture for OverRedis {
    async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>> {
        let cluster = format!("c{}", self.clusters.fetch_add(1, Ordering::Relaxed));
        let mut nodes: Vec<Arc<dyn Channel>> = Vec::new();
        for each in names {
            let options = RedisOptions::new(self.server.url(), cluster.clone(), name(each));
            nodes.push(Arc::new(Redis::new(options).unwrap()));
            nodes.last().unwrap().connect().await.unwrap();
        }
        nodes
    }
}

struct OverTcp;

#[async_trait]
impl Fixture for OverTcp {
    async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>> {
        let nodes = tcp_nodes(names).await;
        nodes.into_iter().map(|node| node as Arc<dyn Channel>).collect()
    }
}

/// Connected TCP nodes, all of which can talk. The ports are fixed, so that they can reconnect.
async fn tcp_nodes(names: &[&str]) -> Vec<Arc<Tcp>> {
    tcp_nodes_with(names, &|options, _| options).await
}

async fn tcp_nodes_with(
    names: &[&str],
    secure: &(dyn Fn(TcpOptions, &str) -> TcpOptions + Send + Sync),
) -> Vec<Arc<Tcp>> {
    let mut nodes = Vec::new();
    for each in names {
        let options = TcpOptions::new(name(each), free_address());
        let node = Tcp::new(secure(options, each)).unwrap();
        node.connect().await.unwrap();
        nodes.push(Arc::new(node));
    }
    for node in &nodes {
        for peer in nodes.iter().filter(|peer| peer.name() != node.name()) {
            let address = peer.address().unwrap().to_string();
            node.add_peer(peer.name().clone(), address).await;
        }
    }
    for from in &nodes {
        for to in nodes.iter().filter(|to| to.name() != from.name()) {
            until_sent(&**from, to.name()).await;
            next_frame(&**to).await;
        }
    }
    nodes
}

/// Sends frames until one is not dropped.
async fn until_sent(from: &dyn Channel, to: &NodeName) {
    let sent = from.counters().sent;
    while from.counters().sent == sent {
        sleep(Duration::from_millis(5)).await;
        from.send(to, Bytes::from_static(b"up")).unwrap();
    }
}

fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

async fn next_frame(node: &dyn Channel) -> Bytes {
    loop {
        let received = timeout(Duration::from_secs(10), node.receive()).await.unwrap().unwrap();
        if let Received::Frame { frame, .. } = received {
            return frame;
        }
    }
}

/// Sends until a frame arrives: the way may take a moment to open.
async fn frames_flow(from: &dyn Channel, to: &dyn Channel) -> Duration {
    let started = tokio::time::Instant::now();
    for _ in 0..1000 {
        let _ = from.send(to.name(), Bytes::from_static(b"flow"));
        let got = timeout(Duration::from_millis(20), to.receive()).await;
        if let Ok(Some(Received::Frame { .. })) = got {
            return started.elapsed();
        }
    }
    panic!("no frame from {} reaches {}", from.name(), to.name());
}

#[tokio::test(start_paused = true)]
async fn memory_conforms() {
    conformance(&OverMemory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_conforms() {
    let server = RedisServer::start();
    conformance(&OverRedis { server, clusters: AtomicU32::new(0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_conforms() {
    conformance(&OverTcp).await;
}

#[cfg(feature = "tls")]
struct OverTls {
    certificates: gaggle_fixtures::Certificates,
    secret: bool,
}

#[cfg(feature = "tls")]
#[async_trait]
impl Fixture for OverTls {
    async fn nodes(&self, names: &[&str]) -> Vec<Arc<dyn Channel>> {
        use gaggle_channels::tls::TlsKeys;
        let files = &self.certificates;
        files.issue_members("c", names);
        let secret = files.write("secret", &gaggle_channels::tls::generate_secret());
        let keys = |each: &str| match self.secret {
            true => TlsKeys::secret(&secret),
            false => files.keys(each),
        };
        let nodes = tcp_nodes_with(names, &|options, each| options.tls("c", keys(each))).await;
        nodes.into_iter().map(|node| node as Arc<dyn Channel>).collect()
    }

    fn takes_any_name(&self) -> bool {
        false
    }
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_conforms_under_tls_of_files() {
    conformance(&OverTls { certificates: Default::default(), secret: false }).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_conforms_under_tls_of_a_secret() {
    conformance(&OverTls { certificates: Default::default(), secret: true }).await;
}

#[tokio::test]
async fn name_in_use_is_refused() {
    let hub = Hub::new();
    let (a, again) = (hub.channel(name("a")), hub.channel(name("a")));
    a.connect().await.unwrap();
    let taken = again.connect().await;
    assert!(matches!(taken, Err(ChannelError::NameTaken { .. })));
}

#[test]
fn a_password_is_not_shown() {
    let options = RedisOptions::new("redis://user:secret@127.0.0.1/", "c", name("a"));
    assert!(!format!("{options:?}").contains("secret"));
    let bad = RedisOptions::new("redis://user:secret@127.0.0.1:port/", "c", name("a"));
    let Err(error) = Redis::new(bad) else { panic!("the port is none") };
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_tcp_peer_is_soon_reached() {
    for restarted in [0, 1] {
        let nodes = tcp_nodes(&["a", "b"]).await;
        let (old, other) = (&nodes[restarted], &nodes[1 - restarted]);
        let address = old.address().unwrap();
        old.disconnect().await;
        let down = timeout(Duration::from_secs(10), other.receive()).await.unwrap();
        assert!(matches!(down, Some(Received::Down { .. })), "{down:?}");
        let options = TcpOptions::new(old.name().clone(), address)
            .peer(other.name().clone(), other.address().unwrap().to_string());
        let fresh = Tcp::new(options).unwrap();
        fresh.connect().await.unwrap();
        let took = frames_flow(&**other, &fresh).await;
        assert!(took < Duration::from_secs(2), "it took {took:?}");
        frames_flow(&fresh, &**other).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_tcp_bytes_are_only_counted() {
    let nodes = tcp_nodes(&["a", "b"]).await;
    let address = nodes[1].address().unwrap();
    // A node that dials before it is listed is counted too.
    let counted = || nodes[1].counters().malformed;
    let before = counted();
    let hello = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
    let rubbish = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        hello(b"gaggle\x02a"),
        hello(b"gaggle\x01stranger"),
        hello(b"gaggle\x01\xff\xfe"),
        hello(b"gaggle\x01"),
        // Longer than a hello can be, and the rest does not come.
        vec![0, 0, 2, 0],
    ];
    for bytes in &rubbish {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..200 {
        if counted() >= before + rubbish.len() as u64 {
            break;
        }
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(counted() - before, rubbish.len() as u64);
    frames_flow(&*nodes[0], &*nodes[1]).await;
}

#[test]
fn tcp_beyond_loopback_needs_insecure() {
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let refused = Tcp::new(TcpOptions::new(name("a"), everywhere));
    assert!(matches!(refused, Err(ChannelError::InvalidOptions { field: "listen", .. })));
    assert!(Tcp::new(TcpOptions::new(name("a"), everywhere).insecure(true)).is_ok());
}
