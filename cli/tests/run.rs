//! Goal: `gaggle run` runs a command exactly while its key is locked, forwards signals, and ends
//! with the documented exit codes. Method: the built binary, a `redis-server` of the test's own,
//! and shell commands as jobs.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

use gaggle_channels::testing::RedisServer;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn gaggle(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.arg("run").args(arguments).stdin(Stdio::null());
    command.env_remove("RUST_LOG").env("GAGGLE_URL", url);
    command
}

/// The exit code, the standard output and the standard error.
fn finish(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// A job that has printed its first line.
struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
    first_line: String,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first_line = String::new();
        output.read_line(&mut first_line).unwrap();
        Self { process, output, first_line: first_line.trim().to_owned() }
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(&self.process.id().to_string()), signal).unwrap();
    }

    fn finish(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.output.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code(), out, err)
    }
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

/// Whether the process has ended; a zombie has.
fn has_ended(process: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.contains(") Z ") || test_kill_process(pid(process)).is_err()
}

#[test]
fn exit_code_is_that_of_the_command() {
    let redis = RedisServer::start();
    let script = std::env::temp_dir().join(format!("gaggle-run-{}", std::process::id()));
    fs::write(&script, "").unwrap();
    let not_executable = script.to_str().unwrap();
    for (command, code) in [
        (&["true"] as &[&str], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["/not/there"], 127),
        (&[not_executable], 126),
    ] {
        let (exit, out, err) = finish(gaggle(&redis.url(), &[&["k", "--"], command].concat()));
        assert_eq!((exit, out.as_str()), (Some(code), ""), "{command:?}: {err}");
        assert_eq!(err.contains("cannot be executed"), matches!(code, 126 | 127), "{err}");
    }
    fs::remove_file(script).unwrap();
}

#[test]
fn command_finds_lock_in_environment() {
    let redis = RedisServer::start();
    let url = redis.url().replace("//", "//default:@");
    let show = "echo $GAGGLE_KEY $GAGGLE_FENCING_TOKEN $GAGGLE_NONCE $GAGGLE_URL; cat";
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let (code, out, err) = finish(gaggle(&url, &["a b", "--", "sh", "-c", show]));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let words: Vec<_> = out.split_whitespace().collect();
        assert_eq!((words.len(), words[0], words[1], words[3].len()), (5, "a", "b", 32), "{out}");
        assert!(!words[4].contains(":@"), "{out}");
        tokens.push(words[2].parse::<u64>().unwrap());
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn held_key_runs_nothing() {
    let redis = RedisServer::start();
    let arguments = ["--label", "nightly", "k", "--", "sh", "-c", "echo $PPID; read line"];
    let mut holder = gaggle(&redis.url(), &arguments);
    holder.stdin(Stdio::piped());
    let mut holder = Running::start(holder);
    for (options, code, is_quiet) in [
        (&["--try"] as &[&str], 124, false),
        (&["--max-wait", "50ms"], 124, false),
        (&["--try", "--quiet", "--exit-not-acquired", "0"], 0, true),
    ] {
        let arguments = [options, &["k", "--", "echo", "ran"]].concat();
        let (exit, out, err) = finish(gaggle(&redis.url(), &arguments));
        assert_eq!((exit, out.as_str()), (Some(code), ""), "{err}");
        let pid = format!("pid {} (nightly)", holder.first_line);
        assert_eq!((err.contains(&pid), err.is_empty()), (!is_quiet, is_quiet), "{err}");
    }
    // The waiter runs after the holder's command has ended.
    let waiter = gaggle(&redis.url(), &["k", "--", "echo", "ran"]).stdout(Stdio::piped()).spawn();
    drop(holder.process.stdin.take());
    assert_eq!(holder.finish().0, Some(1), "read at the end of its input");
    let output = waiter.unwrap().wait_with_output().unwrap();
    assert_eq!(output.stdout, b"ran\n");
}

#[test]
fn redis_may_start_within_max_wait() {
    let mut redis = RedisServer::start();
    redis.stop();
    for (options, code) in [(["--max-wait", "300ms"], 122), (["--max-wait", "20s"], 0)] {
        let arguments = [&options[..], &["k", "--", "true"]].concat();
        let started = gaggle(&redis.url(), &arguments).stderr(Stdio::null()).spawn().unwrap();
        if code == 0 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            redis.restart();
        }
        assert_eq!(started.wait_with_output().unwrap().status.code(), Some(code));
    }
}

