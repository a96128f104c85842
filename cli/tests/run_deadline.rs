//! Goal: no process of the command's group writes after the lock's deadline, also if a fault hits
//! `gaggle run` or to the Redis. Method: each fault in turn under a short lease; two processes of a
//! group that ignores SIGTERM write time stamps, which are compared with the grant of the next
//! holder. `GAGGLE_KILL_RUNS` is the number of runs of each fault.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use gaggle::LockOptions;
use gaggle_fixtures::RedisServer;
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};

const LEASE: Duration = Duration::from_millis(300);
/// How late the last byte may be.
const LATE_MAX: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `gaggle run` is killed.
    Killed,
    /// `gaggle run` is stopped.
    Stopped,
    /// The Redis does not reply.
    Silent,
}

/// The wall clock of this machine, which is also that of the stamps.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Realtime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

fn send(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// A job whose command and child write stamps without a pause. Returns when both write.
fn start(redis: &RedisServer, log: &PathBuf) -> Child {
    let stamps = "trap '' TERM; exec >>\"$LOG\"; while :; do echo $EPOCHREALTIME; done";
    let job = format!("({stamps}) & echo; {stamps}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(["run", "--duration", "300ms", "k", "--", "bash", "-c", &job]);
    command.env("GAGGLE_URL", redis.url()).env("LOG", log).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "\n", "the command runs");
    process
}

/// Waits for the key as another process does. Returns when it was granted.
fn next_grant(url: &str) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locker = gaggle::open(url).await.unwrap();
        let options = LockOptions::default().max_wait(Duration::from_secs(20));
        let guard = locker.lock_with("k", options).await.unwrap();
        let granted_at = now();
        guard.unlock().await.unwrap();
        locker.close().await;
        granted_at
    })
}

/// Stops the Redis, and returns the latest deadline that the lock can have then.
fn stop(redis: &RedisServer) -> Duration {
    // The next extension is sent when two thirds remain.
    let (extended_at, pause) = (LEASE * 2 / 3, Duration::from_millis(20));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locker = runtime.block_on(gaggle::open(&redis.url())).unwrap();
    loop {
        let asked_at = now();
        let remaining = runtime.block_on(locker.inspect("k")).unwrap().unwrap().remaining;
        let deadline = now() + remaining;
        if remaining < extended_at + pause {
            continue;
        }
        send(redis.pid().unwrap(), Signal::STOP);
        let is_late = now() - asked_at > pause / 2;
        // An extension may have come before the stop.
        return if is_late { now() + LEASE } else { deadline };
    }
}

/// The latest stamp. A killed process may have written a part of its last line.
fn last_stamp(log: &PathBuf) -> Duration {
    let text = fs::read_to_string(log).unwrap();
    let stamp = |line: &str| {
        let (seconds, micros) = line.split_once('.')?;
        let micros = Some(micros).filter(|digits| digits.len() == 6)?;
        let seconds = seconds.parse().ok().filter(|seconds| *seconds > 1_000_000_000)?;
        Some(Duration::new(seconds, micros.parse::<u32>().ok()? * 1_000))
    };
    text.lines().filter_map(stamp).max().expect("a stamp")
}

/// How long before the next grant the last byte was written, and how long before the latest
/// deadline that the lock can have had.
fn run(fault: Fault, number: u32) -> (Duration, Duration) {
    let redis = RedisServer::start();
    let name = format!("gaggle-stamps-{fault:?}-{number}-{}", std::process::id());
    let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut job = start(&redis, &log);
    let url = redis.url();
    let next = thread::spawn(move || next_grant(&url));
    thread::sleep(LEASE / 2 + Duration::from_millis((number % 10 * 13).into()));
    // No later extension has an effect.
    let granted_until = match fault {
        Fault::Killed => {
            send(job.id(), Signal::KILL);
            now() + LEASE
        }
        Fault::Stopped => {
            send(job.id(), Signal::STOP);
            now() + LEASE
        }
        Fault::Silent => stop(&redis),
    };
    let deadline = granted_until - LEASE / 100 - Duration::from_millis(1);
    if fault == Fault::Silent {
        assert_eq!(job.wait().unwrap().code(), Some(123));
        send(redis.pid().unwrap(), Signal::CONT);
    }
    let granted_at = next.join().unwrap();
    let written_at = last_stamp(&log);
    if fault == Fault::Stopped {
        send(job.id(), Signal::CONT);
        assert_eq!(job.wait().unwrap().code(), Some(123));
    }
    job.wait().unwrap();
    fs::remove_file(log).unwrap();
    assert!(written_at < granted_at, "{fault:?}: {:?} late", written_at - granted_at);
    let late = written_at.saturating_sub(deadline);
    assert!(late <= LATE_MAX, "{fault:?}: {late:?} after the deadline");
    (granted_at - written_at, deadline.saturating_sub(written_at))
}

fn runs(fault: Fault) {
    let runs = std::env::var("GAGGLE_KILL_RUNS").map_or(3, |runs| runs.parse().unwrap());
    let margins: Vec<_> = (0..runs).map(|number| run(fault, number)).collect();
    let least = |margin: fn(&(Duration, Duration)) -> Duration| margins.iter().map(margin).min();
    let (grant, deadline) = (least(|it| it.0).unwrap(), least(|it| it.1).unwrap());
    println!("{fault:?}: {runs} runs; at least {grant:?} before the next grant,");
    println!("{deadline:?} before the latest possible deadline");
}

#[test]
fn deadline_holds_if_run_is_killed() {
    runs(Fault::Killed);
}

#[test]
fn deadline_holds_if_run_is_stopped() {
    runs(Fault::Stopped);
}

#[test]
fn deadline_holds_if_redis_is_silent() {
    runs(Fault::Silent);
}
