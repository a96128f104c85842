//! Goal: when `gaggle run` ends its command, processes that left the command's group end too, and
//! the watchdog is not the only one who ends them. Method: commands that start processes by
//! `setsid`, `timeout` and job control; signals, kills and forced unlocks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gaggle_channels::testing::RedisServer;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Prints its process id and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.1; done";

fn gaggle(redis: &RedisServer, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(arguments).env_remove("RUST_LOG").env("GAGGLE_URL", redis.url());
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a job until it has printed the id of a process.
fn start(redis: &RedisServer, options: &[&str], script: &str) -> (Child, Pid) {
    let arguments = [&["run"], options, &["k", "--", "bash", "-c", script, STUBBORN]].concat();
    let mut job = gaggle(redis, &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    (job, process)
}

fn send(job: &Child, signal: Signal) {
    kill_process(Pid::from_child(job), signal).unwrap();
}

fn force_unlock(redis: &RedisServer) {
    assert!(gaggle(redis, &["unlock", "k", "--force"]).status().unwrap().success());
}

/// Whether the process has ended; a zombie has.
fn has_ended(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.contains(") Z ") || test_kill_process(process).is_err()
}

fn assert_ends(process: Pid, what: &str) {
    let until = Instant::now() + Duration::from_secs(5);
    while !has_ended(process) {
        if Instant::now() > until {
            kill_process(process, Signal::KILL).unwrap();
            panic!("{what}: it runs on");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The watchdog of a job.
fn watchdog(job: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", job.id());
    let children = fs::read_to_string(children).unwrap();
    let mut ids = children.split_whitespace();
    let is_watchdog = |id: &&str| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline"));
        line.is_ok_and(|line| line.contains("run-watchdog"))
    };
    Pid::from_raw(ids.find(is_watchdog).unwrap().parse().unwrap()).unwrap()
}

#[test]
fn sigterm_ends_what_left_the_group() {
    let redis = RedisServer::start();
    for leave in ["timeout 60 bash -c \"$0\"", "setsid -w bash -c \"$0\"", "set -m; bash -c \"$0\""]
    {
        let (mut job, process) = start(&redis, &["--kill-after", "200ms"], &format!("{leave}; :"));
        send(&job, Signal::TERM);
        assert_eq!(job.wait().unwrap().code(), Some(143), "{leave}");
        // The key is free only now.
        let is_late = !has_ended(process);
        assert_ends(process, leave);
        assert!(!is_late, "{leave}: ended after the unlock");
    }
}

#[test]
fn others_end_with_a_killed_run() {
    let redis = RedisServer::start();
    let (mut job, process) = start(&redis, &[], "setsid -w bash -c \"$0\"; :");
    send(&job, Signal::KILL);
    job.wait().unwrap();
    assert_ends(process, "SIGKILL");
}

#[test]
fn grace_after_a_loss_is_a_second() {
    let redis = RedisServer::start();
    let options = ["--duration", "60s", "--kill-after", "30s"];
    let (mut job, process) = start(&redis, &options, "setsid -w bash -c \"$0\"; :");
    let lost_at = Instant::now();
    force_unlock(&redis);
    assert_eq!(job.wait().unwrap().code(), Some(123));
    assert!(lost_at.elapsed() < Duration::from_secs(10), "{:?}", lost_at.elapsed());
    assert_ends(process, "a loss");
}

#[test]
fn daemon_outlives_a_command_that_ends() {
    let redis = RedisServer::start();
    for (leave, is_asked) in [
        ("setsid bash -c \"$0\" & sleep 0.5", false),
        ("setsid env -u GAGGLE_NONCE bash -c \"$0\" & sleep 60", true),
    ] {
        let (mut job, process) = start(&redis, &[], leave);
        if is_asked {
            send(&job, Signal::TERM);
        }
        job.wait().unwrap();
        let ended = has_ended(process);
        assert!(!ended, "{leave}");
        kill_process(process, Signal::KILL).unwrap();
    }
}

#[test]
fn loss_ends_a_command_without_its_watchdog() {
    let redis = RedisServer::start();
    let (mut job, process) = start(&redis, &[], "eval \"$0\"");
    let watchdog = watchdog(&job);
    kill_process(watchdog, Signal::STOP).unwrap();
    force_unlock(&redis);
    assert_ends(process, "a loss");
    assert_eq!(job.wait().unwrap().code(), Some(123));
    assert_ends(watchdog, "the job's end");
}

#[test]
fn stopped_watchdog_leaves_the_code_of_the_command() {
    let redis = RedisServer::start();
    let (mut job, process) = start(&redis, &[], "bash -c \"$0\" & sleep 0.5; exit 7");
    let watchdog = watchdog(&job);
    kill_process(watchdog, Signal::STOP).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(7));
    assert_ends(process, "the command's end");
    assert_ends(watchdog, "the job's end");
}
