//! Goal: an option of a URL has its effect on what is opened. Method: handles opened by URL, with
//! the option and without it. `src/open/effects.rs` says which test sees which option.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use gaggle::{
    Error, LockOptions, Locker,
    channels::testing::{Certificates, RedisServer, free_port},
    open,
};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A member that can end without a word to the others.
struct Member {
    locker: Locker,
    runtime: Runtime,
}

impl Member {
    /// Members of these URLs, all ready.
    fn open_all<const N: usize>(urls: [String; N]) -> Vec<Self> {
        let open = |url: String| {
            let runtime = runtime();
            let locker = runtime.block_on(open(&url)).unwrap();
            Self { locker, runtime }
        };
        let members: Vec<_> = urls.map(open).into();
        for member in &members {
            member.runtime.block_on(member.locker.ready()).unwrap();
        }
        members
    }

    fn leads(&self) -> bool {
        self.locker.group_status().unwrap().leads
    }

    fn kill(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(10));
    }
}

#[test]
fn election_timeout_delays_the_next_leader() {
    let rest = "members=a,b,c&election_timeout=1500ms..1600ms";
    let url = |name| format!("gaggle+memory://elects?name={name}&{rest}");
    let mut members = Member::open_all(["a", "b", "c"].map(url));
    let leader = members.iter().position(Member::leads).unwrap();
    let began = Instant::now();
    members.remove(leader).kill();
    while !members.iter().any(Member::leads) {
        assert!(began.elapsed() < Duration::from_secs(20), "no leader");
        thread::sleep(Duration::from_millis(5));
    }
    // The last heartbeat was before. The default is at most 300 ms.
    assert!(began.elapsed() > Duration::from_millis(750), "{:?}", began.elapsed());
}

#[test]
fn request_timeout_bounds_an_unlock_of_a_member() {
    let unlock = |option: &str, attempt: u32| {
        let group = format!("gaggle+memory://bound{}-{attempt}", option.len());
        let url = |name| format!("{group}?name={name}&members=a,b{option}");
        let mut members = Member::open_all(["a", "b"].map(url));
        let a = &members[0];
        let guard = a.runtime.block_on(a.locker.lock("k")).unwrap();
        members.pop().unwrap().kill();
        let began = Instant::now();
        let unlocked = members[0].runtime.block_on(guard.unlock());
        let took = began.elapsed();
        assert!(matches!(unlocked, Err(Error::Unknown)), "{unlocked:?}");
        took
    };
    for (option, least, most) in [("&request_timeout=2s", 2000, 3000), ("", 1000, 1500)] {
        // A busy machine may delay some attempts.
        for attempt in 1.. {
            let took = unlock(option, attempt);
            assert!(took >= Duration::from_millis(least), "{option:?}: {took:?}");
            if took < Duration::from_millis(most) {
                break;
            }
            assert!(attempt < 5, "{option:?}: {took:?}");
        }
    }
}

/// The replies to these commands, the last of which ends the connection.
fn replies(server: &RedisServer, commands: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    replies
}

/// How many frames all members have sent.
fn published(server: &RedisServer) -> u64 {
    let stats = replies(server, "INFO commandstats");
    let (_, calls) = stats.split_once("cmdstat_publish:calls=").unwrap();
    calls.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn heartbeat_sets_how_often_members_send() {
    let server = RedisServer::start();
    let rest = "cluster=beats&members=a,b&heartbeat=500ms&election_timeout=2s..3s";
    let url = |name| format!("gaggle+{}?name={name}&{rest}", server.url());
    let members = Member::open_all(["a", "b"].map(url));
    let before = published(&server);
    thread::sleep(Duration::from_secs(3));
    // Six heartbeats and their replies; at the default of 50 ms ten times as many.
    let sent = published(&server) - before;
    assert!((1..=24).contains(&sent), "{sent} frames");
    members.into_iter().for_each(Member::kill);
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
    assert!(opened.is_err(), "that is no Sentinel");
    let login = login.join().unwrap();
    assert!(login.contains("AUTH\r\n$3\r\nshe\r\n$4\r\ns3cr\r\n"), "{login:?}");
    assert!(!login.contains("p4ss"), "{login:?}");
}

#[test]
fn members_meet_with_one_secret_alone() {
    let files = Certificates::new();
    let secret = |name: &str| files.write(name, &name.repeat(32)).display().to_string();
    let urls = |secrets: [String; 2]| {
        let ports = [free_port(), free_port()];
        let peers = format!("a@127.0.0.1:{},b@127.0.0.1:{}", ports[0], ports[1]);
        ["a", "b"].into_iter().zip(ports).zip(secrets).map(move |((name, port), secret)| {
            let rest = format!("cluster=c&name={name}&peers={peers}&secret_file={secret}");
            format!("gaggle+tcp://127.0.0.1:{port}?{rest}")
        })
    };
    let main = runtime();
    let meet = async |secrets, limit| {
        let mut lockers = Vec::new();
        for url in urls(secrets) {
            lockers.push(open(&url).await.unwrap());
        }
        let met = tokio::time::timeout(limit, lockers[0].ready()).await;
        for locker in lockers {
            locker.close().await;
        }
        met.is_ok_and(|ready| ready.is_ok())
    };
    assert!(main.block_on(meet([secret("x"), secret("x")], Duration::from_secs(20))));
    assert!(!main.block_on(meet([secret("x"), secret("y")], Duration::from_secs(1))));
}