#[test]
fn ignored_signal_ends_nothing() {
    let redis = RedisServer::start();
    let ignore = "trap '' INT TERM HUP QUIT USR1 USR2 WINCH TSTP;";
    let child = format!("{ignore} echo $$; read line; echo child");
    let job = format!("{ignore} bash -c \"$0\"; echo command; exit 9");
    let mut command = gaggle(&redis.url(), &["k", "--", "bash", "-c", &job, &child]);
    let mut running = Running::start({
        command.stdin(Stdio::piped());
        command
    });
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1];
    for signal in signals.into_iter().chain([Signal::USR2, Signal::WINCH, Signal::TSTP]) {
        running.signal(signal);
    }
    let child = running.first_line.clone();
    std::thread::sleep(std::time::Duration::from_millis(100));
    drop(running.process.stdin.take());
    let (code, out, err) = running.finish();
    assert_eq!((code, out.as_str()), (Some(9), "child\ncommand\n"), "{err}");
    assert!(has_ended(&child));
}

#[test]
fn stopped_command_stops_run() {
    let redis = RedisServer::start();
    let child = "echo $$; while :; do sleep 0.01; done";
    let options = ["--duration", "60s", "k", "--", "bash", "-c", "bash -c \"$0\"; exit 9"];
    let running = Running::start(gaggle(&redis.url(), &[&options[..], &[child]].concat()));
    let run = running.process.id().to_string();
    let child = running.first_line.clone();
    let is_stopped = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        stat.contains(") T ")
    };
    for _ in 0..3 {
        running.signal(Signal::TSTP);
        wait_until(|| is_stopped(&run) && is_stopped(&child));
        running.signal(Signal::CONT);
        wait_until(|| !is_stopped(&run) && !is_stopped(&child));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.finish().0, Some(143));
    assert!(has_ended(&child));
}

#[test]
fn key_is_kept_for_at_least() {
    let redis = RedisServer::start();
    let options = ["--at-least", "60s", "--duration", "1s"];
    let kept = |key| {
        Running::start(gaggle(
            &redis.url(),
            &[&options[..], &[key, "--", "sh", "-c", "echo; exit 5"]].concat(),
        ))
    };
    let job = kept("k");
    let (code, ..) = finish(gaggle(&redis.url(), &["--max-wait", "300ms", "k", "--", "true"]));
    assert_eq!(code, Some(124));
    // A signal leaves the rest to the lease.
    job.signal(Signal::TERM);
    assert_eq!(job.finish().0, Some(5));
    let (code, ..) = finish(gaggle(&redis.url(), &["--try", "k", "--", "true"]));
    assert_eq!(code, Some(124));
}

#[test]
fn bad_input_is_refused_before_any_request() {
    let long = "k".repeat(1_025);
    let label = "l".repeat(257);
    let member = "gaggle+tcp://127.0.0.1:1?cluster=c&name=a&peers=a@127.0.0.1:1";
    let url = "redis://127.0.0.1:1";
    for (arguments, part) in [
        (&["k"] as &[&str], "<COMMAND>"),
        (&["k", "--"], "<COMMAND>"),
        (&["k", "true"], "<KEY> -- <COMMAND>"),
        (&["--", "true"], "<KEY>"),
        (&["", "--", "true"], "0 bytes: give 1 to 1024"),
        (&[&long, "--", "true"], "1025 bytes: give 1 to 1024"),
        (&["--label", &label, "k", "--", "true"], "257 bytes: give at most 256"),
        (&["--kill-after", "10s", "k", "--", "true"], "half of --duration, 5s"),
        (&["--max-hold", "9s", "k", "--", "true"], "at least --duration, 10s"),
        (&["--at-least", "25h", "k", "--", "true"], "--max-hold, 24h"),
        (&["--duration", "1", "k", "--", "true"], "ms, s, m or h, 100ms to 24h"),
        (&["--max-wait", "never", "k", "--", "true"], "or forever"),
        (&["--try", "--max-wait", "1s", "k", "--", "true"], "cannot be used with"),
        (&["--exit-lost", "256", "k", "--", "true"], "--exit-lost"),
        (&["--url", url, "--url-file", "/x", "k", "--", "true"], "cannot be used with"),
        (&["--url-file", "/not/there", "k", "--", "true"], "/not/there: No such file"),
        (&["--url", "local:", "k", "--", "true"], "excludes no other process"),
        (&["--url", "noop:", "k", "--", "true"], "excludes no other process"),
        (&["--url", member, "k", "--", "true"], "voting member"),
        (&["--url", "redis+sentinel://h", "k", "--", "true"], "the path is not /MASTER"),
        (&["--url", "redis://h?queue=lifo", "k", "--", "true"], "option queue"),
        (&["--url", "h:secret@", "k", "--", "true"], "unknown scheme"),
    ] {
        let (code, out, err) = finish(gaggle(url, arguments));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{arguments:?}: {err}");
        assert!(err.contains(part) && !err.contains("secret"), "{arguments:?}: {err}");
    }
    let mut command = gaggle("redis://127.0.0.1:1", &[]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff")).args(["--", "true"]);
    let (code, _, err) = finish(command);
    assert!(code == Some(125) && err.contains("not UTF-8"), "{err}");
    let (code, _, err) = finish(gaggle("", &["k", "--", "true"]));
    assert!(code == Some(125) && err.contains("set GAGGLE_URL, or give --url"), "{err}");
}

#[test]
fn password_needs_a_private_file() {
    let with_password = "redis://:secret@127.0.0.1:1";
    let (code, _, err) = finish(gaggle("", &["--try", "--url", with_password, "k", "--", "true"]));
    assert!(code == Some(122) && err.contains("set GAGGLE_URL, or give --url-file"), "{err}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gaggle-run-url");
    fs::write(&path, format!("{with_password}\n")).unwrap();
    for (mode, code, part) in [(0o644, 125, "chmod 600"), (0o600, 122, "not locked at 127.0.0.1:1")]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let arguments = ["--try", "--url-file", path.to_str().unwrap(), "k", "--", "true"];
        let (exit, _, err) = finish(gaggle("", &arguments));
        assert!(exit == Some(code) && err.contains(part) && !err.contains("secret"), "{err}");
    }
    fs::remove_file(path).unwrap();
}

