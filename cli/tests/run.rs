//! Goal: `gaggle run` runs a command exactly while its key is locked, and ends with the documented
//! exit codes. Method: the built binary, a `redis-server` of the test's own, and shell commands as
//! jobs.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(clippy::disallowed_methods, reason = "real processes need the real clock")]

mod run_support;

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::PathBuf,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use gaggle_fixtures::{Proxy, RedisServer};
use run_support::{Running, finish, force_unlock, gaggle, is_queued, wait_until};
use rustix::process::Signal;

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
        (&[""], 127),
        (&[not_executable], 126),
    ] {
        let (exit, out, err) = finish(gaggle(&redis.url(), &[&["k", "--"], command].concat()));
        assert_eq!((exit, out.as_str()), (Some(code), ""), "{command:?}: {err}");
        let is_named = err.contains(&format!("{:?} cannot be executed", command[0]));
        assert_eq!(is_named, matches!(code, 126 | 127), "{err}");
    }
    fs::remove_file(script).unwrap();
}

#[test]
fn missing_interpreter_is_named() {
    let redis = RedisServer::start();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gaggle-run-interpreter");
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("no-interpreter");
    let path = format!("{}:/usr/bin:/bin", folder.display());
    for (text, part) in [
        ("#!/not/there -x\n", "bad interpreter \"/not/there\": No such file or directory"),
        ("#! /bin/sh\r\necho\r\n", "bad interpreter \"/bin/sh\\r\": No such file or directory"),
    ] {
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        for name in [script.to_str().unwrap(), "no-interpreter"] {
            let mut command = gaggle(&redis.url(), &["k", "--", name]);
            let (code, _, err) = finish({
                command.env("PATH", &path);
                command
            });
            let expected = format!("gaggle: {name:?} cannot be executed: {part}");
            assert!(code == Some(127) && err.starts_with(&expected), "{name}: {err}");
        }
    }
    let (_, _, err) = finish(gaggle(&redis.url(), &["k", "--", "/not/there"]));
    assert!(!err.contains("interpreter"), "{err}");
    fs::remove_dir_all(folder).unwrap();
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

#[cfg(feature = "tls")]
#[test]
fn command_runs_over_each_form_of_url() {
    use gaggle_fixtures::{Certificates, RedisSentinel, free_port};

    let (certificates, port) = (Certificates::new(), free_port());
    let redis = RedisServer::start_tls(&certificates, port);
    let plain = [(); 3].map(|()| RedisSentinel::start(redis.port()));
    let secure = [(); 3].map(|()| RedisSentinel::start_tls(port, &certificates));
    let hosts = |sentinels: &[RedisSentinel]| {
        sentinels.iter().map(RedisSentinel::address).collect::<Vec<_>>().join(",")
    };
    let trust = format!("tls_ca={}", certificates.path("ca.pem").display());
    let (_master, cluster) = run_support::start_cluster();
    for url in [
        format!("rediss://localhost:{port}?{trust}"),
        format!("redis+sentinel://{}/main", hosts(&plain)),
        format!("rediss+sentinel://{}/main?tls_name=localhost&{trust}", hosts(&secure)),
        format!("redis+unix://{}", redis.socket().display()),
        cluster,
    ] {
        let arguments = ["--max-wait", "20s", "k", "--", "sh", "-c", "echo $GAGGLE_URL"];
        let (code, out, err) = finish(gaggle(&url, &arguments));
        assert_eq!((code, out.trim_end()), (Some(0), &*url), "{err}");
    }
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
        (&["--try", "--max-wait", "forever"], 124, false),
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
            sleep(Duration::from_millis(300));
            redis.restart();
        }
        assert_eq!(started.wait_with_output().unwrap().status.code(), Some(code));
    }
}

