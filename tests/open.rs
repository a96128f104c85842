//! Goal: every kind of URL opens what the table of `gaggle::open` says, each option has its effect
//! on that, and a wrong one is a typed error without the password.
//! Method: one lock and unlock through each; a `redis-server` of the test's own.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]
#![allow(clippy::disallowed_methods, reason = "a thread of a test plays a Sentinel")]

use std::{io::Read as _, net::TcpListener, thread, time::Duration};

use futures_util::FutureExt;
use gaggle::{Error, Exclusion, LockOptions, Locker, OpenError, Order, open};
use gaggle_fixtures::{Certificates, RedisServer, free_port};
use rustix::process::{Pid, Signal, kill_process};

async fn locks(locker: &Locker) {
    let options = LockOptions::default().max_wait(Duration::from_secs(20));
    let guard = locker.lock_with("k", options).await.unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
}

/// All members of a cluster lock; then all are closed.
async fn cluster(urls: &[String]) {
    let mut members = Vec::new();
    for url in urls {
        members.push(open(url).await.unwrap());
    }
    for member in &members {
        member.ready().await.unwrap();
        locks(member).await;
    }
    for member in &members {
        member.close().await;
        assert!(matches!(member.lock("k").await, Err(Error::Closed)));
    }
}

#[tokio::test]
async fn local_opens_a_table_of_its_own_each_time() {
    let (one, other) = (open("local:").await.unwrap(), open("local:").await.unwrap());
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    let held = one.clone().lock_with("k", LockOptions::default()).try_now().await;
    assert!(matches!(held, Err(Error::Held(_))), "clones share it: {held:?}");
    guard.unlock().await.unwrap();
    assert_eq!(one.capabilities().order, Order::Fifo);
}

#[tokio::test]
async fn noop_opens_and_promises_nothing() {
    let noop = open("noop:").await.unwrap();
    locks(&noop).await;
    assert_eq!(noop.capabilities().exclusion, Exclusion::Never);
}

