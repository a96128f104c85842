//! Goal: `gaggle run` starts and gives up in time with any inherited state.
//! Method: the built binary, a private `redis-server` that is stopped or busy, and a parent that
//! blocks signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

mod run_support;

use std::{
    fs::{self, File},
    io::Read as _,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gaggle_fixtures::RedisServer;
use nix::sys::signal::SigSet;
use rustix::{
    io::ioctl_fionread,
    process::{Signal, kill_process},
};

use run_support::{Running, children, finish, gaggle, is_stopped, pid, wait_until};

#[test]
fn max_wait_bounds_connecting() {
    let redis = RedisServer::start();
    kill_process(pid(&redis.pid().unwrap().to_string()), Signal::STOP).unwrap();
    // A busy machine may delay some attempts.
    for attempt in 1.. {
        let started = Instant::now();
        let options = ["--max-wait", "2s", "k", "--", "true"];
        let (code, _, err) = finish(gaggle(&redis.url(), &options));
        let took = started.elapsed();
        assert!(code == Some(122) && err.contains("did not reply in time"), "{err}");
        if took < Duration::from_secs(3) {
            break;
        }
        assert!(attempt < 5, "{took:?}");
    }
    kill_process(pid(&redis.pid().unwrap().to_string()), Signal::CONT).unwrap();
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

/// A run whose watchdog is stopped with the order to watch the command, and that watchdog.
#[cfg(target_os = "linux")]
fn start_unwatched(redis: &RedisServer) -> (Running, String) {
    for _ in 0..100 {
        let job = ["--json", "k", "--", "sh", "-c", "echo ran; sleep 60"];
        let run = Running::start_waiting(gaggle(&redis.url(), &job));
        let id = run.process.id().to_string();
        let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        while children().is_empty() {}
        stop(&id);
        // Stopped between the starts of the two, it has ordered nothing.
        if let [watchdog] = children().split_whitespace().collect::<Vec<_>>()[..] {
            wait_until(|| pending(watchdog, 1) > 0);
            stop(watchdog);
            run.signal(Signal::CONT);
            wait_until(|| pending(watchdog, 0) > 0);
            return (run, watchdog.to_owned());
        }
        run.signal(Signal::TERM);
        run.signal(Signal::CONT);
        run.finish();
    }
    panic!("each run had started its command when it was stopped");
}

#[cfg(target_os = "linux")]
fn stop(process: &str) {
    kill_process(pid(process), Signal::STOP).unwrap();
    wait_until(|| is_stopped(process));
}

/// The bytes that were written to a pipe of a process and not read.
#[cfg(target_os = "linux")]
fn pending(process: &str, descriptor: u8) -> u64 {
    let pipe = File::open(format!("/proc/{process}/fd/{descriptor}")).unwrap();
    ioctl_fionread(pipe).unwrap()
}

/// The signal comes when the watchdog watches the command, which `gaggle run` does not know.
#[cfg(target_os = "linux")]
#[test]
fn interrupted_run_has_run_nothing() {
    let redis = RedisServer::start();
    let (run, watchdog) = start_unwatched(&redis);
    stop(&run.process.id().to_string());
    kill_process(pid(&watchdog), Signal::CONT).unwrap();
    wait_until(|| pending(&watchdog, 1) > 0);
    // Long enough for the command to print its line, if it runs.
    thread::sleep(Duration::from_millis(200));
    run.signal(Signal::TERM);
    run.signal(Signal::CONT);
    let (code, out, err) = run.finish();
    assert_eq!(code, Some(143), "{err}");
    let is_interrupted = err.contains("\"interrupted\"");
    assert!(!is_interrupted || out.is_empty(), "it has run: {out}{err}");
    assert!(is_interrupted || err.contains("\"signalled\""), "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn watchdog_that_ends_before_it_watches_starts_nothing() {
    let redis = RedisServer::start();
    let (run, watchdog) = start_unwatched(&redis);
    kill_process(pid(&watchdog), Signal::KILL).unwrap();
    let (code, out, err) = run.finish();
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    assert!(err.contains("the command was not started") && err.contains("\"unlocked\""), "{err}");
}

/// Before `gaggle run` has seen that it waits.
#[cfg(target_os = "linux")]
#[test]
fn command_that_another_process_resumes_is_watched() {
    let redis = RedisServer::start();
    for attempt in 1.. {
        let job = ["--json", "k", "--", "sh", "-c", "echo ran; sleep 60"];
        let mut run = Running::start_waiting(gaggle(&redis.url(), &job));
        let id = run.process.id();
        while children(id).len() < 2 {}
        stop(&id.to_string());
        let waiting = || children(id).into_iter().find(|child| is_stopped(child));
        let command = (0..200).find_map(|_| {
            thread::sleep(Duration::from_millis(5));
            waiting()
        });
        let Some(command) = command else {
            // `gaggle run` has resumed its command before it was stopped.
            assert!(attempt < 20, "never stopped in time");
            run.signal(Signal::CONT);
            run.signal(Signal::TERM);
            run.finish();
            continue;
        };
        kill_process(pid(&command), Signal::CONT).unwrap();
        run.read_first_line();
        run.signal(Signal::CONT);
        // A busy machine may need longer until it is watched.
        thread::sleep(Duration::from_millis(200) * attempt);
        run.signal(Signal::TERM);
        let (code, _, err) = run.finish();
        assert_eq!(code, Some(143), "{err}");
        if err.contains("\"signalled\"") {
            return;
        }
        assert!(attempt < 20, "{err}");
    }
}

#[test]
fn waiter_that_was_suspended_runs_when_the_key_is_free() {
    let redis = RedisServer::start();
    let options = ["--duration", "1s", "--max-wait", "forever", "k", "--"];
    let first = Running::start(gaggle(
        &redis.url(),
        &[&options[..], &["sh", "-c", "echo held; sleep 0.8"]].concat(),
    ));
    let second = gaggle(&redis.url(), &[&options[..], &["echo", "ran"]].concat());
    let second = Running::start_waiting(second);
    thread::sleep(Duration::from_millis(300));
    second.signal(Signal::STOP);
    assert_eq!(first.finish().0, Some(0));
    // Longer than the lease that is granted meanwhile.
    thread::sleep(Duration::from_millis(2_000));
    second.signal(Signal::CONT);
    let (code, out, err) = second.finish();
    assert!(code == Some(0) && out.contains("ran"), "{code:?}: {out}{err}");
}
