//! Goal: the exit code is 0 without a violation, 1 if a lock broke a promise or is not there, and 2
//! if the output cannot be written. Method: the built binary with each command and each form of
//! output, into a pipe, a closed pipe and `/dev/full`; locks that fail because a counter is set
//! back.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    fs::File,
    process::{Child, Output, Stdio},
    time::Duration,
};

use gaggle::LockOptions;
use gaggle_fixtures::RedisServer;
use run_support::{text, tool};

/// The standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Pipe,
    /// A pipe whose reader has closed it.
    Closed,
    /// A device without space.
    Full,
}

const OUTS: [Out; 3] = [Out::Pipe, Out::Closed, Out::Full];

fn start(line: &str, out: Out) -> Child {
    let mut command = tool(&line.split_whitespace().collect::<Vec<_>>());
    command.stderr(Stdio::piped()).stdout(match out {
        Out::Pipe | Out::Closed => Stdio::piped(),
        Out::Full => File::create("/dev/full").unwrap().into(),
    });
    let mut child = command.spawn().unwrap();
    if out == Out::Closed {
        drop(child.stdout.take());
    }
    child
}

/// Asserts that a run ends with this code; with 2 where its output cannot be written.
fn assert_code(child: Child, code: i32, line: &str, out: Out) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (printed, err) = (text(&stdout), text(&stderr));
    let (code, is_full) = if out == Out::Full { (2, true) } else { (code, false) };
    assert_eq!(status.code(), Some(code), "{line} into {out:?}: {printed}{err}");
    assert_eq!(err.contains("standard output: No space left"), is_full, "{line}: {err}");
}

/// Asserts that each of these lines ends with this code.
fn end_with(code: i32, lines: &[&str]) {
    for line in lines {
        OUTS.into_iter().for_each(|out| assert_code(start(line, out), code, line, out));
    }
}

#[test]
fn commands_without_a_violation_end_with_0() {
    let lines = [
        "increment --strategy local --increments 2 --work 1ms",
        "increment --strategy local --increments 2 --work 1ms --details",
        "increment --strategy local --increments 2 --work 1ms --json",
        "bench --strategy local --workload handoff --duration 200ms",
        "bench --strategy local --workload handoff --duration 200ms --details",
        "bench --strategy local --workload handoff --duration 200ms --json -",
        "--version",
        "--help",
        "bench -h",
        "increment --help",
        "man",
        "man unlock",
        "completions bash",
        "completions zsh",
        "completions fish",
        #[cfg(feature = "tls")]
        "secret",
    ];
    end_with(0, &lines);
}

#[test]
fn increment_that_loses_updates_ends_with_1() {
    let redis = RedisServer::start();
    let mut runs = Vec::new();
    for form in ["", "--details", "--json"] {
        for out in OUTS {
            let line = "increment --strategy local --increments 40 --work 5ms";
            let line = format!("{line} {form} --redis {}", redis.url());
            runs.push((start(&line, out), line, out));
        }
    }
    // Sets the counters back, which loses updates as a lock without mutual exclusion does.
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    while runs.iter_mut().any(|(run, ..)| run.try_wait().unwrap().is_none()) {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("gaggle:increment:*").query(&mut connection).unwrap();
        for key in keys {
            redis::cmd("SET").arg(key).arg(0).arg("XX").exec(&mut connection).unwrap();
        }
    }
    for (run, line, out) in runs {
        assert_code(run, 1, &line, out);
    }
}

#[test]
fn key_with_a_holder_ends_with_0_and_without_with_1() {
    let redis = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locker = runtime.block_on(gaggle::open(&redis.url())).unwrap();
    let hold = |key: &str| {
        let options = LockOptions::default().duration(Duration::from_secs(120));
        runtime.block_on(async { locker.lock_with(key, options).await.unwrap() })
    };
    let ends_with = |code, line: &str| {
        end_with(code, &[&format!("{line} --url {}", redis.url())]);
    };
    // JSON has a line for each lock: an empty list has none.
    ends_with(0, "list");
    for command in ["inspect k", "unlock --force k"] {
        ends_with(1, command);
        ends_with(1, &format!("{command} --json"));
    }
    let held = hold("k");
    for command in ["list", "list --json", "inspect k", "inspect k --json"] {
        ends_with(0, command);
    }
    ends_with(1, "unlock --force --token 0 k");
    runtime.block_on(held.unlock()).unwrap();
    // Each command ends another hold, also where it cannot print so.
    for form in ["", "--json"] {
        for out in OUTS {
            let key = format!("{out:?}{form}");
            let held = hold(&key);
            let line = format!("unlock --force --url {} {form} -- {key}", redis.url());
            assert_code(start(&line, out), 0, &line, out);
            assert!(runtime.block_on(held.unlock()).is_err(), "{line}: still held");
        }
    }
}

#[test]
fn bench_writes_files_without_a_table() {
    let file = std::env::temp_dir().join(format!("gaggle-full-{}.json", std::process::id()));
    let line = format!("bench --strategy local --duration 200ms --json {}", file.display());
    assert_code(start(&line, Out::Full), 2, &line, Out::Full);
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn full_standard_error_loses_no_results() {
    let mut command = tool(&["bench", "--strategy", "local", "--rounds", "2"]);
    command.args(["--duration", "200ms"]).stderr(File::create("/dev/full").unwrap());
    let Output { status, stdout, .. } = command.output().unwrap();
    assert_eq!((status.code(), stdout.is_empty()), (Some(0), false));
}
