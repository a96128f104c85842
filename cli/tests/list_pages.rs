//! Goal: `gaggle list` shows each held key once, up to its limit, however many pages that takes.
//! Method: the built binary, and a `redis-server` of the test's own that holds more than a page.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use futures_util::future::try_join_all;
use gaggle::LockOptions;
use gaggle_fixtures::RedisServer;
use run_support::tool;
use serde_json::Value;

fn list(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = tool(&["list"]);
    command.args(arguments).env("GAGGLE_URL", url);
    run_support::finish(command)
}

/// Locks and values that are no locks together.
#[tokio::test]
async fn list_shows_no_more_keys_than_its_limit() {
    let redis = RedisServer::start();
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    for (number, bucket) in (0..40 * 16).map(|at| (at / 16, at % 16)) {
        let set = format!("SET gaggle:{{b{bucket}}}:l:z{number} junk\r\n");
        client.write_all(set.as_bytes()).unwrap();
        client.read_exact(&mut [0; b"+OK\r\n".len()]).unwrap();
    }
    let locker = gaggle::open(&redis.url()).await.unwrap();
    let lock = |number| locker.lock(format!("a{number}")).into_future();
    let _guards = try_join_all((0..5).map(lock)).await.unwrap();
    let (code, out, err) = list(&redis.url(), &["--limit", "4"]);
    assert!(code == Some(2) && err.contains("4 keys unreadable"), "{err}");
    assert_eq!(out.lines().filter(|line| line.contains("(unreadable)")).count(), 4, "{out}");
    let (_, out, err) = list(&redis.url(), &["--limit", "4", "--json"]);
    assert_eq!(out.lines().count(), 4, "{out}");
    assert!(err.contains("more than 4 keys"), "{err}");
}

/// Pages of 1,000 keys.
#[tokio::test]
async fn list_goes_on_to_the_next_page() {
    const KEYS: usize = 2_500;
    let redis = RedisServer::start();
    let locker = gaggle::open(&redis.url()).await.unwrap();
    let options = LockOptions::default().duration(Duration::from_secs(60));
    let lock = |number| locker.lock_with(format!("jobs/{number}"), options.clone()).into_future();
    let guards = try_join_all((0..KEYS).map(lock)).await.unwrap();
    let mut expected: Vec<_> = guards.iter().map(|guard| guard.key().to_string()).collect();
    expected.sort();
    let keys = |limit: &str| {
        let (code, out, err) = list(&redis.url(), &["--json", "--limit", limit]);
        assert_eq!(code, Some(0), "{err}");
        let key =
            |line| serde_json::from_str::<Value>(line).unwrap()["key"].as_str().unwrap().into();
        let mut found: Vec<String> = out.lines().map(key).collect();
        found.sort();
        (found, err)
    };
    assert_eq!(keys("2500"), (expected.clone(), String::new()));
    for limit in [1, 999, 1_000, 1_001, 2_499] {
        let (found, err) = keys(&limit.to_string());
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (limit, limit));
        assert!(distinct.iter().all(|key| expected.binary_search(key).is_ok()), "{found:?}");
        assert!(err.contains("--limit"), "{err}");
    }
}

#[test]
fn small_limit_reads_the_database_in_large_steps() {
    let redis = RedisServer::start();
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    let mut ask = |line: &str| {
        client.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let (mut reply, mut part) = (Vec::new(), [0; 4_096]);
        while !reply.ends_with(b"\r\n") {
            let read = client.read(&mut part).unwrap();
            reply.extend(&part[..read]);
        }
        String::from_utf8(reply).unwrap()
    };
    for number in 0..2_000 {
        ask(&format!("SET other:{number} 1"));
    }
    let (code, out, err) = list(&redis.url(), &["--limit", "1"]);
    assert!(code == Some(0) && out == "no key is held\n", "{err}");
    let counts = ask("INFO commandstats");
    let (_, scans) = counts.split_once("cmdstat_scan:calls=").unwrap();
    let (scans, _) = scans.split_once(',').unwrap();
    assert!(scans.parse::<u32>().unwrap() < 10, "{scans} SCANs for 2,000 keys");
}
