//! Goal: members that speak TLS serve while their certificates are replaced, and while strangers
//! flood a port.
//!
//! Method: three members over TCP, opened by URL. The member whose memory is read is a process of
//! its own: this binary again.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use gaggle::{
    Locker,
    channels::testing::{Certificates, Strangers, free_port},
    open,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// The URL of the member that this process is.
const MEMBER: &str = "GAGGLE_TEST_MEMBER";

fn certificates() -> Certificates {
    let certificates = Certificates::new();
    certificates.issue_members("orders", &NAMES);
    certificates
}

/// The members of a group and their files.
struct Group {
    files: Certificates,
    ports: BTreeMap<&'static str, u16>,
}

impl Group {
    fn new() -> Self {
        Self { files: certificates(), ports: NAMES.map(|name| (name, free_port())).into() }
    }

    fn url(&self, name: &str) -> String {
        let port = self.ports[name];
        let peers = self.ports.iter().map(|(name, port)| format!("{name}@127.0.0.1:{port}"));
        format!(
            "gaggle+tcp://127.0.0.1:{port}?cluster=orders&name={name}&peers={}&{}",
            peers.collect::<Vec<_>>().join(","),
            self.files.url_options(name)
        )
    }

    async fn open(&self, names: &[&str]) -> Vec<Locker> {
        let mut lockers = Vec::new();
        for name in names {
            lockers.push(open(&self.url(name)).await.unwrap());
        }
        lockers
    }
}

fn term(locker: &Locker) -> u64 {
    locker.group_status().unwrap().term
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
    let (group, new) = (Group::new(), certificates());
    let mut lockers = group.open(&NAMES).await;
    for locker in &lockers {
        locker.ready().await.unwrap();
    }
    let before = term(&lockers[0]);
    let (mut tasks, until) = (JoinSet::new(), Instant::now() + Duration::from_secs(24));
    for (locker, key) in lockers.iter().zip(["one", "two", "two"]) {
        tasks.spawn(load(locker.clone(), key, until));
    }
    sleep(Duration::from_secs(1)).await;
    for name in NAMES {
        group.files.replace(&format!("{name}-key.pem"), &new);
        group.files.replace(&format!("{name}.pem"), &new);
    }
    group.files.replace("ca.pem", &new);
    while let Some(count) = tasks.join_next().await {
        let count = count.unwrap();
        assert!(count > 500, "{count} locks");
    }
    assert_eq!(term(&lockers[0]), before, "no election");
    lockers.pop().unwrap().close().await;
    let c = open(&group.url("c")).await.unwrap();
    timeout(Duration::from_secs(10), c.ready()).await.unwrap().unwrap();
    c.lock("one").await.unwrap().unlock().await.unwrap();
}

/// A member in a process of its own, which ends with this.
struct Process(Child);

impl Process {
    /// Returns when it votes.
    async fn start(url: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child_process_is_a_member", "--nocapture"])
            .env(MEMBER, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Self(child);
        let ready = move || lines.any(|line| line.unwrap().contains("ready"));
        assert!(tokio::task::spawn_blocking(ready).await.unwrap(), "it ended early");
        process
    }

    /// Its memory in KiB.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs until it is ended; the test below starts it"]
async fn child_process_is_a_member() {
    let url = std::env::var(MEMBER).unwrap();
    let locker = open(&url).await.unwrap();
    locker.ready().await.unwrap();
    println!("ready");
    loop {
        locker.lock("its key").await.unwrap().unlock().await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooded_member_restarts_and_is_soon_ready() {
    let group = Group::new();
    let others = group.open(&["a", "c"]).await;
    let url = group.url("b");
    let b = Process::start(&url).await;
    sleep(Duration::from_secs(2)).await;
    let before = b.memory();
    let strangers = Strangers::flood(([127, 0, 0, 1], group.ports["b"]).into());
    sleep(Duration::from_secs(1)).await;
    drop(b);
    let begun = Instant::now();
    let b = timeout(Duration::from_secs(20), Process::start(&url)).await.unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    let mut most = 0;
    for _ in 0..30 {
        sleep(Duration::from_millis(100)).await;
        most = most.max(b.memory());
    }
    assert!(strangers.closed() > 256, "{} were closed", strangers.closed());
    let more = most.saturating_sub(before);
    assert!(more <= 16 << 10, "{more} KiB more than {before}");
    for other in others {
        other.lock("a key").await.unwrap().unlock().await.unwrap();
    }
}
