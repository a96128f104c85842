//! Goal: a command outlives an outage of its Redis that ends shortly before SIGTERM is due, and a
//! signal ends the wait for a Redis that is silent at the end. Method: the Redis is stopped just
//! before the first extension, or before the end of the command.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use gaggle_fixtures::RedisServer;
use run_support::{Running, gaggle, pid, wait_until};
use rustix::process::{Signal, kill_process};

/// SIGTERM is due at half of the lease, and the first extension at a third.
#[test]
fn late_extension_reaches_the_watchdog() {
    let redis = RedisServer::start();
    let server = pid(&redis.pid().unwrap().to_string());
    let options = ["--duration", "12s", "--kill-after", "6s", "k", "--"];
    let job = ["sh", "-c", "echo ready; sleep 7; echo done"];
    let running = Running::start(gaggle(&redis.url(), &[&options[..], &job].concat()));
    sleep(Duration::from_millis(3_500));
    kill_process(server, Signal::STOP).unwrap();
    sleep(Duration::from_millis(1_700));
    kill_process(server, Signal::CONT).unwrap();
    let (code, out, err) = running.finish();
    assert_eq!((code, out.as_str()), (Some(0), "done\n"), "{err}");
}

#[test]
fn signal_ends_the_wait_for_the_last_reply() {
    let redis = RedisServer::start();
    let server = pid(&redis.pid().unwrap().to_string());
    let url = format!("{}?request_timeout=60s", redis.url());
    for (at_least, event) in [("0s", "not_unlocked"), ("60s", "not_kept")] {
        let options = ["--json", "--duration", "60s", "--at-least", at_least, event, "--"];
        let job = ["sh", "-c", "echo ready; read line; exit 3"];
        let mut command = gaggle(&url, &[&options[..], &job].concat());
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        kill_process(server, Signal::STOP).unwrap();
        drop(running.process.stdin.take());
        let mut events = BufReader::new(running.process.stderr.take().unwrap()).lines();
        assert!(events.any(|it| it.unwrap().contains("\"ended\"")), "{event}");
        running.signal(Signal::TERM);
        wait_until(|| running.process.try_wait().unwrap().is_some());
        kill_process(server, Signal::CONT).unwrap();
        assert_eq!(running.process.wait().unwrap().code(), Some(3));
        let last = events.last().unwrap().unwrap();
        assert!(last.contains(&format!("\"event\":\"{event}\"")), "{last}");
    }
}
