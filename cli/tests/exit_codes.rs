//! Goal: the exit code is 0 without a violation, 1 if a lock broke a promise or is not there, and 2
//! if the output cannot be written. Method: the built binary with each command and each form of
//! output, into a pipe, a closed pipe and `/dev/full`; locks that fail because a counter is set
//! back, or by a planted bug.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::{
    fs::File,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use gaggle::LockOptions;
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

/// The forms of output, each with the exit code of a command that ends with `code`.
fn outs(code: i32) -> [(Out, i32); 3] {
    [(Out::Pipe, code), (Out::Closed, code), (Out::Full, 2)]
}

fn start(bug: Option<&str>, arguments: &[&str], out: Out) -> Child {
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
    ends_with_bug(None, code, arguments, forms);
}

/// As [`ends_with`], with a planted bug.
fn ends_with_bug(bug: Option<&str>, code: i32, arguments: &[&str], forms: &[&[&str]]) {
    for form in forms {
        let arguments = [arguments, *form].concat();
        for (out, code) in outs(code) {
            assert_code(start(bug, &arguments, out), code, &format!("{arguments:?} into {out:?}"));
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
    for form in [table, &["--details"], &["--json"]] {
        for (out, code) in outs(1) {
            let arguments = [&small[..], form, &["--redis", &url]].concat();
            runs.push((format!("{arguments:?} into {out:?}"), code, start(None, &arguments, out)));
        }
    }
    // Sets the counters back, which loses updates as a lock without mutual exclusion does.
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    while runs.iter_mut().any(|(.., run)| run.try_wait().unwrap().is_none()) {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("gaggle/increment/*").query(&mut connection).unwrap();
        for key in keys {
            redis::cmd("SET").arg(key).arg(0).arg("XX").exec(&mut connection).unwrap();
        }
    }
    for (what, code, run) in runs {
        assert_code(run, code, &what);
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
fn printed_pages_end_with_0() {
    ends_with(0, &["man"], &[&[], &["unlock"]]);
    ends_with(0, &["completions"], &[&["bash"], &["zsh"], &["fish"]]);
    #[cfg(feature = "tls")]
    ends_with(0, &["secret"], &[&[]]);
}

#[test]
fn key_without_a_holder_ends_with_1() {
    let redis = RedisServer::start();
    let url = ["--url", &redis.url()];
    // As JSON, an empty list is no line.
    ends_with(0, &["list"], &[&url]);
    for command in [&["inspect", "k"][..], &["unlock", "--force", "k"]] {
        ends_with(1, command, &[&url, &[&url[..], &["--json"]].concat()]);
    }
}

#[test]
fn key_with_a_holder_ends_with_0() {
    let redis = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locker = runtime.block_on(gaggle::open(&redis.url())).unwrap();
    let hold = |key: &str| {
        let options = LockOptions::default().duration(Duration::from_secs(120));
        runtime.block_on(async { locker.lock_with(key, options).await.unwrap() })
    };
    let url = ["--url", &redis.url()];
    let held = hold("k");
    for command in [&["list"][..], &["inspect", "k"]] {
        ends_with(0, command, &[&url, &[&url[..], &["--json"]].concat()]);
    }
    ends_with(1, &["unlock", "--force", "--token", "0", "k"], &[&url]);
    runtime.block_on(held.unlock()).unwrap();
    // Each ends a hold of its own, also where it cannot say so.
    let text: &[&str] = &[];
    for form in [text, &["--json"]] {
        for (out, code) in outs(0) {
            let key = format!("{form:?} {out:?}");
            let held = hold(&key);
            let arguments = [&["unlock", "--force", &key][..], &url, form].concat();
            assert_code(start(None, &arguments, out), code, &format!("{arguments:?} into {out:?}"));
            assert!(runtime.block_on(held.unlock()).is_err(), "{arguments:?}: still held");
        }
    }
}

#[test]
fn bench_writes_files_without_a_table() {
    let file = std::env::temp_dir().join(format!("gaggle-full-{}.json", std::process::id()));
    let arguments =
        ["bench", "--strategy", "local", "--duration", "200ms", "--json", file.to_str().unwrap()];
    assert_code(start(None, &arguments, Out::Full), 2, "a full device");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().map(Vec::len), Some(1));
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn full_standard_error_loses_no_results() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(["bench", "--strategy", "local", "--rounds", "2", "--duration", "200ms"]);
    let Output { status, stdout, .. } =
        command.stderr(File::create("/dev/full").unwrap()).output().unwrap();
    assert_eq!((status.code(), stdout.is_empty()), (Some(0), false));
}

#[test]
#[cfg(feature = "planted-bugs")]
fn falling_tokens_end_bench_with_1() {
    let small = ["bench", "--strategy", "local", "--workload", "uncontended"];
    let small = [&small[..], &["--duration", "200ms"]].concat();
    ends_with_bug(Some("token-reset"), 1, &small, &[&[], &["--details"], &["--json", "-"]]);
}

#[test]
#[cfg(all(feature = "planted-bugs", feature = "simulator"))]
fn simulated_violation_ends_with_1() {
    let batch = ["simulate", "--from", "0", "--seeds", "40"];
    let batch = [&batch[..], &["--save", env!("CARGO_TARGET_TMPDIR")]].concat();
    ends_with_bug(Some("reply-before-commit"), 1, &batch, &[&[], &["--json"]]);
}

#[test]
#[cfg(feature = "simulator")]
fn sound_simulation_ends_with_0() {
    ends_with(0, &["simulate", "--from", "4", "--seeds", "3"], &[&[], &["--json"]]);
    ends_with(0, &["simulate", "--seed", "4"], &[&[], &["--trace"]]);
}
