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

use gaggle_fixtures::RedisServer;
use run_support::{Running, force_unlock, gaggle, has_ended, pid, wait_until};
use rustix::process::{Signal, kill_process};

/// Prints its process id and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.1; done";

/// Leaves a process that is in no group of the command. Without the core of SIGQUIT.
const DAEMON: &str = "ulimit -c 0; setsid bash -c \"$0\" & exec sleep 60";

/// The signals that ask a command to end, and the code of a command that each ends.
const ENDING: [(Signal, i32); 4] =
    [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)];

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

/// The longest grace after a loss.
const GRACE: Duration = Duration::from_secs(1);

/// Asserts that one of five jobs takes no longer than this grace after a loss. A busy machine may
/// delay the others.
fn assert_grace(grace: Duration, job: impl Fn() -> Duration) {
    for attempt in 1.. {
        let took = job();
        assert!(took >= grace, "{took:?}");
        if took < grace + Duration::from_millis(750) {
            return;
        }
        assert!(attempt < 5 && took < 10 * GRACE, "{took:?}");
    }
}

/// How long the process of a job whose lock is lost runs on. Something happens to the job once the
/// loss is known.
fn outlives_loss(
    redis: &RedisServer,
    mut job: Running,
    then: impl FnOnce(&mut Running),
) -> Duration {
    let process = std::mem::take(&mut job.first_line);
    let lost_at = Instant::now();
    assert!(force_unlock(redis, "a test"));
    then(&mut job);
    assert_ends(&process, "a loss");
    let took = lost_at.elapsed();
    job.signal(Signal::CONT);
    assert_eq!(code(&mut job), Some(123));
    took
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

/// A job of [`DAEMON`], and its command: until that is `sleep` it is a shell, which would wait.
fn start_daemon(redis: &RedisServer, options: &[&str]) -> (Running, String) {
    let job = start(redis, options, DAEMON);
    let command = child(&job, false);
    wait_until(|| fs::read_to_string(format!("/proc/{command}/comm")).unwrap() == "sleep\n");
    (job, command)
}

/// To `gaggle run`, or by a terminal or another process to the command alone.
#[test]
fn each_ending_signal_ends_what_left_the_group() {
    let end = |(signal, expected), is_to_command| {
        let redis = RedisServer::start();
        let (mut job, command) = start_daemon(&redis, &["--kill-after", "200ms"]);
        if is_to_command {
            kill_process(pid(&command), signal).unwrap();
        } else {
            job.signal(signal);
        }
        assert_eq!(code(&mut job), Some(expected), "{signal:?}");
        // The key is free only now.
        let is_late = !has_ended(&job.first_line);
        assert_ends(&job.first_line, &format!("{signal:?}"));
        assert!(!is_late, "{signal:?}: ended after the unlock");
    };
    thread::scope(|scope| {
        for signal in ENDING {
            for is_to_command in [false, true] {
                scope.spawn(move || end(signal, is_to_command));
            }
        }
    });
}

/// The command may choose its exit code. What left the group can end in order, too.
#[test]
fn handled_ending_signal_ends_what_left_the_group() {
    let end = |(signal, _)| {
        let redis = RedisServer::start();
        let daemon = "trap 'echo term; exit' TERM; echo $$; while :; do sleep 0.02; done";
        let command = "trap 'exit 3' HUP INT QUIT TERM; setsid bash -c \"$1\" & \
            while :; do sleep 0.02; done";
        let arguments = ["--kill-after", "2s", "k", "--", "bash", "-c", command, "bash", daemon];
        let mut job = Running::start(gaggle(&redis.url(), &arguments));
        job.signal(signal);
        code(&mut job);
        assert_ends(&job.first_line, &format!("{signal:?}"));
        let (code, out, err) = job.finish();
        assert_eq!((code, out.as_str()), (Some(3), "term\n"), "{signal:?}: {err}");
    };
    thread::scope(|scope| {
        for signal in ENDING {
            scope.spawn(move || end(signal));
        }
    });
}

/// While `gaggle run` waits for what an ended command left.
#[test]
fn second_ending_signal_ends_the_wait_for_leftovers() {
    let end = |(signal, _)| {
        let redis = RedisServer::start();
        let leave = "setsid bash -c \"$0\" & bash -c \"$0\" & read line; exit 7";
        let mut job = start(&redis, &LONG, leave);
        let first = std::mem::take(&mut job.first_line);
        job.read_first_line();
        let command = child(&job, false);
        drop(job.process.stdin.take());
        assert_ends(&command, "the end of its input");
        // One of another kind changes nothing.
        job.signal(Signal::USR1);
        thread::sleep(Duration::from_millis(100));
        assert!([&first, &job.first_line].iter().all(|it| !has_ended(it)), "SIGUSR1");
        job.signal(signal);
        assert_ends(&first, &format!("{signal:?}"));
        assert_ends(&job.first_line, &format!("{signal:?}"));
        assert_eq!(code(&mut job), Some(7), "{signal:?}");
    };
    thread::scope(|scope| {
        for signal in ENDING {
            scope.spawn(move || end(signal));
        }
    });
}

/// What an ended command left in its group does not run on without the lock.
#[test]
fn loss_ends_what_an_ended_command_left() {
    let redis = RedisServer::start();
    assert_grace(GRACE, || {
        let mut job = start(&redis, &LONG, "bash -c \"$0\" & read line; exit 7");
        let command = child(&job, false);
        drop(job.process.stdin.take());
        // The command's group has not ended.
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
fn short_kill_after_is_the_grace_after_a_loss() {
    let redis = RedisServer::start();
    let options = ["--duration", "60s", "--kill-after", "200ms"];
    assert_grace(Duration::from_millis(200), || {
        let mut job = start(&redis, &options, "setsid -w bash -c \"$0\"; :");
        lose(&redis, &mut job, 123)
    });
}

/// `gaggle run` and its watchdog each know when SIGKILL is due.
#[test]
fn grace_after_a_loss_needs_only_one_of_two() {
    let redis = RedisServer::start();
    for (kill_after, grace) in [("30s", GRACE), ("200ms", Duration::from_millis(200))] {
        let options = ["--duration", "60s", "--kill-after", kill_after];
        assert_grace(grace, || {
            let job = start(&redis, &options, "trap '' TERM; setsid -w bash -c \"$0\"; :");
            stop_watchdog(&job);
            outlives_loss(&redis, job, |_| {})
        });
    }
    assert_grace(GRACE, || {
        let script = "trap 'echo term' TERM; echo $$; while :; do sleep 0.02; done";
        let job = start(&redis, &LONG, script);
        outlives_loss(&redis, job, |job| {
            job.read_first_line();
            assert_eq!(job.first_line, "term");
            // The order to the watchdog follows SIGTERM and a search for processes.
            thread::sleep(GRACE / 2);
            job.signal(Signal::STOP);
        })
    });
}

#[test]
fn daemon_outlives_a_command_that_ends() {
    let redis = RedisServer::start();
    let leave = "setsid bash -c \"$0\" & ";
    let of_its_own = "setsid env -u GAGGLE_NONCE bash -c \"$0\" & sleep 60";
    for (leave, signal) in [
        (&*format!("{leave} read line"), None),
        (of_its_own, Some(Signal::TERM)),
        // These ask no command to end, although they end this one.
        (&format!("{leave} exec sleep 60"), Some(Signal::USR1)),
        (&format!("{leave} exec sleep 60"), Some(Signal::USR2)),
    ] {
        let mut job = start(&redis, &[], leave);
        if let Some(signal) = signal {
            job.signal(signal);
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
