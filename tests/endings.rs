//! Goal: a guard that is dropped as its program ends leaves its key free (contract, rule 11).
//! Method: a process for each way to end, in both flavors of the runtime. It locks a key for a
//! minute and ends. The key must then be free within 100 ms.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use gaggle::{Error, LockOptions, Locker, open};
use gaggle_fixtures::{Certificates, RedisServer, free_port};
use tokio::runtime::{Builder, Runtime};

/// The environment variable with what [`program`] does: flavor, ending and URL.
const TASK: &str = "GAGGLE_ENDING";
const FLAVORS: [&str; 2] = ["current", "multi"];
const ENDINGS: [&str; 6] = ["scope", "error", "panic", "drop", "both", "exit"];
/// How long the key may stay locked.
const FREE_WITHIN: Duration = Duration::from_millis(100);

fn runtime(flavor: &str) -> Runtime {
    let mut builder = match flavor {
        "current" => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.enable_all().build().unwrap()
}

/// A program that locks a key and ends, as one with `#[tokio::main]` does.
#[test]
#[ignore = "a program that the other tests start"]
fn program() {
    let task = std::env::var(TASK).unwrap();
    let [flavor, ending, url] = task.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        panic!("{task}")
    };
    let ended = runtime(flavor).block_on(locks_and_ends(ending, url));
    assert_eq!(ended.is_err(), ending == "error");
}

async fn locks_and_ends(ending: &str, url: &str) -> Result<(), Error> {
    let locker = follower(url).await;
    let options = LockOptions::default().duration(Duration::from_secs(60));
    let guard = locker.lock_with("k", options).await?;
    println!("locked");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    match ending {
        "error" => return Err(Error::Closed),
        "panic" => panic!("the program fails"),
        "drop" => drop(guard),
        "both" => {
            drop(locker);
            drop(guard);
        }
        "exit" => {
            drop(guard);
            std::process::exit(0);
        }
        _ => {}
    }
    Ok(())
}

/// A strategy that does not lead its group: without its leader a group first elects another one.
async fn follower(url: &str) -> Locker {
    loop {
        let locker = open(url).await.unwrap();
        locker.ready().await.unwrap();
        if !locker.group_status().is_some_and(|status| status.leads) {
            return locker;
        }
        locker.close().await;
    }
}

fn start(flavor: &str, ending: &str, url: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--ignored", "--nocapture"])
        .env(TASK, format!("{flavor} {ending} {url}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("locked") {
        line.clear();
        assert_ne!(out.read_line(&mut line).unwrap(), 0, "{flavor} {ending} {url} does not lock");
    }
    (child, out)
}

/// Each program ends, and `locker` then gets the key.
async fn key_is_free_after(endings: &[&str], url: &str, locker: &Locker) {
    for (flavor, ending) in
        FLAVORS.iter().flat_map(|flavor| endings.iter().map(move |ending| (flavor, ending)))
    {
        let (mut child, mut out) = start(flavor, ending, url);
        let options = || LockOptions::default().max_wait(FREE_WITHIN);
        let held = locker.lock_with("k", options()).try_now().await;
        assert!(matches!(held, Err(Error::Held(_))), "{flavor} {ending}: {held:?}");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        out.read_to_end(&mut Vec::new()).unwrap();
        child.wait().unwrap();
        let free = locker.lock_with("k", options()).await;
        assert!(free.is_ok(), "{flavor} {ending} on {url}: {free:?}");
        free.unwrap().unlock().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ending_frees_a_key_on_redis() {
    let server = RedisServer::start();
    let locker = open(&server.url()).await.unwrap();
    key_is_free_after(&ENDINGS, &server.url(), &locker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ending_frees_a_key_on_redis_over_tls() {
    let (certificates, port) = (Certificates::new(), free_port());
    let server = RedisServer::start_tls(&certificates, port);
    let locker = open(&server.url()).await.unwrap();
    let authority = certificates.path("ca.pem");
    let url = format!("rediss://localhost:{port}/?tls_ca={}", authority.display());
    key_is_free_after(&ENDINGS, &url, &locker).await;
}

/// Two members here, and the URL of a third. `tls` returns the options of a member.
async fn group(tls: impl Fn(&str) -> String) -> ([Locker; 2], String) {
    let names = ["a", "b", "c"].map(|name| (name, free_port()));
    let peers = names.map(|(name, port)| format!("{name}@127.0.0.1:{port}")).join(",");
    let url = |at: usize| {
        let (name, port) = names[at];
        format!(
            "gaggle+tcp://127.0.0.1:{port}?cluster=endings&name={name}&peers={peers}{}",
            tls(name)
        )
    };
    ([open(&url(0)).await.unwrap(), open(&url(1)).await.unwrap()], url(2))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_ending_of_a_follower_frees_a_key() {
    let ([a, _b], c) = group(|_| String::new()).await;
    key_is_free_after(&ENDINGS, &c, &a).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ending_of_a_follower_frees_a_key_over_tls() {
    let certificates = Certificates::new();
    certificates.issue_members("endings", &["a", "b", "c"]);
    let ([a, _b], c) = group(|name| format!("&{}", certificates.url_options(name))).await;
    key_is_free_after(&["scope", "exit"], &c, &a).await;
}
