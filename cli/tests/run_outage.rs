//! Goal: a command outlives an outage of its Redis that ends shortly before SIGTERM is due.
//! Method: the Redis is stopped just before the first extension.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{thread::sleep, time::Duration};

use gaggle_channels::testing::RedisServer;
use run_support::{Running, gaggle, pid};
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
