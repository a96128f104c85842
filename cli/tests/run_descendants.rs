//! Goal: when `gaggle run` ends its command, processes that left the command's group end too, and
//! the watchdog is not the only one who ends them. Method: commands that start processes by
//! `setsid`, `timeout` and job control; signals, kills and forced unlocks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

mod run_support;

use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use gaggle_channels::testing::RedisServer;
use run_support::{Running, force_unlock, gaggle, has_ended, pid, wait_until};
use rustix::process::{Signal, kill_process};

/// Prints its process id and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.1; done";

/// A job whose own grace is far longer than the one after a loss.
const LONG: [&str; 4] = ["--duration", "60s", "--kill-after", "30s"];

/// Runs a job until it has printed the id of a process. Its command ends at the end of its input
/// if it reads a line.
fn start(redis: &RedisServer, options: &[&str], script: &str) -> Running {
    let arguments = [options, &["k", "--", "bash", "-c", script, STUBBORN]].concat();
    let mut command = gaggle(&redis.url(), &arguments);
    command.stdin(Stdio::piped());
    Running::start(command)
}

/// The exit code of a job.
fn code(job: &mut Running) -> Option<i32> {
    job.process.wait().unwrap().code()
}

fn assert_ends(process: &str, what: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while !has_ended(process) {
        if Instant::now() > until {
            kill_process(pid(process), Signal::KILL).unwrap();
            panic!("{what}: it runs on");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The watchdog of a job, or its command.
fn child(job: &Running, is_watchdog: bool) -> String {
    let children = format!("/proc/{0}/task/{0}/children", job.process.id());
    let children = fs::read_to_string(children).unwrap();
    let matches = |id: &&str| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap();
        line.contains("run-watchdog") == is_watchdog
    };
    let found: Vec<_> = children.split_whitespace().filter(matches).collect();
    assert_eq!(found.len(), 1, "{children}");
    found[0].to_owned()
}

/// The watchdog of a job, which this stops.
fn stop_watchdog(job: &Running) -> String {
    let watchdog = child(job, true);
    kill_process(pid(&watchdog), Signal::STOP).unwrap();
    watchdog
}

/// How long a job takes to end, with this code, after its lock is lost.
fn lose(redis: &RedisServer, job: &mut Running, expected: i32) -> Duration {
    let lost_at = Instant::now();
    assert!(force_unlock(redis, "a test"));
    assert_eq!(code(job), Some(expected));
    let took = lost_at.elapsed();
    assert_ends(&job.first_line, "a loss");
    took
}

/// Asserts that one of five jobs takes no longer than the grace after a loss, which is a second. A
/// busy machine may delay the others.
fn assert_grace(job: impl Fn() -> Duration) {
    for attempt in 1.. {
        let took = job();
        assert!(took >= Duration::from_secs(1), "{took:?}");
        if took < Duration::from_millis(1_500) {
            return;
        }
        assert!(attempt < 5, "{took:?}");
    }
}

#[test]
fn sigterm_ends_what_left_the_group() {
    let redis = RedisServer::start();
    for leave in ["timeout 60 bash -c \"$0\"", "setsid -w bash -c \"$0\"", "set -m; bash -c \"$0\""]
    {
        let mut job = start(&redis, &["--kill-after", "200ms"], &format!("{leave}; :"));
        job.signal(Signal::TERM);
        assert_eq!(code(&mut job), Some(143), "{leave}");
        // The key is free only now.
        let is_late = !has_ended(&job.first_line);
        assert_ends(&job.first_line, leave);
        assert!(!is_late, "{leave}: ended after the unlock");
    }
}

/// By its terminal, or by another process: `gaggle run` gets no signal.
#[test]
fn signal_to_the_command_ends_what_left_the_group() {
    let redis = RedisServer::start();
    let leave = "setsid bash -c \"$0\" & exec sleep 60";
    let mut job = start(&redis, &["--kill-after", "200ms"], leave);
    let command = child(&job, false);
    // Until then it is a shell, which would wait.
    wait_until(|| fs::read_to_string(format!("/proc/{command}/comm")).unwrap() == "sleep\n");
    kill_process(pid(&command), Signal::TERM).unwrap();
    assert_eq!(code(&mut job), Some(143));
    assert_ends(&job.first_line, "SIGTERM");
}

/// What an ended command left in its group does not run on without the lock.
#[test]
fn loss_ends_what_an_ended_command_left() {
    let redis = RedisServer::start();
    assert_grace(|| {
        let mut job = start(&redis, &LONG, "bash -c \"$0\" & read line; exit 7");
        let command = child(&job, false);
        drop(job.process.stdin.take());
        // Its group has not ended.
        assert_ends(&command, "the end of its input");
        lose(&redis, &mut job, 7)
    });
}

#[test]
fn others_end_with_a_killed_run() {
    let redis = RedisServer::start();
    let mut job = start(&redis, &[], "setsid -w bash -c \"$0\"; :");
    job.signal(Signal::KILL);
    code(&mut job);
    assert_ends(&job.first_line, "SIGKILL");
}

#[test]
fn grace_after_a_loss_is_a_second() {
    let redis = RedisServer::start();
    assert_grace(|| {
        let mut job = start(&redis, &LONG, "setsid -w bash -c \"$0\"; :");
        lose(&redis, &mut job, 123)
    });
}

#[test]
fn daemon_outlives_a_command_that_ends() {
    let redis = RedisServer::start();
    for (leave, is_asked) in [
        ("setsid bash -c \"$0\" & read line", false),
        ("setsid env -u GAGGLE_NONCE bash -c \"$0\" & sleep 60", true),
    ] {
        let mut job = start(&redis, &[], leave);
        if is_asked {
            job.signal(Signal::TERM);
        }
        code(&mut job);
        assert!(!has_ended(&job.first_line), "{leave}");
        kill_process(pid(&job.first_line), Signal::KILL).unwrap();
    }
}

#[test]
fn loss_ends_a_command_without_its_watchdog() {
    let redis = RedisServer::start();
    for (script, signal) in [("eval \"$0\"", "SIGKILL"), ("echo $$; exec sleep 60", "SIGTERM")] {
        let job = start(&redis, &[], script);
        let (command, watchdog) = (job.first_line.clone(), stop_watchdog(&job));
        assert!(force_unlock(&redis, "a test"));
        assert_ends(&command, "a loss");
        let (code, _, err) = job.finish();
        let what = format!("was lost; the command was ended with {signal}: force-unlocked by ");
        assert!(code == Some(123) && err.contains(&what) && err.contains("a test"), "{err}");
        assert_ends(&watchdog, "the job's end");
    }
}

#[test]
fn stopped_watchdog_leaves_the_code_of_the_command() {
    let redis = RedisServer::start();
    let mut job = start(&redis, &[], "bash -c \"$0\" & read line; exit 7");
    let watchdog = stop_watchdog(&job);
    assert_eq!(code(&mut job), Some(7));
    assert_ends(&job.first_line, "the command's end");
    assert_ends(&watchdog, "the job's end");
}
