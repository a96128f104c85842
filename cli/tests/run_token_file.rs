//! Goal: `--token-file` writes the fencing token whole before the command starts, and refuses what
//! it cannot write before any request. Method: the built binary, a `redis-server` of the test's
//! own, and shells that open descriptors.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use gaggle_fixtures::RedisServer;
use run_support::{Running, finish, gaggle, is_queued, wait_until};

/// An empty folder of this test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("token-file-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

/// A shell that runs `gaggle run` with these arguments and redirections.
fn shell(url: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    let line = format!("exec '{}' run {line}", env!("CARGO_BIN_EXE_gaggle"));
    command.args(["-c", &line]).env("GAGGLE_URL", url).env_remove("RUST_LOG");
    command
}

#[test]
fn command_finds_the_token_in_the_file() {
    let redis = RedisServer::start();
    let folder = folder("path");
    let path = folder.join("token");
    let show = format!("cat '{}'; echo $GAGGLE_FENCING_TOKEN", path.display());
    let mut before = 0;
    for _ in 0..2 {
        let arguments = ["--token-file", path.to_str().unwrap(), "k", "--", "sh", "-c", &show];
        let (code, out, err) = finish(gaggle(&redis.url(), &arguments));
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let tokens: Vec<u64> = out.lines().map(|line| line.parse().unwrap()).collect();
        assert!(tokens.len() == 2 && tokens[0] == tokens[1] && tokens[0] > before, "{out}");
        before = tokens[0];
    }
    assert_eq!(names(&folder), ["token"]);
    // In the folder where it runs.
    let mut command = gaggle(&redis.url(), &["--token-file", "7x", "k", "--", "cat", "7x"]);
    command.current_dir(&folder);
    let (code, out, err) = finish(command);
    assert!(code == Some(0) && out.trim_end().parse::<u64>().is_ok(), "{err}");
}

#[test]
fn token_is_written_to_a_descriptor() {
    let redis = RedisServer::start();
    let path = folder("descriptor").join("token");
    fs::write(&path, "former\n").unwrap();
    let show = "echo $GAGGLE_FENCING_TOKEN";
    let file = path.display();
    for (line, before) in [
        (format!("--token-file 3 k -- sh -c '{show}' 3>>'{file}'"), "former\n"),
        (format!("--token-file 3 k -- sh -c '{show}' 3>'{file}'"), ""),
        (format!("--token-file 3 k -- sh -c '{show}' 3<>'{file}'"), ""),
    ] {
        if before.is_empty() {
            fs::write(&path, "").unwrap();
        }
        let (code, out, err) = finish(shell(&redis.url(), &line));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{line}");
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}{out}"), "{line}");
    }
    // A pipe.
    let line = format!("--token-file 3 k -- sh -c '{show}' 3>&1");
    let (code, out, err) = finish(shell(&redis.url(), &line));
    let lines: Vec<_> = out.lines().collect();
    assert!(code == Some(0) && lines.len() == 2 && lines[0] == lines[1], "{out}{err}");
}

#[test]
fn wrong_token_file_is_refused_before_any_request() {
    let folder = folder("wrong");
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("file"), "").unwrap();
    symlink(at("file"), at("link")).unwrap();
    for (target, redirection, part) in [
        ("1", "", "are the streams of the command: give 3 or more"),
        ("3", "3>&-", "no such descriptor is open: open it by `3>FILE`"),
        ("99999999999", "", "no such descriptor is open"),
        ("3", "3</dev/null", "the descriptor cannot be written"),
        ("''", "", "it is no regular file"),
        ("/dev/null", "", "it is no regular file"),
        ("/", "", "it is no regular file"),
        (&at("sub"), "", "it is no regular file"),
        (&at("link"), "", "it is no regular file"),
        (&at("new/"), "", "it is no regular file"),
        (&at("not/there"), "", "no file can be created in its folder: No such file"),
        (&at("file/x"), "", "no file can be created in its folder: Not a directory"),
        ("/proc/x", "", "no file can be created in its folder: "),
    ] {
        let line = format!("--token-file {target} k -- true {redirection}");
        let (code, out, err) = finish(shell("redis://127.0.0.1:1", &line));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{line}: {err}");
        assert!(err.starts_with("gaggle: --token-file ") && err.contains(part), "{line}: {err}");
    }
    // The end of a pipe that is read.
    let mut command = Command::new("sh");
    let line =
        format!("true | '{}' run --token-file 3 k -- true 3<&0", env!("CARGO_BIN_EXE_gaggle"));
    command.args(["-c", &line]).env("GAGGLE_URL", "redis://127.0.0.1:1");
    let (code, _, err) = finish(command);
    assert!(code == Some(125) && err.contains("the descriptor cannot be written"), "{err}");
    assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(names(&folder).len(), 3);
}

#[test]
fn token_that_is_not_written_unlocks_the_key() {
    let redis = RedisServer::start();
    let full = "--token-file 3 k -- echo ran 3>/dev/full";
    let (code, out, err) = finish(shell(&redis.url(), full));
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    let expected = "gaggle: --token-file 3: No space left on device (os error 28); not run; the \
                    key is unlocked again\n";
    assert_eq!(err, expected);

    // The limit's signal would end the run.
    let limited = folder("limited");
    let target = limited.join("token");
    let script = "ulimit -f 0; exec \"$0\" run --token-file \"$1\" k -- echo ran";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_gaggle")]).arg(&target);
    command.env("GAGGLE_URL", redis.url());
    let (code, out, err) = finish(command);
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    assert!(err.contains("File too large") && err.contains("is unlocked again"), "{err}");
    assert_eq!(names(&limited).len(), 0);

    // The path is taken while the run waits for the key.
    let folder = folder("late");
    let path = folder.join("token");
    let mut holder = gaggle(&redis.url(), &["--try", "k", "--", "sh", "-c", "echo; read line"]);
    holder.stdin(std::process::Stdio::piped());
    let mut holder = Running::start(holder);
    let target = path.to_str().unwrap();
    let waiter = ["--json", "--max-wait", "30s", "--token-file", target, "k", "--", "echo", "ran"];
    let waiter = Running::start_waiting(gaggle(&redis.url(), &waiter));
    wait_until(|| is_queued(&redis, "k"));
    fs::create_dir(&path).unwrap();
    drop(holder.process.stdin.take());
    holder.finish();
    let (code, out, err) = waiter.finish();
    assert_eq!((code, out.as_str()), (Some(125), ""), "{err}");
    let events: Vec<serde_json::Value> =
        err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = events.iter().map(|it| it["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["granted", "unlocked", "failed"], "{err}");
    assert!(err.contains("Is a directory"), "{err}");
    assert_eq!(names(&folder), ["token"]);
    let (code, _, err) = finish(gaggle(&redis.url(), &["--try", "k", "--", "true"]));
    assert_eq!(code, Some(0), "{err}");
}
