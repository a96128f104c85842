//! Goal: each of the nine signals has its documented effect on `gaggle run`
//! (docs/scheduled-jobs.md, "Signals"), and no process is left. Method: one table of signals,
//! states of the command and depths of its processes; all processes of a cell have a variable, by
//! which remaining processes are found.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{fs, os::unix::process::CommandExt as _, process::Stdio, slice, thread, time::Duration};

use gaggle_fixtures::RedisServer;
use run_support::{Running, gaggle, is_queued, is_stopped, wait_until};
use rustix::process::{Signal, kill_process};

/// The signals and their names in `trap`.
const SIGNALS: [(Signal, &str); 9] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
    (Signal::WINCH, "WINCH"),
    (Signal::CONT, "CONT"),
    (Signal::TSTP, "TSTP"),
];

/// What `gaggle run` or its command does when the signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Another process holds the key.
    Waiting,
    /// The command runs, and its processes leave the signal to its default.
    Default,
    /// The processes handle the signal: each prints a line, and ends with 9.
    Handled,
    /// The processes ignore the signal.
    Ignored,
    /// The last process ignores the signal and SIGTERM; the others do not.
    Left,
}

/// Whether the command is one process, or has a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Child,
    Grandchild,
}

/// The variable that names a cell.
const CELL: &str = "GAGGLE_TEST_CELL";

struct Cell<'a> {
    redis: &'a RedisServer,
    signal: Signal,
    name: &'static str,
    state: State,
    depth: Depth,
}

impl Cell<'_> {
    fn key(&self) -> String {
        format!("{}-{:?}-{:?}", self.name, self.state, self.depth)
    }

    /// Whether the signal ends a process by default.
    fn is_fatal(&self) -> bool {
        !matches!(self.signal, Signal::WINCH | Signal::CONT | Signal::TSTP)
    }

    /// Whether it stops `gaggle run`, with its command.
    fn stops(&self) -> bool {
        let is_handled = matches!(self.state, State::Handled | State::Ignored);
        self.signal == Signal::TSTP && !is_handled
    }

    /// The shell commands of the first process and of the last one, if they are two.
    fn scripts(&self) -> (String, Option<String>) {
        let name = self.name;
        let on_signal = match self.state {
            State::Waiting | State::Default => String::new(),
            State::Handled => format!("trap 'echo got; exit 9' {name};"),
            State::Ignored => format!("trap '' {name};"),
            State::Left => format!("trap '' {name} TERM;"),
        };
        let wait = match self.state {
            // A shell runs its trap at once while it waits for nothing.
            State::Handled => "while :; do :; done",
            State::Left => "sleep 60",
            _ => "read line",
        };
        let last = format!("{on_signal} echo ready; {wait}; exit 9");
        let first = match self.state {
            State::Handled => format!("trap 'echo got' {name}; "),
            State::Ignored => on_signal,
            _ => String::new(),
        };
        match self.depth {
            Depth::Child => (last, None),
            // Otherwise a shell waits for its child before SIGINT ends it.
            Depth::Grandchild if self.state == State::Left => {
                ("sh -c \"$0\" & wait; exit 9".into(), Some(last))
            }
            Depth::Grandchild => (format!("{first} sh -c \"$0\"; exit 9"), Some(last)),
        }
    }

    fn start(&self) -> Running {
        let key = self.key();
        let (first, last) = self.scripts();
        let options = ["--max-wait", "forever", "--kill-after", "100ms"];
        let first = format!("ulimit -c 0; {first}");
        let command = [&key, "--", "sh", "-c", &first];
        let mut command = gaggle(&self.redis.url(), &[&options[..], &command].concat());
        command.args(last).env(CELL, &key).stdin(Stdio::piped());
        // SIGTSTP stops no group whose parent is in no other group, as it may be of a test.
        command.process_group(0);
        if self.state == State::Waiting {
            return Running::start_waiting(command);
        }
        let running = Running::start(command);
        assert_eq!(running.first_line, "ready");
        running
    }

    /// The exit code and the output that are documented.
    fn expected(&self) -> (i32, &'static str) {
        let by_signal = (128 + self.signal.as_raw(), "");
        match (self.state, self.depth) {
            (State::Handled, Depth::Child) => (9, "got\n"),
            (State::Handled, Depth::Grandchild) => (9, "got\ngot\n"),
            (State::Waiting | State::Default | State::Left, _) if self.is_fatal() => by_signal,
            _ => (9, ""),
        }
    }

    fn check(&self) {
        let key = self.key();
        let cell = format!("{CELL}={key}");
        let holder = (self.state == State::Waiting).then(|| {
            let mut holder = gaggle(&self.redis.url(), &[&key, "--", "sh", "-c", "echo; read a"]);
            holder.stdin(Stdio::piped());
            Running::start(holder)
        });
        let mut running = self.start();
        if holder.is_some() {
            wait_until(|| is_queued(self.redis, &key));
        }
        running.signal(self.signal);
        if self.stops() {
            let run = running.process.id().to_string();
            // The watchdog is not stopped.
            let is_each_stopped = |stopped| {
                let command = processes(&[cell.clone(), format!("GAGGLE_KEY={key}")]);
                command.iter().chain([&run]).all(|process| is_stopped(process) == stopped)
            };
            wait_until(|| is_each_stopped(true));
            running.signal(Signal::CONT);
            wait_until(|| is_each_stopped(false));
            running.signal(Signal::TSTP);
            wait_until(|| is_each_stopped(true));
            running.signal(Signal::CONT);
        } else if self.expected() == (9, "") {
            // Long enough for the signal to have had an effect.
            thread::sleep(Duration::from_millis(100));
            assert!(running.process.try_wait().unwrap().is_none(), "{key}: it ended");
        }
        if let Some(holder) = holder {
            if self.is_fatal() {
                wait_until(|| !is_queued(self.redis, &key));
            }
            drop(holder);
            if !self.is_fatal() {
                running.read_first_line();
                assert_eq!(running.first_line, "ready", "{key}");
            }
        }
        if self.expected() == (9, "") {
            drop(running.process.stdin.take());
        }
        let (code, out, err) = running.finish();
        let (expected, printed) = self.expected();
        assert_eq!((code, out.as_str()), (Some(expected), printed), "{key}: {err}");
        // A killed process takes a moment to end.
        let is_left = (0..1_000).all(|_| {
            thread::sleep(Duration::from_millis(10));
            !processes(slice::from_ref(&cell)).is_empty()
        });
        assert!(!is_left, "{key}: a process is left");
    }
}