#[test]
fn key_is_kept_for_at_least() {
    let redis = RedisServer::start();
    let options = ["--at-least", "60s", "--duration", "1s"];
    let run = |key, command: &[&str]| {
        let started = std::time::Instant::now();
        let line = [&options[..], &[key, "--"], command].concat();
        let (code, ..) = finish(gaggle(&redis.url(), &line));
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "it stays");
        code
    };
    for (command, code, next) in
        [(&["sh", "-c", "exit 5"] as &[&str], 5, 124), (&["/not/there"], 127, 0)]
    {
        assert_eq!(run("k", command), Some(code));
        let (code, ..) = finish(gaggle(&redis.url(), &["--max-wait", "3s", "k", "--", "true"]));
        assert_eq!(code, Some(next), "{command:?}");
        force_unlock(&redis, "a test");
    }
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
        (&["--", "true"], "gaggle run <KEY> -- <COMMAND>"),
        (&["--", "env", "--", "true"], "the key is missing"),
        (&["--", "-x", "--"], "the key is missing"),
        (&["-q", "--", "true"], "gaggle run -- <KEY> -- <COMMAND> for a key that begins with -"),
        (&["", "--", "true"], "0 bytes: give 1 to 1024"),
        (&[&long, "--", "true"], "1025 bytes: give 1 to 1024"),
        (&["--label", &label, "k", "--", "true"], "257 bytes: give at most 256"),
        (&["--kill-after", "10s", "k", "--", "true"], "half of --duration, 5s"),
        (&["--max-hold", "9s", "k", "--", "true"], "at least --duration, 10s"),
        (&["--url", url, "--url-file", "/x", "k", "--", "true"], "cannot be used with"),
        (&["--url-file", "/not/there", "k", "--", "true"], "/not/there: No such file"),
        (&["--url", "local:", "k", "--", "true"], "excludes no other process"),
        (&["--url", "noop:", "k", "--", "true"], "excludes no other process"),
        (&["--url", member, "k", "--", "true"], "voting member"),
        (&["--url", "redis+cluster://h,i/1", "k", "--", "true"], "only the database 0"),
        (&["--url", "redis+sentinel://h", "k", "--", "true"], "the path must be /MASTER"),
        (&["--url", "redis://h?queue=lifo", "k", "--", "true"], "option queue"),
        (&["--url", "h:secret@", "k", "--", "true"], "unknown scheme"),
    ] {
        let (code, out, err) = finish(gaggle(url, arguments));
        assert_eq!((code, out.as_str()), (Some(125), ""), "{arguments:?}: {err}");
        assert!(err.contains(part) && !err.contains("secret"), "{arguments:?}: {err}");
    }
    // After `--` it would be the command.
    let (code, _, err) = finish(gaggle(url, &["-x", "--", "true"]));
    assert!(code == Some(125) && err.contains("'-x'") && !err.contains("-- -x"), "{err}");
    let (_, _, err) = finish(gaggle(url, &["k", "ls", "-l"]));
    assert!(err.contains("before the command: gaggle run KEY -- COMMAND"), "{err}");
    for options in [["--exit-not-acquired", "-1", "k"], ["--permits", "3", "k"], ["-q", "k", "-x"]]
    {
        let (code, _, err) = finish(gaggle(url, &[&options[..], &["--", "true"]].concat()));
        assert!(code == Some(125) && !err.contains("`--`"), "{err}");
    }
    let mut command = gaggle("redis://127.0.0.1:1", &[]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff")).args(["--", "true"]);
    let (code, _, err) = finish(command);
    assert!(code == Some(125) && err.contains("not UTF-8"), "{err}");
    let mut command = gaggle("redis://127.0.0.1:1", &["--label"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff")).args(["k", "--", "true"]);
    let (code, _, err) = finish(command);
    assert!(code == Some(125) && err.contains("for '--label <LABEL>': it is not UTF-8"), "{err}");
    let (code, _, err) = finish(gaggle("", &["k", "--", "true"]));
    assert!(code == Some(125) && err.contains("set GAGGLE_URL, or give --url"), "{err}");
}

#[test]
fn key_may_begin_with_a_dash() {
    let redis = RedisServer::start();
    let show = ["sh", "-c", "echo $GAGGLE_KEY"];
    for key in ["-x", "--try"] {
        let arguments = [&["--try", "--", key, "--"], &show[..]].concat();
        let (code, out, err) = finish(gaggle(&redis.url(), &arguments));
        assert_eq!((code, out.trim_end()), (Some(0), key), "{err}");
    }
    // With a key, a second `--` is a part of the command.
    let (_, out, err) = finish(gaggle(&redis.url(), &["k", "--", "echo", "--", "x"]));
    assert_eq!(out, "-- x\n", "{err}");
}

#[test]
fn nested_run_without_the_password_is_explained() {
    let redis = RedisServer::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "pw"]).exec(&mut connection).unwrap();
    let user = ["SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    redis::cmd("ACL").arg(&user).exec(&mut connection).unwrap();
    let program = env!("CARGO_BIN_EXE_gaggle");
    for (url, expected) in [
        (redis.url().replace("//", "//:pw@"), 122),
        (redis.url().replace("//", "//default:pw@"), 122),
        // A user alone is no login.
        (redis.url().replace("//", "//app:pw@"), 125),
        (format!("redis+unix://{}?user=app&pass=pw", redis.socket().display()), 125),
    ] {
        let (code, _, err) =
            finish(gaggle(&url, &["k", "--", program, "run", "--try", "j", "--", "true"]));
        assert_eq!(code, Some(expected), "{err}");
        assert!(err.contains("of its command: give --url-file"), "{err}");
    }
}

#[test]
fn missing_replicas_are_named_within_a_short_wait() {
    let redis = RedisServer::start();
    let url = format!("{}?replicas=2", redis.url());
    for wait in ["100ms", "1s"] {
        let (code, _, err) = finish(gaggle(&url, &["--max-wait", wait, "k", "--", "true"]));
        assert!(code == Some(122) && err.contains("replicas of Redis at 127.0.0.1"), "{err}");
    }
}

#[test]
fn password_needs_a_private_file() {
    let with_password = "redis://:secret@127.0.0.1:1";
    let (code, _, err) = finish(gaggle("", &["--try", "--url", with_password, "k", "--", "true"]));
    assert!(code == Some(122) && err.contains("set GAGGLE_URL, or give --url-file"), "{err}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("gaggle-run-url");
    fs::write(&path, format!("{with_password}\n")).unwrap();
    for (mode, code, part) in
        [(0o644, 125, "chmod 600"), (0o600, 122, "cannot reach Redis at 127.0.0.1:1")]
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
    let all = ["<&- >&- 2>&-", ">/dev/full 2>/dev/full"];
    for redirection in ["<&-", ">&-", "2>&-"].into_iter().chain(all) {
        for (command, code) in [("sh -c 'exit 7'", 7), ("/not/there", 127)] {
            let program = env!("CARGO_BIN_EXE_gaggle");
            let line = format!("'{program}' run k -- {command} {redirection}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &line]).env("GAGGLE_URL", redis.url());
            assert_eq!(finish(shell).0, Some(code), "{line}");
        }
    }
}

/// A late grant leaves less of the lease, as drift does after a long wait. The reply to the
/// extension is as late: without it, SIGTERM is due 1,080 ms after the grant.
#[test]
fn job_after_a_late_grant_is_not_ended() {
    let redis = RedisServer::start();
    let proxy = Proxy::before(redis.port());
    let options = ["--duration", "1500ms", "k", "--", "sh", "-c"];
    let job = |url: &str, job| gaggle(url, &[&options[..], &[job]].concat());
    let first = Running::start(job(&redis.url(), "echo held; sleep 60"));
    let second = Running::start_waiting(job(&proxy.url(), "sleep 1"));
    wait_until(|| is_queued(&redis, "k"));
    proxy.delay_replies(Duration::from_millis(630));
    first.signal(Signal::TERM);
    assert_eq!(first.finish().0, Some(143));
    // Between the requests for the first extension and for the second.
    sleep(Duration::from_millis(945));
    proxy.delay_replies(Duration::ZERO);
    let (code, _, err) = second.finish();
    assert_eq!(code, Some(0), "{err}");
}
