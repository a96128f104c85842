//! Goal: members that speak TLS serve while certificates are replaced.
//!
//! Method: three members over TCP, opened by URL; every file is replaced by one of another
//! authority under load; then a member restarts with the new files.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{collections::BTreeMap, fs, time::Duration};

use gaggle::{
    Locker,
    channels::testing::{Certificates, free_port},
    open,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn certificates() -> Certificates {
    let certificates = Certificates::new();
    for name in NAMES {
        certificates.issue(name, &format!("{name}.member.orders.gaggle"));
    }
    certificates
}

/// Replaces a file at once, as `mv` does.
fn replace(old: &Certificates, new: &Certificates, file: &str) {
    let beside = old.path(&format!("{file}.new"));
    fs::copy(new.path(file), &beside).unwrap();
    fs::rename(beside, old.path(file)).unwrap();
}

/// Locks and unlocks until then. Returns how often.
async fn load(locker: Locker, key: &'static str, until: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < until {
        locker.lock(key).await.unwrap().unlock().await.unwrap();
        count += 1;
        sleep(Duration::from_millis(2)).await;
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_under_load() {
    let (files, new) = (certificates(), certificates());
    let ports: BTreeMap<&str, u16> = NAMES.map(|name| (name, free_port())).into();
    let peers: Vec<String> =
        ports.iter().map(|(name, port)| format!("{name}@127.0.0.1:{port}")).collect();
    let url = |name: &str| {
        let [ca, cert, key] = ["ca.pem", &format!("{name}.pem"), &format!("{name}-key.pem")]
            .map(|file| files.path(file).display().to_string());
        format!(
            "gaggle+tcp://127.0.0.1:{}?cluster=orders&name={name}&peers={}\
             &tls_ca={ca}&tls_cert={cert}&tls_key={key}",
            ports[name],
            peers.join(",")
        )
    };
    let mut lockers = Vec::new();
    for name in NAMES {
        lockers.push(open(&url(name)).await.unwrap());
    }
    for locker in &lockers {
        locker.ready().await.unwrap();
    }
    let term = |locker: &Locker| locker.group_status().unwrap().term;
    let before = term(&lockers[0]);
    let (mut tasks, until) = (JoinSet::new(), Instant::now() + Duration::from_secs(24));
    for (locker, key) in lockers.iter().zip(["one", "two", "two"]) {
        tasks.spawn(load(locker.clone(), key, until));
    }
    sleep(Duration::from_secs(1)).await;
    for name in NAMES {
        replace(&files, &new, &format!("{name}-key.pem"));
        replace(&files, &new, &format!("{name}.pem"));
    }
    replace(&files, &new, "ca.pem");
    while let Some(count) = tasks.join_next().await {
        let count = count.unwrap();
        assert!(count > 500, "{count} locks");
    }
    assert_eq!(term(&lockers[0]), before, "no election");
    let c = lockers.pop().unwrap();
    c.close().await;
    let c = open(&url("c")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), c.ready()).await.unwrap().unwrap();
    c.lock("one").await.unwrap().unlock().await.unwrap();
}
