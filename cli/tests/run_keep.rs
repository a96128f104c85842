//! Goal: `--at-least` keeps the key after every end of the command, and each end names its cause.
//! Method: the real program and a Redis that is paused or unlocked by an operator.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{process::Stdio, thread::sleep, time::Duration};

use gaggle_fixtures::RedisServer;
use run_support::{Running, finish, force_unlock, gaggle, pid};
use rustix::process::{Signal, kill_process};

/// The exit code of one attempt to run.
fn attempt(redis: &RedisServer) -> Option<i32> {
    finish(gaggle(&redis.url(), &["--max-wait", "2s", "k", "--", "true"])).0
}

#[test]
fn key_is_kept_although_an_extension_failed() {
    let redis = RedisServer::start();
    let options = ["--duration", "4s", "--at-least", "60s", "k", "--"];
    let job = ["sh", "-c", "echo ready; sleep 0.3"];
    let running = Running::start(gaggle(&redis.url(), &[&options[..], &job].concat()));
    let server = pid(&redis.pid().unwrap().to_string());
    kill_process(server, Signal::STOP).unwrap();
    // Longer than a request waits for its reply.
    sleep(Duration::from_millis(1_800));
    kill_process(server, Signal::CONT).unwrap();
    let (code, _, err) = running.finish();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    sleep(Duration::from_millis(2_500));
    assert_eq!(attempt(&redis), Some(124));
}

/// A retry of a job that failed does not succeed without running it.
#[test]
fn retry_of_a_failed_job_is_no_success() {
    let redis = RedisServer::start();
    let run = |options: &[&str], job| {
        let options = [options, &["--at-least", "60s", "--exit-not-acquired", "0", "k", "--", job]];
        finish(gaggle(&redis.url(), &options.concat()))
    };
    assert_eq!(run(&["--free-on-failure"], "false").0, Some(1));
    assert_eq!(run(&[], "false").0, Some(1), "the key was free");
    let (code, _, err) = run(&["--try"], "true");
    assert_eq!(code, Some(124), "{err}");
    assert!(
        err.contains(", which has ended: the key is free when its lease ends; not run"),
        "{err}"
    );
}

#[test]
fn key_is_kept_after_success_with_free_on_failure() {
    let redis = RedisServer::start();
    let options = ["--at-least", "60s", "--free-on-failure", "k", "--", "true"];
    assert_eq!(finish(gaggle(&redis.url(), &options)).0, Some(0));
    assert_eq!(attempt(&redis), Some(124));
}

#[test]
fn key_is_kept_after_max_hold() {
    let redis = RedisServer::start();
    let options = ["--duration", "1s", "--max-hold", "1s", "--at-least", "60s"];
    let (code, _, err) =
        finish(gaggle(&redis.url(), &[&options[..], &["k", "--", "sleep", "60"]].concat()));
    assert!(code == Some(123) && err.contains("--max-hold 1s"), "{code:?}: {err}");
    assert_eq!(attempt(&redis), Some(124));
}

#[test]
fn unlock_in_the_last_lease_is_named() {
    let redis = RedisServer::start();
    let options = ["--duration", "10s", "--max-hold", "10s", "k", "--"];
    let job = ["sh", "-c", "echo ready; sleep 60"];
    let running = Running::start(gaggle(&redis.url(), &[&options[..], &job].concat()));
    assert!(force_unlock(&redis, "ticket 7"));
    let (code, _, err) = running.finish();
    assert!(code == Some(123) && err.contains("ticket 7"), "{code:?}: {err}");
}

#[test]
fn loss_without_the_redis_names_its_cause() {
    let redis = RedisServer::start();
    let options = ["--duration", "1s", "k", "--", "sh", "-c", "echo ready; sleep 60"];
    let running = Running::start(gaggle(&redis.url(), &options));
    let server = pid(&redis.pid().unwrap().to_string());
    kill_process(server, Signal::STOP).unwrap();
    let (code, _, err) = running.finish();
    kill_process(server, Signal::CONT).unwrap();
    assert!(code == Some(123) && err.contains("not extended in time"), "{code:?}: {err}");
}

/// The lease is so short that the last refused extension is still pending when the lock is lost.
#[test]
fn loss_names_the_refusal_of_the_redis() {
    let permanent = ["ACL", "SETUSER", "default", "-pexpire"];
    let passing = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    // Redis 7.0 has another text than later ones.
    let denied = ["NOPERM", "can't run this command"];
    for (setting, refusals) in [(permanent, denied), (passing, ["NOREPLICAS"; 2])] {
        let redis = RedisServer::start();
        let options = ["--json", "--duration", "1s", "k", "--", "sh", "-c", "echo ready; sleep 60"];
        let running = Running::start(gaggle(&redis.url(), &options));
        let mut client = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
        redis::cmd(setting[0]).arg(&setting[1..]).exec(&mut client).unwrap();
        let (code, _, err) = running.finish();
        let lost = err.lines().find(|line| line.contains("\"event\":\"lost\"")).unwrap();
        assert_eq!(code, Some(123), "{err}");
        let text = format!("in time: Redis at 127.0.0.1:{} refused the request", redis.port());
        assert!(lost.contains(&text), "{lost}");
        assert!(refusals.iter().any(|refusal| lost.contains(refusal)), "{lost}");
        assert!(lost.contains("\"extend_error\":\"Redis at "), "{lost}");
    }
}

/// A user cannot send a request again, as the library's text for programs says. A key whose time of
/// `--at-least` passes is kept, too.
#[test]
fn silent_redis_at_the_end_is_named() {
    let redis = RedisServer::start();
    let server = pid(&redis.pid().unwrap().to_string());
    for (duration, at_least, part) in [
        ("3s", "0s", "no reply in time, it may have taken effect; it is free within 3s"),
        ("3s", "60s", "is not kept for --at-least"),
        ("12s", "3s", "{\"event\":\"kept\",\"for_ms\":"),
    ] {
        let options = ["--json", "--duration", duration, "--at-least", at_least, at_least, "--"];
        let job = ["sh", "-c", "echo ready; read line; exit 0"];
        let mut command = gaggle(&redis.url(), &[&options[..], &job].concat());
        command.stdin(Stdio::piped());
        let mut running = Running::start(command);
        kill_process(server, Signal::STOP).unwrap();
        // The command ends.
        drop(running.process.stdin.take());
        let (code, _, err) = running.finish();
        kill_process(server, Signal::CONT).unwrap();
        assert!(code == Some(0) && err.contains(part), "{code:?}: {err}");
        assert!(!err.contains("send it again"), "{err}");
    }
}