#[test]
fn broken_streams_keep_the_exit_code() {
    let redis = RedisServer::start();
    for redirection in ["<&- >&- 2>&-", ">/dev/full 2>/dev/full"] {
        for (command, code) in [("sh -c 'exit 7'", 7), ("/not/there", 127)] {
            let program = env!("CARGO_BIN_EXE_gaggle");
            let line = format!("'{program}' run k -- {command} {redirection}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).env("GAGGLE_URL", redis.url());
            assert_eq!(finish(shell).0, Some(code), "{line}");
        }
    }
}

#[test]
fn signal_withdraws_a_waiting_request() {
    let redis = RedisServer::start();
    let job = ["k", "--", "sh", "-c", "echo; exec sleep 60"];
    let holder = Running::start(gaggle(&redis.url(), &job));
    let ends = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
    for signal in ends {
        // Its standard error is open before its signals are received: wait until it waits.
        let waiting = ["--max-wait", "forever", "k", "--", "echo", "ran"];
        let waiter = gaggle(&redis.url(), &waiting).stdout(Stdio::piped()).spawn().unwrap();
        wait_until(|| is_queued(&redis));
        for harmless in [Signal::WINCH, Signal::CONT] {
            kill_process(pid(&waiter.id().to_string()), harmless).unwrap();
        }
        kill_process(pid(&waiter.id().to_string()), signal).unwrap();
        let Output { status, stdout, .. } = waiter.wait_with_output().unwrap();
        assert_eq!((status.code(), stdout.as_slice()), (Some(128 + signal.as_raw()), &b""[..]));
        wait_until(|| !is_queued(&redis));
    }
    holder.signal(Signal::TERM);
    assert_eq!(holder.finish().0, Some(143));
}

#[test]
fn signal_reaches_command_and_child() {
    let redis = RedisServer::start();
    let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT"];
    let signals = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::WINCH,
        Signal::CONT,
    ];
    for (name, signal) in names.into_iter().zip(signals) {
        // The child is no background job of the shell, where it would ignore INT and QUIT.
        let wait = "while :; do sleep 0.01; done";
        let child = format!("trap 'echo child; exit' {name}; echo; {wait}");
        let job = format!("trap : {name}; bash -c \"$0\"; echo command; exit 9");
        let arguments = ["k", "--", "bash", "-c", &job, &child];
        let running = Running::start(gaggle(&redis.url(), &arguments));
        running.signal(signal);
        let (code, out, err) = running.finish();
        assert_eq!((code, out.as_str()), (Some(9), "child\ncommand\n"), "{name}: {err}");
    }
}

#[test]
fn process_group_ends_with_command() {
    let redis = RedisServer::start();
    let leave = "sh -c 'trap \"\" TERM; sleep 60' & echo $!; exit 3";
    let options = ["--kill-after", "100ms", "k", "--", "sh", "-c", leave];
    let running = Running::start(gaggle(&redis.url(), &options));
    let left = running.first_line.clone();
    assert_eq!(running.finish().0, Some(3));
    assert!(has_ended(&left), "{left}");
}

#[test]
fn deadline_kills_if_sigterm_is_ignored() {
    let redis = RedisServer::start();
    for (job, part) in [("", "held for --max-hold 400ms"), ("trap '' TERM;", "--max-hold 400ms")] {
        let options = ["--duration", "300ms", "--max-hold", "400ms", "k", "--", "sh", "-c"];
        let job = format!("{job} echo $$; sleep 60; sleep 60");
        let running = Running::start(gaggle(&redis.url(), &[&options[..], &[&job]].concat()));
        let command = running.first_line.clone();
        let (code, _, err) = running.finish();
        assert!(code == Some(123) && err.contains(part), "{code:?}: {err}");
        assert!(has_ended(&command));
    }
}

/// Whether a second acquisition waits for a key.
fn is_queued(redis: &RedisServer) -> bool {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("gaggle*").query(&mut connection).unwrap();
    keys.iter().any(|key| key.contains(":f:"))
}

fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("the condition is not met within 5 s");
}
