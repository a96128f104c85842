//! Goal: the exit code is 0 without a violation, 1 if a lock broke a promise, and 2 if the output
//! cannot be written. Method: the built binary with each command and each form of output, into a
//! pipe, a closed pipe and `/dev/full`; locks that fail because a counter is set back, or by a
//! planted bug.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fs::File,
    process::{Child, Command, Output, Stdio},
};

use gaggle_channels::testing::RedisServer;

/// The standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Pipe,
    /// A pipe whose reader has closed it.
    Closed,
    /// A device without space.
    Full,
}

fn start(arguments: &[&str], out: Out) -> Child {
    start_with(None, arguments, out)
}

fn start_with(bug: Option<&str>, arguments: &[&str], out: Out) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    match bug {
        Some(bug) => command.env("GAGGLE_BUG", bug),
        None => command.env_remove("GAGGLE_BUG"),
    };
    command.stdout(match out {
        Out::Pipe | Out::Closed => Stdio::piped(),
        Out::Full => File::create("/dev/full").unwrap().into(),
    });
    let mut child = command.spawn().unwrap();
    if out == Out::Closed {
        drop(child.stdout.take());
    }
    child
}

fn assert_code(child: Child, code: i32, what: &str) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(code), "{what}: {out}{err}");
    assert_eq!(err.contains("standard output: No space left"), code == 2, "{what}: {err}");
}

/// Runs these arguments in each of these forms of output.
fn ends_with(code: i32, arguments: &[&str], forms: &[&[&str]]) {
    for form in forms {
        let arguments = [arguments, *form].concat();
        for (out, code) in [(Out::Pipe, code), (Out::Closed, code), (Out::Full, 2)] {
            assert_code(start(&arguments, out), code, &format!("{arguments:?} into {out:?}"));
        }
    }
}

#[test]
fn increment_without_a_loss_ends_with_0() {
    let small = ["increment", "--strategy", "local", "--increments", "2", "--work", "1ms"];
    ends_with(0, &small, &[&[], &["--details"], &["--json"]]);
}

#[test]
fn increment_that_loses_updates_ends_with_1() {
    let redis = RedisServer::start();
    let url = redis.url();
    let small = ["increment", "--strategy", "local", "--increments", "40", "--work", "5ms"];
    let mut runs = Vec::new();
    let table: &[&str] = &[];
    for form in [table, &["--json"]] {
        for out in [Out::Pipe, Out::Closed] {
            let arguments = [&small[..], form, &["--redis", &url]].concat();
            runs.push((format!("{arguments:?} into {out:?}"), start(&arguments, out)));
        }
    }
    // Sets the counters back, which loses updates as a lock without mutual exclusion does.
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    while runs.iter_mut().any(|(_, run)| run.try_wait().unwrap().is_none()) {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("gaggle/increment/*").query(&mut connection).unwrap();
        for key in keys {
            redis::cmd("SET").arg(key).arg(0).arg("XX").exec(&mut connection).unwrap();
        }
    }
    for (what, run) in runs {
        assert_code(run, 1, &what);
    }
}

#[test]
fn bench_of_a_sound_lock_ends_with_0() {
    let small = ["bench", "--strategy", "local", "--workload", "handoff", "--duration", "200ms"];
    ends_with(0, &small, &[&[], &["--details"], &["--json", "-"]]);
}

#[test]
fn help_and_version_end_with_0() {
    ends_with(0, &[], &[&["--version"], &["--help"], &["bench", "-h"], &["increment", "--help"]]);
}

#[test]
fn bench_writes_files_without_a_table() {
    let file = std::env::temp_dir().join(format!("gaggle-full-{}.json", std::process::id()));
    let arguments =
        ["bench", "--strategy", "local", "--duration", "200ms", "--json", file.to_str().unwrap()];
    assert_code(start(&arguments, Out::Full), 2, "a full device");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
    std::fs::remove_file(&file).unwrap();
}

#[test]
#[cfg(feature = "planted-bugs")]
fn falling_tokens_end_bench_with_1() {
    let small = ["bench", "--strategy", "local", "--workload", "uncontended"];
    let small = [&small[..], &["--duration", "200ms"]].concat();
    let table: &[&str] = &[];
    for form in [table, &["--json", "-"]] {
        let arguments = [&small[..], form].concat();
        for (out, code) in [(Out::Pipe, 1), (Out::Closed, 1), (Out::Full, 2)] {
            let what = format!("{arguments:?} into {out:?}");
            assert_code(start_with(Some("token-reset"), &arguments, out), code, &what);
        }
    }
}

#[test]
#[cfg(all(feature = "planted-bugs", feature = "simulator"))]
fn simulated_violation_ends_with_1() {
    let batch = ["simulate", "--from", "0", "--seeds", "40"];
    let batch = [&batch[..], &["--save", env!("CARGO_TARGET_TMPDIR")]].concat();
    let text: &[&str] = &[];
    for form in [text, &["--json"]] {
        let arguments = [&batch[..], form].concat();
        for (out, code) in [(Out::Pipe, 1), (Out::Closed, 1), (Out::Full, 2)] {
            let what = format!("{arguments:?} into {out:?}");
            assert_code(start_with(Some("reply-before-commit"), &arguments, out), code, &what);
        }
    }
}

#[test]
#[cfg(feature = "simulator")]
fn sound_simulation_ends_with_0() {
    ends_with(0, &["simulate", "--from", "4", "--seeds", "3"], &[&[], &["--json"]]);
    ends_with(0, &["simulate", "--seed", "4"], &[&[], &["--trace"]]);
}
