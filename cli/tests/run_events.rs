//! Goal: `gaggle run --json` prints every event as one JSON object, and nothing else, on standard
//! error. Method: the built binary, a `redis-server` of the test's own, and shell commands as jobs.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    io::{Read as _, pipe},
    process::Command,
    thread,
};

use gaggle_fixtures::RedisServer;
use run_support::{Running, fill, finish, force_unlock, gaggle, wait_until};
use rustix::{
    fs::{OFlags, fcntl_setfl},
    process::Signal,
};
use serde_json::{Value, json};

/// The objects, one a line.
fn objects(err: &str) -> Vec<Value> {
    let lines = err.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The names of the events, and the last object.
fn events(err: &str) -> (Vec<String>, Value) {
    let objects = objects(err);
    let name = |it: &Value| it["event"].as_str().unwrap().to_owned();
    (objects.iter().map(name).collect(), objects.last().cloned().unwrap_or_default())
}

fn run(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    finish(gaggle(url, &[&["--json"], arguments].concat()))
}

#[test]
fn run_is_granted_ended_and_unlocked() {
    let redis = RedisServer::start();
    let show = "echo $GAGGLE_FENCING_TOKEN $GAGGLE_NONCE; exit 7";
    let (code, out, err) = run(&redis.url(), &["a \"b", "--", "sh", "-c", show]);
    assert_eq!(code, Some(7), "{err}");
    let objects = objects(&err);
    let (token, nonce) = out.trim_end().split_once(' ').unwrap();
    let waited = objects[0]["waited_ms"].as_u64().unwrap();
    assert!(waited < 5_000, "{err}");
    let granted = json!({
        "event": "granted", "key": "a \"b", "token": token.parse::<u64>().unwrap(),
        "nonce": nonce, "duration_ms": 10_000, "waited_ms": waited,
    });
    let ended = json!({ "event": "ended", "key": "a \"b", "code": 7 });
    assert_eq!(objects, [granted, ended, json!({ "event": "unlocked", "key": "a \"b" })]);

    let (_, _, err) = run(&redis.url(), &["--at-least", "5s", "k", "--", "true"]);
    let (names, last) = events(&err);
    assert_eq!(names, ["granted", "ended", "kept"]);
    // The lease is longer.
    let for_ms = last["for_ms"].as_u64().unwrap();
    assert!((remaining_ms(&redis)..=10_200).contains(&for_ms), "{err}");
    assert!(for_ms > 9_000, "{err}");
}

#[test]
fn held_key_and_signals_are_events() {
    let redis = RedisServer::start();
    // The shell reports a `sleep` that is ended.
    let job = "exec 2>/dev/null; trap 'exit 3' TERM; echo $PPID; while :; do sleep 0.05; done";
    let arguments = ["--json", "--label", "nightly", "k", "--", "sh", "-c", job];
    let holder = Running::start(gaggle(&redis.url(), &arguments));
    for (options, event) in [(["--max-wait", "0s"], "held"), (["--max-wait", "50ms"], "timed_out")]
    {
        let (code, _, err) = run(&redis.url(), &[&options[..], &["k", "--", "true"]].concat());
        let (names, last) = events(&err);
        assert_eq!((code, names), (Some(124), vec![event.to_owned()]), "{err}");
        assert_eq!(last["holder"]["label"], "nightly", "{err}");
        assert_eq!(last["holder"]["pid"].to_string(), holder.first_line, "{err}");
        assert_eq!(last["waited_ms"].is_u64(), event == "timed_out", "{err}");
        assert!(last["text"].as_str().unwrap().ends_with("(nightly); not run"), "{err}");
    }
    let waiter = gaggle(&redis.url(), &["--json", "--max-wait", "30s", "k", "--", "true"]);
    let waiter = Running::start_waiting(waiter);
    wait_until(|| run_support::is_queued(&redis, "k"));
    waiter.signal(Signal::HUP);
    let (code, _, err) = waiter.finish();
    assert_eq!(
        (code, &*err),
        (Some(129), "{\"event\":\"interrupted\",\"key\":\"k\",\"signal\":\"SIGHUP\"}\n")
    );

    holder.signal(Signal::TERM);
    let (code, _, err) = holder.finish();
    let (names, _) = events(&err);
    assert_eq!(code, Some(3), "{err}");
    assert_eq!(names, ["granted", "signalled", "ended", "unlocked"]);
    assert_eq!(objects(&err)[1]["signal"], "SIGTERM");
}

#[test]
fn loss_has_its_cause() {
    let redis = RedisServer::start();
    let job = "trap '' TERM; echo; sleep 60 & wait; sleep 60";
    let options = ["--json", "--kill-after", "100ms", "k", "--", "sh", "-c", job];
    let holder = Running::start(gaggle(&redis.url(), &options));
    assert!(force_unlock(&redis, "it's stuck"));
    let (code, _, err) = holder.finish();
    let (names, last) = events(&err);
    assert_eq!((code, names), (Some(123), vec!["granted".to_owned(), "lost".to_owned()]), "{err}");
    assert_eq!((&last["cause"], &last["command"]), (&"forced".into(), &"killed".into()), "{err}");
    assert!(last["by"].as_str().unwrap().ends_with("it's stuck"), "{err}");
    assert!(last["text"].as_str().unwrap().ends_with("it's stuck"), "{err}");

    let options = ["--duration", "1s", "--max-hold", "1s", "k", "--", "sleep", "60"];
    let (code, _, err) = run(&redis.url(), &options);
    let last = objects(&err).into_iter().find(|it| it["event"] == "lost").unwrap();
    assert_eq!(code, Some(123), "{err}");
    assert_eq!((&last["cause"], &last["command"]), (&"max_hold".into(), &"terminated".into()));
    assert_eq!(last["by"], Value::Null);
}

/// What is left of the lease of the key `k`.
fn remaining_ms(redis: &RedisServer) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    let output = command.args(["inspect", "k", "--json"]).env("GAGGLE_URL", redis.url()).output();
    let found: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    found["remaining_ms"].as_u64().unwrap_or_default()
}

