//! Goal: an option of a URL has its effect on what is opened. Method: handles opened by URL, with
//! the option and without it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{io::Read as _, net::TcpListener, thread, time::Duration};

use gaggle::{LockOptions, open};
use gaggle_fixtures::{Certificates, RedisServer, free_port};

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