/// The processes with these variables. Ended ones have none.
fn processes(variables: &[String]) -> Vec<String> {
    let have_all = |process: &String| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        let entries: Vec<_> = environment.split(|byte| *byte == 0).collect();
        variables.iter().all(|variable| entries.contains(&variable.as_bytes()))
    };
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.parse::<u32>().is_ok()).filter(have_all).collect()
}

#[test]
fn each_signal_has_its_documented_effect() {
    let redis = RedisServer::start();
    thread::scope(|scope| {
        for (signal, name) in SIGNALS {
            let redis = &redis;
            scope.spawn(move || {
                for state in [State::Waiting, State::Default, State::Handled, State::Ignored] {
                    for depth in [Depth::Child, Depth::Grandchild] {
                        Cell { redis, signal, name, state, depth }.check();
                    }
                }
                let left =
                    Cell { redis, signal, name, state: State::Left, depth: Depth::Grandchild };
                if left.is_fatal() {
                    left.check();
                }
            });
        }
    });
}

/// So `killall gaggle` ends each run alone, and the watchdog its command.
#[test]
fn watchdog_has_a_name_of_its_own() {
    let redis = RedisServer::start();
    let job = ["k", "--", "sh", "-c", "echo; sleep 60"];
    let running = Running::start(gaggle(&redis.url(), &job));
    let run = running.process.id();
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    let name = |child| fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
    let names: Vec<_> = children.split_whitespace().map(name).collect();
    assert!(names.contains(&"gaggle-watchdog\n".into()), "{names:?}");
    running.signal(Signal::TERM);
    running.finish();
}

#[test]
fn each_ending_signal_ends_a_stopped_command() {
    let redis = RedisServer::start();
    let end = |(signal, name)| {
        let job = [name, "--", "sh", "-c", "ulimit -c 0; echo $$; kill -STOP $$"];
        let mut running = Running::start(gaggle(&redis.url(), &job));
        wait_until(|| is_stopped(&running.first_line));
        running.signal(signal);
        wait_until(|| running.process.try_wait().unwrap().is_some());
        assert_eq!(running.finish().0, Some(128 + signal.as_raw()), "{name}");
    };
    thread::scope(|scope| {
        SIGNALS[..4].iter().for_each(|signal| _ = scope.spawn(|| end(*signal)));
    });
}

/// systemd and others send signals to all processes.
#[test]
fn signals_leave_the_watchdog_on_guard() {
    let redis = RedisServer::start();
    let job = ["k", "--", "sh", "-c", "echo; read line; exit 7"];
    let mut command = gaggle(&redis.url(), &job);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let children = run_support::children(running.process.id());
    let name = |child: &&String| fs::read_to_string(format!("/proc/{child}/comm")).unwrap();
    let watchdog = children.iter().find(|child| name(child) == "gaggle-watchdog\n").unwrap();
    for (signal, name) in SIGNALS {
        kill_process(run_support::pid(watchdog), signal).unwrap();
        thread::sleep(Duration::from_millis(10));
        assert!(!is_stopped(watchdog) && !run_support::has_ended(watchdog), "{name}");
    }
    drop(running.process.stdin.take());
    let (code, _, err) = running.finish();
    assert!(code == Some(7) && err.is_empty(), "{err}");
}
