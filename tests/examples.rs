//! Goal: the examples do what they say. Method: each built example runs to its end, beside a Redis
//! of its own where it needs one, and its output is compared.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use gaggle_fixtures::RedisServer;

/// `target/PROFILE/examples/NAME`. Cargo builds all examples with all tests of the package, and
/// none for this test alone.
fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "build it first: cargo build --examples --all-features");
    path
}

/// The lines that `example` writes.
fn output(example: &mut Command) -> Vec<String> {
    let output = example.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example:?}: {}\n{text}\n{errors}", output.status);
    text.lines().map(str::to_owned).collect()
}

fn run(name: &str) -> Vec<String> {
    output(&mut Command::new(path(name)))
}

fn run_on_redis(name: &str) -> Vec<String> {
    let server = RedisServer::start();
    output(Command::new(path(name)).env("REDIS_URL", server.url()))
}

/// The words of the documented `ACL SETUSER`, with this password.
fn documented_acl(password: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, line) = page.split_once("```text\nACL SETUSER").unwrap();
    let (line, _) = line.split_once("```").unwrap();
    assert_eq!(line.trim().lines().count(), 1, "redis-cli takes one line");
    line.replace("PASSWORD", password).split_whitespace().map(str::to_owned).collect()
}

/// The number at the end of a line.
fn last_number(line: &str) -> u64 {
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn local_loses_no_increment() {
    assert_eq!(run("local"), ["10 increments, counter is 10"]);
}

#[test]
fn redis_locks_inspects_and_unlocks() {
    let lines = run_on_redis("redis");
    assert!(last_number(&lines[0]) > 0, "{lines:?}");
    assert!(lines[1].starts_with("holder: Some(\"example\"), pid "), "{lines:?}");
    assert!(lines[2].starts_with("second request: "), "{lines:?}");
    assert_eq!(lines[3], "unlocked");
}

#[test]
fn cluster_continues_without_its_leader() {
    let lines = run("cluster");
    assert_eq!(lines[..3], ["a is ready", "b is ready", "c is ready"]);
    assert_eq!(lines[6], "the leader left");
    let locked = [&lines[3..6], &lines[7..]].concat();
    let tokens: Vec<u64> = locked.iter().map(|line| last_number(line)).collect();
    assert_eq!(tokens.len(), 5, "{lines:?}");
    assert!(tokens.is_sorted_by(|a, b| a < b), "{lines:?}");
}

#[test]
fn critical_section_ends_with_its_lock() {
    let expected =
        ["finished: 42", "dropped: the lease ended first", "finished: work of three leases"];
    assert_eq!(run("critical_section"), expected);
}

#[test]
fn leader_election_has_one_leader_at_a_time() {
    let server = RedisServer::start();
    let lines = output(Command::new(path("leader_election")).arg(server.url()));
    assert_eq!(lines.len(), 4, "{lines:?}");
    let name = |line: &str| line.split(' ').next().unwrap().to_owned();
    assert_eq!(lines[1], format!("{} steps down", name(&lines[0])));
    assert_eq!(lines[3], format!("{} steps down", name(&lines[2])));
    assert!(last_number(&lines[0]) < last_number(&lines[2]), "{lines:?}");
}

#[test]
fn run_once_runs_one_of_four() {
    let mut lines = run("run_once");
    assert_eq!(lines.pop().unwrap(), "replica 4: it is done");
    assert_eq!(lines.iter().filter(|line| line.ends_with(": runs it")).count(), 1, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("another")).count(), 2, "{lines:?}");
}

#[test]
fn receiver_unlocks_a_transferred_lock() {
    let lines = run_on_redis("transfer_a_lock");
    assert_eq!(last_number(&lines[0]), last_number(&lines[1]));
    assert_eq!(lines[2..], ["process 2 unlocked", "process 1 finds the key free: true"]);
}

#[test]
fn fenced_resource_refuses_a_late_write() {
    let lines = run_on_redis("fenced_write");
    assert_eq!(lines[0], "first holder: lock valid: false");
    assert!(lines[1].contains("a later holder was here"), "{lines:?}");
    assert_eq!(lines[2], "value: by the second holder");
}

#[test]
fn custom_strategy_counts_grants() {
    assert_eq!(run("custom_strategy"), ["{\"orders/42\": 2, \"orders/7\": 1}"]);
}

#[test]
fn axum_service_serves_and_shuts_down() {
    assert_eq!(run("axum_service"), ["8 requests, the value is 8"]);
}

#[test]
fn blocking_work_keeps_its_lock() {
    let server = RedisServer::start();
    for url in ["local:", &server.url()] {
        let lines = output(Command::new(path("blocking")).arg(url));
        let token = last_number(&lines[0]);
        let page = |page: u32| format!("page {page}, token {token}");
        assert_eq!(lines, [page(1), page(2), page(3), "3 pages".into()]);
    }
}

#[test]
fn reentrant_lock_counts_until_its_loss() {
    let expected = [
        "locked 1 times",
        "locked 2 times",
        "the longer lease counts: true",
        "another task: false",
        "1 left",
        "another task: false",
        "0 left",
        "locked 1 times",
        "locked 2 times",
        "after the loss: the lease expired before this call, another acquisition may hold the key",
        "after the loss: the lock was lost before this call, another acquisition may hold the key",
        "locked 1 times",
    ];
    assert_eq!(run("reentrant"), expected);
}

/// A free key, a queue with a publication, and a lock that another process extends.
#[test]
fn documented_acl_line_is_sufficient() {
    let server = RedisServer::start();
    let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    redis::cmd("ACL").arg("SETUSER").arg(documented_acl("pw")).exec(&mut admin).unwrap();

    let url = format!("redis://gaggle:pw@127.0.0.1:{}/", server.port());
    for name in ["redis", "transfer_a_lock"] {
        output(Command::new(path(name)).env("REDIS_URL", &url));
    }
    output(Command::new(path("leader_election")).arg(&url));

    // The examples do not reach all commands of the scripts.
    let scripts =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/strategies/src/redis")).unwrap();
    let scripts = scripts.map(|entry| entry.unwrap().path());
    for script in scripts.filter(|path| path.extension().is_some_and(|it| it == "lua")) {
        for call in fs::read_to_string(script).unwrap().split("call('").skip(1) {
            let right = format!("+{}", call.split('\'').next().unwrap().to_lowercase());
            assert!(documented_acl("pw").contains(&right), "{right} is missing");
        }
    }

    let denied: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query(&mut admin).unwrap();
    assert!(denied.is_empty(), "{denied:?}");
}
