//! Goal: `gaggle run` starts and gives up in time, whatever it inherits. Method: the built binary,
//! a `redis-server` of the test's own that is stopped or busy, and a parent that blocks signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

mod run_support;

use std::{
    io::Read as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gaggle_channels::testing::RedisServer;
use nix::sys::signal::SigSet;
use rustix::process::{Signal, kill_process};

use run_support::{Running, finish, gaggle, pid};

#[test]
fn max_wait_bounds_connecting() {
    let redis = RedisServer::start();
    kill_process(pid(&redis.pid().unwrap().to_string()), Signal::STOP).unwrap();
    let started = Instant::now();
    let (code, _, err) = finish(gaggle(&redis.url(), &["--max-wait", "100ms", "k", "--", "true"]));
    let took = started.elapsed();
    kill_process(pid(&redis.pid().unwrap().to_string()), Signal::CONT).unwrap();
    assert!(code == Some(122) && err.contains("did not reply in time"), "{err}");
    assert!(took < Duration::from_millis(900), "{took:?}");
}

#[test]
fn wait_is_printed_as_given() {
    let redis = RedisServer::start();
    let holder = Running::start(gaggle(&redis.url(), &["k", "--", "sh", "-c", "echo; sleep 60"]));
    let (_, _, err) = finish(gaggle(&redis.url(), &["--max-wait", "100ms", "k", "--", "true"]));
    assert!(err.contains("timed out after 100 ms"), "{err}");
    holder.signal(Signal::TERM);
    holder.finish();
}

#[test]
fn environment_of_the_parent_stops_nothing() {
    let redis = RedisServer::start();
    let mut command = gaggle(&redis.url(), &["k", "--", "true"]);
    command.env("RUST_LOG", "my_app=debug/regex").stderr(Stdio::piped());
    // Inherited by children of this thread.
    SigSet::all().thread_block().unwrap();
    let mut child = command.spawn().unwrap();
    SigSet::all().thread_unblock().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(err.contains("RUST_LOG") && err.lines().count() == 1, "{err}");
}

#[test]
fn missing_descriptors_are_wrong_use() {
    let redis = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_gaggle");
    for limit in 4..32 {
        for (arguments, code) in [("run k -- true", 125), ("list", 2)] {
            let line = format!("ulimit -n {limit}; exec '{program}' {arguments}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).env("GAGGLE_URL", redis.url());
            let (exit, _, err) = finish(shell);
            let is_named = err.contains("Too many open files");
            assert!(exit == Some(0) || exit == Some(code) && is_named, "{limit}: {exit:?} {err}");
            assert!(exit == Some(0) || limit < 24, "{limit}: {err}");
        }
    }
}