#[tokio::test]
async fn redis_opens_with_its_options() {
    let server = RedisServer::start();
    let one = open(&format!("{}?namespace=one", server.url())).await.unwrap();
    let other = open(&format!("{}?namespace=other&queue=none", server.url())).await.unwrap();
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    guard.unlock().await.unwrap();
    assert_eq!((one.capabilities().strategy, one.capabilities().order), ("redis", Order::Fifo));
    assert_eq!(other.capabilities().order, Order::None);
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn redis_opens_over_a_unix_socket() {
    let server = RedisServer::start();
    let socket = server.socket();
    let url = |rest: &str| format!("redis+unix://{}?{rest}", socket.display());
    let (one, other) = (open(&url("db=1")).await.unwrap(), open(&url("db=2")).await.unwrap());
    let guard = one.lock("k").await.unwrap();
    locks(&other).await;
    let same = open(&format!("{}1", server.url())).await.unwrap();
    let held = same.lock_with("k", LockOptions::default()).try_now().await;
    assert!(matches!(held, Err(Error::Held(_))), "the same database over TCP: {held:?}");
    guard.unlock().await.unwrap();
    let denied = open(&url("user=unknown&pass=hunter2")).await.unwrap_err();
    let OpenError::Strategy(error) = denied else { panic!("{denied:?}") };
    assert!(error.is_permanent(), "user and password are sent: {error:?}");
    for locker in [one, other, same] {
        locker.close().await;
    }
}

/// The reply of a server that stands still comes after any timeout.
#[tokio::test]
async fn request_timeout_bounds_an_unlock() {
    let server = RedisServer::start();
    let pid = Pid::from_raw(i32::try_from(server.pid().unwrap()).unwrap()).unwrap();
    let unlock = async |option| {
        let locker = open(&format!("{}?{option}", server.url())).await.unwrap();
        let guard = locker.lock("k").await.unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let before = tokio::time::Instant::now();
        let unlocked = guard.unlock().await;
        let took = before.elapsed();
        kill_process(pid, Signal::CONT).unwrap();
        assert!(matches!(unlocked, Err(Error::Unknown)), "{unlocked:?}");
        locker.close().await;
        took
    };
    for (option, least, most) in [("request_timeout=2s", 2000, 3000), ("", 1000, 1500)] {
        // A busy machine may delay some attempts.
        for attempt in 1.. {
            let took = unlock(option).await;
            assert!(took >= Duration::from_millis(least), "{option:?}: {took:?}");
            if took < Duration::from_millis(most) {
                break;
            }
            assert!(attempt < 5, "{option:?}: {took:?}");
        }
    }
}

#[tokio::test]
async fn outside_max_of_a_url_bounds_the_leases() {
    let url = "gaggle+memory://outside_max?name=a&members=a&outside_max=2s";
    let member = open(url).await.unwrap();
    let lease = |seconds| LockOptions::default().duration(Duration::from_secs(seconds));
    let refused = member.lock_with("k", lease(3)).await;
    assert!(matches!(refused, Err(Error::InvalidOptions { field: "duration", .. })), "{refused:?}");
    let longest = lease(2).max_wait(Duration::from_secs(20));
    drop(member.lock_with("k", longest).await.unwrap());
    member.close().await;
}

#[test]
fn open_outside_a_runtime_is_an_error() {
    let server = RedisServer::start();
    let member = "gaggle+memory://outside?name=a&members=a";
    for url in [member, server.url().as_str()] {
        let opened = open(url).now_or_never().expect("nothing to wait for");
        let Err(OpenError::Strategy(error)) = opened else { panic!("{url}: {opened:?}") };
        assert!(error.is_permanent(), "{url}: {error:?}");
    }
    open("local:").now_or_never().expect("nothing to wait for").unwrap();
}

#[tokio::test]
async fn locker_knows_its_groups_status() {
    let local = open("local:").await.unwrap();
    assert_eq!(local.group_status(), None);
    let urls = ["a", "b"].map(|me| format!("gaggle+memory://status?name={me}&members=a,b"));
    let (a, b) = (open(&urls[0]).await.unwrap(), open(&urls[1]).await.unwrap());
    assert!(!a.group_status().unwrap().ready);
    a.ready().await.unwrap();
    b.ready().await.unwrap();
    let (seen_by_a, seen_by_b) = (a.group_status().unwrap(), b.group_status().unwrap());
    assert!(seen_by_a.ready && seen_by_b.ready && seen_by_a.term > 0);
    assert_eq!((seen_by_a.leader, seen_by_a.term), (seen_by_b.leader, seen_by_b.term));
    assert!(seen_by_a.leads != seen_by_b.leads);
    a.close().await;
    b.close().await;
}

#[tokio::test]
async fn members_meet_over_memory_tcp_and_redis() {
    let names = ["a", "b", "c"];
    let memory = |name| format!("gaggle+memory://meet?name={name}&members=a,b,c");
    cluster(&names.map(memory)).await;

    let ports = names.map(|_| free_port());
    let peers =
        [0, 1, 2].map(|node| format!("{}@localhost:{}", names[node], ports[node])).join(",");
    let tcp = |node: usize| {
        let (name, port) = (names[node], ports[node]);
        format!("gaggle+tcp://localhost:{port}?cluster=meet&name={name}&peers={peers}")
    };
    cluster(&[0, 1, 2].map(tcp)).await;

    let server = RedisServer::start();
    let redis = |name| {
        let server = server.url();
        format!("raft+{server}?cluster=meet&name={name}&members=a,b,c&heartbeat=40ms")
    };
    cluster(&names.map(redis)).await;
}

#[tokio::test]
async fn member_names_its_redis_and_the_cause() {
    let member = |login: &str, port: u16| {
        format!("gaggle+redis://{login}127.0.0.1:{port}/?cluster=c&name=a&members=a")
    };
    let server = RedisServer::start();
    let (closed, port) = (free_port(), server.port());
    let refused = format!("Redis at 127.0.0.1:{port} refused the user name or the password");
    for (url, text, permanent) in [
        (
            member("", closed),
            format!("cannot reach Redis at 127.0.0.1:{closed}: connection refused"),
            false,
        ),
        (member("unknown:secret@", port), refused, true),
    ] {
        let Err(OpenError::Strategy(error)) = open(&url).await else { panic!("{url} opened") };
        assert_eq!((error.to_string(), error.is_permanent()), (text, permanent));
    }
}

#[tokio::test]
async fn tcp_beyond_loopback_needs_insecure() {
    let url = "gaggle+tcp://0.0.0.0:0?cluster=c&name=a&peers=a@127.0.0.1:1";
    let refused = open(url).await.unwrap_err();
    assert!(matches!(refused, OpenError::InvalidUrl { .. }), "no option is wrong: {refused:?}");
    assert!(refused.to_string().contains("insecure=true"), "{refused}");
    open(&format!("{url}&insecure=true")).await.unwrap().close().await;
}

#[tokio::test]
async fn option_refused_by_the_strategy_is_named() {
    let error = open("gaggle+memory://d?name=a&members=a&heartbeat=10s").await.unwrap_err();
    assert!(matches!(error, OpenError::InvalidOption { option: "heartbeat", .. }), "{error}");
    let peers: Vec<_> = (0..32).map(|number| format!("p{number}@127.0.0.1:1")).collect();
    let peers = peers.join(",");
    let url = format!("gaggle+tcp://127.0.0.1:1?cluster=c&name=p0&peers={peers}");
    let error = open(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::InvalidOption { option: "peers", .. }), "{error}");
    let url = "gaggle+memory://d?name=a&members=a&heartbeat=1s&election_timeout=1s..2s";
    match open(url).await {
        Err(error @ OpenError::InvalidOption { option: "election_timeout", .. }) => {
            assert!(error.to_string().contains("three heartbeats"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// The strategy or the channel refuses it.
#[tokio::test]
async fn refused_field_is_named_as_in_the_url() {
    let cluster = "x".repeat(65);
    let files = "tls_ca=/none&tls_cert=/none&tls_key=/none";
    for (url, problem) in [
        (
            format!("gaggle+memory://{cluster}?name=a&members=a"),
            "invalid URL: the cluster's name: the limit is 1 to 64 bytes; ",
        ),
        (
            format!("gaggle+redis://127.0.0.1:1?cluster={cluster}&name=a&members=a"),
            "option cluster: 65 bytes, the limit is 1 to 64; ",
        ),
        ("rediss://127.0.0.1:1?tls_ca=/none".into(), "option tls_ca: /none: No such file"),
        (
            format!("gaggle+tcp://127.0.0.1:0?cluster=c&name=a&peers=a@127.0.0.1:1&{files}"),
            "option tls_ca: /none: No such file",
        ),
    ] {
        let error = open(&url).await.unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

#[tokio::test]
async fn eviction_is_accepted_if_it_is_allowed() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let refused = open(&server.url()).await.unwrap_err();
    assert!(refused.to_string().contains("allow_eviction=true"), "{refused}");
    let locker = open(&format!("{}?allow_eviction=true", server.url())).await.unwrap();
    locker.lock("k").await.unwrap().unlock().await.unwrap();
    locker.close().await;
}

#[tokio::test]
async fn grant_without_its_replica_is_not_reported() {
    let server = RedisServer::start_with(&[]);
    let locker = open(&format!("{}?replicas=1", server.url())).await.unwrap();
    let refused = locker.lock_with("k", LockOptions::default()).try_now().await.unwrap_err();
    assert!(refused.to_string().starts_with("fewer than 1 replicas of Redis at "), "{refused}");
    locker.close().await;
}

/// Each of the files is needed, and the name: the server asks for a certificate, and its own is
/// for another name than its address.
#[tokio::test]
async fn redis_over_tls_needs_each_file_and_name() {
    let (certificates, port) = (Certificates::new(), free_port());
    certificates.issue("server", "redis.example");
    certificates.issue("client", "client.example");
    let path = |file: &str| certificates.path(file).display().to_string();
    let (tls_port, ca) = (port.to_string(), path("ca.pem"));
    let (cert, key) = (path("server.pem"), path("server-key.pem"));
    let files = ["--tls-ca-cert-file", &ca, "--tls-cert-file", &cert, "--tls-key-file", &key];
    let listens = ["--tls-port", &tls_port, "--tls-auth-clients", "yes"];
    let _server = RedisServer::start_with(&[&listens[..], &files].concat());
    let (cert, key) = (path("client.pem"), path("client-key.pem"));
    let parts = [
        format!("tls_ca={ca}"),
        format!("tls_cert={cert}&tls_key={key}"),
        "tls_name=redis.example".to_owned(),
    ];
    let url = |parts: &[String]| format!("rediss://127.0.0.1:{port}/?{}", parts.join("&"));
    let locker = open(&url(&parts)).await.unwrap();
    locker.lock("k").await.unwrap().unlock().await.unwrap();
    locker.close().await;
    for missing in 0..parts.len() {
        let mut parts = parts.to_vec();
        let part = parts.remove(missing);
        let opened = open(&url(&parts)).await;
        assert!(opened.is_err(), "without {part}");
    }
}

#[tokio::test]
async fn sentinels_get_their_own_login() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let login = thread::spawn(move || {
        let mut first = [0; 512];
        let bytes = listener.accept().unwrap().0.read(&mut first).unwrap();
        String::from_utf8_lossy(&first[..bytes]).into_owned()
    });
    let login_of = "sentinel_user=she&sentinel_password=s3cr";
    let opened = open(&format!("redis+sentinel://me:p4ss@127.0.0.1:{port}/main?{login_of}")).await;
    assert!(opened.is_err(), "a server that is not a Sentinel");
    let login = login.join().unwrap();
    assert!(login.contains("AUTH\r\n$3\r\nshe\r\n$4\r\ns3cr\r\n"), "{login:?}");
    assert!(!login.contains("p4ss"), "{login:?}");
}

#[tokio::test]
async fn members_meet_with_matching_keys_alone() {
    let (files, foreign) = (Certificates::new(), Certificates::new());
    for each in [&files, &foreign] {
        each.issue_members("c", &["a", "b"]);
    }
    let secret =
        |name: &str| format!("secret_file={}", files.write(name, &name.repeat(32)).display());
    let urls = |keys: [String; 2]| {
        let ports = [free_port(), free_port()];
        let peers = format!("a@127.0.0.1:{},b@127.0.0.1:{}", ports[0], ports[1]);
        ["a", "b"].into_iter().zip(ports).zip(keys).map(move |((name, port), keys)| {
            let rest = format!("cluster=c&name={name}&peers={peers}&{keys}");
            format!("gaggle+tcp://127.0.0.1:{port}?{rest}")
        })
    };
    let meet = async |keys, limit| {
        let mut lockers = Vec::new();
        for url in urls(keys) {
            lockers.push(open(&url).await.unwrap());
        }
        let met = tokio::time::timeout(limit, lockers[0].ready()).await;
        for locker in lockers {
            locker.close().await;
        }
        met.is_ok_and(|ready| ready.is_ok())
    };
    let (a, b) = (files.url_options("a"), files.url_options("b"));
    for keys in [[secret("x"), secret("x")], [a.clone(), b]] {
        assert!(meet(keys, Duration::from_secs(20)).await);
    }
    for keys in [[secret("x"), secret("y")], [a, foreign.url_options("b")]] {
        assert!(!meet(keys, Duration::from_secs(1)).await);
    }
}
