//! Goal: over TLS a node accepts its peers alone, also while strangers attack its port.
//!
//! Method: two nodes; `openssl s_client` and raw sockets as strangers; all events are recorded.
#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use gaggle_channels::{
    Channel, NodeName, Received, Tcp, TcpOptions,
    tls::{TlsKeys, Validity, generate_secret},
};
use gaggle_fixtures::{Certificates, Events, Strangers, free_port};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout},
};

async fn event(text: &str) -> String {
    Events::of_process().wait_for(text).await
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// A pair of nodes: `a` dials `b`.
struct Pair {
    a: Tcp,
    b: Arc<Tcp>,
    at: SocketAddr,
}

/// `a` dials `b` at the address of `through`, if there is one.
async fn pair(keys: [TlsKeys; 2], through: Option<SocketAddr>, at: SocketAddr) -> Pair {
    Events::of_process();
    let [a, b] = keys;
    let options = TcpOptions::new(name("b"), at).peer(name("a"), "127.0.0.1:1");
    let b = Arc::new(Tcp::new(options.tls("c", b)).unwrap());
    b.connect().await.unwrap();
    let dialled = through.unwrap_or(at).to_string();
    let options = TcpOptions::new(name("a"), (Ipv4Addr::LOCALHOST, 0).into());
    let a = Tcp::new(options.peer(name("b"), dialled).tls("c", a)).unwrap();
    a.connect().await.unwrap();
    Pair { a, b, at }
}

fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

/// How long it took until a frame of `from` arrived.
async fn frame_flows(from: &Tcp, to: &Tcp, text: &'static str) -> Duration {
    let begun = Instant::now();
    loop {
        from.send(to.name(), Bytes::from_static(text.as_bytes())).unwrap();
        if let Ok(Some(Received::Frame { frame, .. })) =
            timeout(Duration::from_millis(20), to.receive()).await
            // One that was sent before may come late.
            && frame == text
        {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no frame arrives");
    }
}

/// Runs `openssl s_client` until the node closes the connection. Returns how long that took.
fn s_client(at: SocketAddr, arguments: &[&str]) -> Duration {
    let begun = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &at.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    // The input stays open: the client ends when the node ends the connection.
    let input = client.stdin.take();
    client.wait().unwrap();
    drop(input);
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() - begun
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_clients_are_refused_with_the_reason() {
    let (ours, foreign) = (Certificates::new(), Certificates::new());
    ours.issue_members("c", &["a", "b", "z"]);
    foreign.issue_members("c", &["a"]);
    let a = "a.member.c.gaggle";
    ours.issue("cluster", "a.member.other.gaggle");
    ours.issue_for("expired", a, Validity { from: 0, until: 1_700_000_000 });
    ours.issue_for("early", a, Validity { from: 4_102_444_800, until: 4_202_444_800 });
    let Pair { a, b, at } = pair(["a", "b"].map(|n| ours.keys(n)), None, free_address()).await;
    type Shown<'a> = Option<(&'a Certificates, &'a str)>;
    let cases: [(Shown<'_>, &str, &str); 8] = [
        (None, "-tls1_3", "the other side has no certificate"),
        (Some((&foreign, "a")), "-tls1_3", "certificate of an unknown authority"),
        (Some((&ours, "expired")), "-tls1_3", "certificate expired at 2023-11-14T22:13:20Z"),
        (Some((&ours, "early")), "-tls1_3", "this machine's clock?"),
        (Some((&ours, "z")), "-tls1_3", "but for z.member.c.gaggle"),
        (Some((&ours, "cluster")), "-tls1_3", "but for a.member.other.gaggle"),
        (Some((&ours, "a")), "-tls1_2", "no common version"),
        // This client sends no hello.
        (Some((&ours, "a")), "-tls1_3", "no hello in time"),
    ];
    for (certificate, version, reason) in cases {
        let refused = b.counters().refused_before_authentication;
        let paths = certificate.map(|(certificates, name)| {
            ["", "-key"].map(|part| certificates.path(&format!("{name}{part}.pem")))
        });
        let mut arguments = vec![version];
        if let Some([cert, key]) = &paths {
            arguments.extend(["-cert", cert.to_str().unwrap(), "-key", key.to_str().unwrap()]);
        }
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let took = tokio::task::spawn_blocking(move || {
            s_client(at, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        });
        let took = took.await.unwrap();
        let seconds = if reason == "no hello in time" { 2..3 } else { 0..2 };
        assert!(seconds.contains(&took.as_secs()), "{reason}: {took:?}");
        let logged = event(reason).await;
        assert!(
            logged.contains("refused a connection") && logged.contains("127.0.0.1"),
            "{logged}"
        );
        assert_eq!(b.counters().refused_before_authentication, refused + 1, "{reason}");
    }
    // Plain bytes are no TLS.
    TcpStream::connect(at).await.unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    event("one side uses TLS, the other does not (this one does)").await;
    frame_flows(&a, &b, "the peer is served").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hello_of_another_name_than_the_certificate_is_refused() {
    Events::of_process();
    let certificates = Certificates::new();
    certificates.issue_members("c", &["a", "b", "c"]);
    let at = free_address();
    let options = TcpOptions::new(name("c"), at).peer(name("a"), "127.0.0.1:1");
    let options = options.peer(name("b"), "127.0.0.1:1");
    let c = Tcp::new(options.tls("c", certificates.keys("c"))).unwrap();
    c.connect().await.unwrap();
    let keys = ["b.pem", "b-key.pem"].map(|file| certificates.path(file));
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-tls1_3", "-connect", &at.to_string(), "-cert"])
        .args([keys[0].as_path(), "-key".as_ref(), &keys[1]])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    std::io::Write::write_all(client.stdin.as_mut().unwrap(), b"\0\0\0\x08gaggle\x01a").unwrap();
    event("is not for a.member.c.gaggle, but for b.member.c.gaggle").await;
    assert_eq!(c.counters().refused_before_authentication, 1);
    client.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dialled_node_proves_its_name() {
    let certificates = Certificates::new();
    certificates.issue_members("c", &["a", "b", "y"]);
    let keys = |name| certificates.keys(name);
    let Pair { a, at, .. } = pair([keys("a"), keys("b")], None, free_address()).await;
    a.disconnect().await;
    // The wrong node at the address of b.
    let y = TcpOptions::new(name("y"), free_address()).peer(name("a"), at.to_string());
    let y = Tcp::new(y.tls("c", keys("y"))).unwrap();
    y.connect().await.unwrap();
    a.add_peer(name("b"), y.address().unwrap().to_string()).await;
    a.connect().await.unwrap();
    event("certificate is not for b.member.c.gaggle, but for y.member.c.gaggle").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stranger_is_cut_after_64_kib() {
    let certificates = Certificates::new();
    certificates.issue_members("c", &["a", "b"]);
    let keys = ["a", "b"].map(|name| certificates.keys(name));
    let Pair { b, at, .. } = pair(keys, None, free_address()).await;
    let refused = b.counters().refused_before_authentication;
    // A ClientHello of nearly 64 KiB in five records, which ends beyond both limits.
    let mut hello = vec![1, 0, 0xff, 0xf0];
    hello.resize(4 + 0xfff0, 0);
    let records = hello.chunks(14_000).map(|part| {
        let length = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &length[..], part].concat()
    });
    let mut stranger = TcpStream::connect(at).await.unwrap();
    stranger.write_all(&records.collect::<Vec<_>>().concat()).await.unwrap();
    // Before the time for its hello is over.
    let closed = timeout(Duration::from_millis(1_500), stranger.read(&mut [0])).await;
    assert!(closed.is_ok(), "it is still open");
    event("refused a connection").await;
    assert!(b.counters().refused_before_authentication > refused);
}

/// The memory of this process that is in no file, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooded_node_restarts_and_is_soon_reached() {
    let certificates = Certificates::new();
    certificates.issue_members("c", &["a", "b"]);
    let keys = ["a", "b"].map(|name| certificates.keys(name));
    let Pair { a, b, at } = pair(keys, None, free_address()).await;
    frame_flows(&a, &b, "before").await;
    let before = memory();
    let _strangers = Strangers::flood(at);
    sleep(Duration::from_secs(2)).await;
    b.disconnect().await;
    b.connect().await.unwrap();
    let took = frame_flows(&a, &b, "after").await;
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    sleep(Duration::from_secs(3)).await;
    let refused = b.counters().refused_before_authentication;
    assert!(refused > 256, "{refused} refused");
    let more = memory().saturating_sub(before);
    assert!(more <= 16 << 10, "{more} KiB more");
    // Each reason once in 10 s.
    let logged = Events::of_process().with("refused a connection").len();
    assert!(logged <= 10, "{logged} events for {refused} refusals");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_files_are_used_without_a_reconnect() {
    let (old, new) = (Certificates::new(), Certificates::new());
    for each in [&old, &new] {
        each.issue_members("c", &["a", "b"]);
    }
    let at = free_address();
    let (through, record) = recorded(at).await;
    let Pair { a, b, .. } = pair(["a", "b"].map(|n| old.keys(n)), Some(through), at).await;
    frame_flows(&a, &b, "before").await;
    let connections = || record.1.load(Ordering::Relaxed);
    let before = connections();
    let replace = |file: &str| old.replace(file, &new);
    // A key without its certificate stays out.
    replace("b-key.pem");
    event("new TLS keys do not fit").await;
    frame_flows(&a, &b, "the old pair is used").await;
    let dropped = a.counters().dropped_outgoing;
    ["ca.pem", "a.pem", "a-key.pem", "b.pem"].into_iter().for_each(replace);
    event("new connections name=a").await;
    event("new connections name=b").await;
    frame_flows(&a, &b, "the connection stays up").await;
    assert_eq!((a.counters().dropped_outgoing, connections()), (dropped, before));
    b.disconnect().await;
    b.connect().await.unwrap();
    frame_flows(&a, &b, "after a reconnect").await;
}

/// All bytes that were forwarded, and how many connections.
#[derive(Default)]
struct Record(Mutex<Vec<u8>>, AtomicU32);

/// Forwards both ways from the returned address.
async fn recorded(to: SocketAddr) -> (SocketAddr, Arc<Record>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (at, record) = (listener.local_addr().unwrap(), Arc::<Record>::default());
    let recording = record.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            recording.1.fetch_add(1, Ordering::Relaxed);
            let (near, far) = (near.into_split(), far.into_split());
            for (mut from, mut to) in [(near.0, far.1), (far.0, near.1)] {
                let recording = recording.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 65_536];
                    while let Ok(read @ 1..) = from.read(&mut buffer).await {
                        recording.0.lock().unwrap().extend(&buffer[..read]);
                        if to.write_all(&buffer[..read]).await.is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    (at, record)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_capture_contains_neither_secret_nor_frame() {
    let (certificates, secret) = (Certificates::new(), generate_secret());
    let keys = || TlsKeys::secret(certificates.write("secret", &secret));
    let at = free_address();
    let (through, record) = recorded(at).await;
    let Pair { a, b, .. } = pair([keys(), keys()], Some(through), at).await;
    frame_flows(&a, &b, "the text of a frame").await;
    frame_flows(&b, &a, "and of a reply").await;
    let capture = record.0.lock().unwrap().clone();
    assert!(capture.len() > 1_000, "{} bytes", capture.len());
    let digits = |at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap();
    let raw: Vec<u8> = (0..secret.len()).step_by(2).map(digits).collect();
    assert_eq!(raw.len(), 32);
    let texts: [&[u8]; 6] =
        [secret.as_bytes(), &raw, b"the text", b"a reply", b"member.c.gaggle", b"gaggle\x01"];
    for text in texts {
        // The dialling side names its peer before there is a key: server name indication.
        let sni = text == b"member.c.gaggle";
        let found = capture.windows(text.len()).filter(|bytes| bytes == &text).count();
        assert!(found == 0 || sni, "{text:?} is {found} times in the capture");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_two_secrets_do_not_meet() {
    let certificates = Certificates::new();
    let keys =
        ["one", "two"].map(|file| TlsKeys::secret(certificates.write(file, &generate_secret())));
    let Pair { a, b, .. } = pair(keys, None, free_address()).await;
    event("cannot connect to a peer").await;
    event("the other side does not trust our certificate: its authorities, or the secret,").await;
    event("certificate of an unknown authority: not signed by one of tls_ca, or of another").await;
    let frame = Bytes::from_static(b"x");
    a.send(b.name(), frame).unwrap();
    assert_eq!((a.counters().sent, b.counters().received), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_on_one_side_is_named_on_both() {
    Events::of_process();
    let certificates = Certificates::new();
    certificates.issue_members("c", &["a", "b"]);
    for dialling_has_it in [false, true] {
        _ = Events::of_process().take();
        let at = free_address();
        let b = TcpOptions::new(name("b"), at).peer(name("a"), "127.0.0.1:1");
        let a = TcpOptions::new(name("a"), (Ipv4Addr::LOCALHOST, 0).into());
        let a = a.peer(name("b"), at.to_string());
        let (a, b) = match dialling_has_it {
            true => (a.tls("c", certificates.keys("a")), b),
            false => (a, b.tls("c", certificates.keys("b"))),
        };
        let (a, b) = (Tcp::new(a).unwrap(), Tcp::new(b).unwrap());
        b.connect().await.unwrap();
        a.connect().await.unwrap();
        let (here, there) = ("(this one does)", "(the other one does)");
        let (of_a, of_b) = if dialling_has_it { (here, there) } else { (there, here) };
        let dialled = event("cannot connect to a peer").await;
        let accepted = event("refused a connection").await;
        for (event, which) in [(dialled, of_a), (accepted, of_b)] {
            let expected = format!("one side uses TLS, the other does not {which}");
            assert!(event.contains(&expected), "{dialling_has_it}: {event}");
        }
        a.disconnect().await;
        b.disconnect().await;
    }
}