#[test]
fn stalled_reader_delays_no_extension() {
    let redis = RedisServer::start();
    let (mut reader, writer) = pipe().unwrap();
    // The command does not share the stream.
    let job =
        "exec 2>/dev/null; trap echo USR1; trap 'exit 3' TERM; echo; while :; do sleep 0.05; done";
    let options = ["--json", "--duration", "3s", "k", "--", "sh", "-c", job];
    let mut command = gaggle(&redis.url(), &options);
    command.stderr(writer.try_clone().unwrap());
    let mut holder = Running::start_with_output(command);
    holder.read_first_line();
    fill(&writer);
    drop(writer);

    holder.signal(Signal::USR1);
    holder.read_first_line();
    let (mut last, mut extensions) = (u64::MAX, 0);
    wait_until(|| {
        let now = remaining_ms(&redis);
        extensions += u32::from(now > last);
        last = now;
        extensions == 2
    });
    holder.signal(Signal::TERM);
    let reader = thread::spawn(move || {
        let mut err = String::new();
        reader.read_to_string(&mut err).unwrap();
        err
    });
    assert_eq!(holder.process.wait().unwrap().code(), Some(3));
    let err = reader.join().unwrap();
    let (names, _) = events(&err);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(names, ["granted", "signalled", "signalled", "ended", "unlocked"]);
}

#[test]
fn signal_ends_the_wait_for_a_stalled_reader() {
    let redis = RedisServer::start();
    let (_reader, writer) = pipe().unwrap();
    fill(&writer);
    let job = "exec 2>/dev/null; echo; exit 3";
    let mut command = gaggle(&redis.url(), &["--json", "k", "--", "sh", "-c", job]);
    command.stderr(writer);
    let mut run = Running::start_with_output(command);
    run.read_first_line();
    wait_until(|| remaining_ms(&redis) == 0);
    wait_until(|| {
        run.signal(Signal::TERM);
        run.process.try_wait().unwrap().is_some()
    });
    assert_eq!(run.process.wait().unwrap().code(), Some(3));
}

#[test]
fn non_blocking_stream_loses_no_event() {
    let redis = RedisServer::start();
    let (mut reader, writer) = pipe().unwrap();
    fill(&writer);
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let mut command = gaggle(&redis.url(), &["--json", "k", "--", "echo"]);
    command.stderr(writer);
    let mut run = Running::start_with_output(command);
    // The line comes after `granted`.
    run.read_first_line();
    let mut err = String::new();
    reader.read_to_string(&mut err).unwrap();
    assert_eq!(run.process.wait().unwrap().code(), Some(0));
    assert_eq!(events(&err).0, ["granted", "ended", "unlocked"], "{err}");
}

#[test]
fn failures_are_events() {
    let redis = RedisServer::start();
    let label = "l".repeat(257);
    let with_password = "redis://:secret@127.0.0.1:1";
    for (url, arguments, code, names) in [
        (
            &*redis.url(),
            &["k", "--", "/not/there"] as &[&str],
            127,
            &["granted", "not_executed", "ended", "unlocked"] as &[&str],
        ),
        (&redis.url(), &["--label", &label, "k", "--", "true"], 125, &["failed"]),
        ("local:", &["k", "--", "true"], 125, &["failed"]),
        ("redis://127.0.0.1:1?queue=lifo", &["k", "--", "true"], 125, &["failed"]),
        ("redis://127.0.0.1:1", &["--try", "k", "--", "true"], 122, &["unavailable"]),
        (
            "",
            &["--url", with_password, "--try", "k", "--", "true"],
            122,
            &["warning", "unavailable"],
        ),
        ("", &["--url", with_password, "--try", "-q", "k", "--", "true"], 122, &["unavailable"]),
    ] {
        let (exit, _, err) = run(url, arguments);
        let (found, last) = events(&err);
        assert_eq!(
            (exit, &*found),
            (Some(code), &*names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()),
            "{err}"
        );
        if names.ends_with(&["unavailable"]) {
            assert_eq!(
                (&last["kind"], &last["server"]),
                (&"unreachable".into(), &"127.0.0.1:1".into())
            );
            assert!(
                last["text"].as_str().unwrap().contains("cannot reach Redis at 127.0.0.1:1"),
                "{err}"
            );
        }
    }
}
