//! Goal: `gaggle list`, `inspect` and `unlock` show and end the locks of other processes.
//! Method: the built binary, a `redis-server` of the test's own, and jobs of `gaggle run` as
//! holders.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Command, Output, Stdio},
};

use gaggle_fixtures::RedisServer;
use run_support::Running;
use rustix::process::Signal;
use serde_json::Value;

fn gaggle(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(arguments).stdin(Stdio::null()).env("GAGGLE_URL", url);
    command.env_remove("RUST_LOG").env("USER", "alice");
    command
}

/// The exit code, the standard output and the standard error.
fn finish(url: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    run_support::finish(gaggle(url, arguments))
}

/// A job that holds its key; its first line is its fencing token.
fn hold(url: &str, key: &str) -> Running {
    hold_as(url, key, "nightly")
}

fn hold_as(url: &str, key: &str, label: &str) -> Running {
    let job = ["--label", label, key, "--", "sh", "-c", "echo $GAGGLE_FENCING_TOKEN; sleep 60"];
    Running::start(gaggle(url, &[&["run"], &job[..]].concat()))
}

fn token(job: &Running) -> u64 {
    job.first_line.parse().unwrap()
}

fn end(job: Running) {
    job.signal(Signal::TERM);
    job.finish();
}

#[test]
fn wrong_options_are_named() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    let bad = OsStr::from_bytes(b"\xff");
    for (command, option) in [("list", "--prefix"), ("list", "--owner"), ("unlock", "--reason")] {
        let mut command = gaggle("redis://127.0.0.1:1", &[command, option]);
        let Output { status, stderr, .. } = command.arg(bad).output().unwrap();
        let part = format!("for '{option} <TEXT>': it is not UTF-8");
        let text = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(2) && text.contains(&part), "{text}");
    }
}

#[test]
fn list_and_inspect_show_the_holder() {
    let redis = RedisServer::start();
    let url = redis.url();
    let (code, out, _) = finish(&url, &["list"]);
    assert_eq!((code, out.as_str()), (Some(0), "no key is held\n"));
    let (code, out, _) = finish(&url, &["list", "--prefix", "jobs/"]);
    assert_eq!((code, out.as_str()), (Some(0), "no key that begins with \"jobs/\" is held\n"));
    let (code, out, _) = finish(&url, &["inspect", "jobs/1"]);
    assert_eq!((code, out.as_str()), (Some(1), "\"jobs/1\" is not held\n"));

    let long = format!("jobs/{}", "l".repeat(500));
    let jobs = [hold(&url, "jobs/1"), hold(&url, &long), hold(&url, "other")];
    let (code, out, err) = finish(&url, &["list", "--prefix", "jobs/"]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 80), "{out}");
    assert!(lines[0].starts_with("KEY ") && lines[1].starts_with("jobs/1 "), "{out}");
    assert!(lines[1].ends_with(&jobs[0].first_line), "{out}");

    let (_, out, _) = finish(&url, &["list", "--json"]);
    let objects: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&str> = objects.iter().map(|it| it["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["jobs/1", &long, "other"]);
    assert_eq!(objects[0]["label"], "nightly");
    assert_eq!(objects[0]["token"], token(&jobs[0]));
    assert!(objects[0]["remaining_ms"].as_u64().unwrap() <= 10_000, "{out}");
    let (_, out, err) = finish(&url, &["list", "--limit", "2"]);
    assert!(out.lines().count() == 3 && err.contains("--limit"), "{out}{err}");

    let (code, out, _) = finish(&url, &["inspect", &long]);
    assert!(code == Some(0) && out.contains(&long) && out.contains("(nightly)"), "{out}");
    let (_, out, _) = finish(&url, &["inspect", "other", "--json"]);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (object["token"].as_u64(), object["waiters"].as_u64()),
        (Some(token(&jobs[2])), Some(0))
    );
    jobs.into_iter().for_each(end);
}

#[test]
fn locks_of_a_cluster_are_listed_and_ended() {
    let (_master, url) = run_support::start_cluster();
    let holder = hold(&url, "k");
    let (code, out, err) = finish(&url, &["list"]);
    assert!(code == Some(0) && out.contains(&holder.first_line), "{out}{err}");
    let (code, _, err) = finish(&url, &["unlock", "k", "--force", "--reason", "it hangs"]);
    assert!(code == Some(0) && err.contains("\"k\" was force-unlocked by"), "{err}");
    let (code, _, err) = holder.finish();
    assert!(code == Some(123) && err.contains("it hangs"), "{err}");
}

#[test]
fn forced_unlock_ends_the_job_of_the_holder() {
    let redis = RedisServer::start();
    let url = redis.url();
    let holder = hold(&url, "k");
    let token = token(&holder);
    let (code, _, err) = finish(&url, &["unlock", "k"]);
    assert!(code == Some(2) && err.contains("add --force"), "{err}");
    let wrong = (token + 1).to_string();
    let (code, out, _) = finish(&url, &["unlock", "k", "--force", "--token", &wrong]);
    assert!(code == Some(1) && out.contains(&token.to_string()), "{out}");

    let waiter = ["run", "--max-wait", "30s", "k", "--", "sh", "-c", "echo $GAGGLE_FENCING_TOKEN"];
    let waiter = gaggle(&url, &waiter).stdout(Stdio::piped()).spawn().unwrap();
    while !finish(&url, &["inspect", "k"]).1.contains("waiters  1") {}
    let (correct, reason) = (token.to_string(), ["--reason", "it hangs"]);
    let force = [&["unlock", "k", "--force", "--json", "--token", &correct], &reason[..]].concat();
    let (code, out, err) = finish(&url, &force);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, object["outcome"].as_str()), (Some(0), Some("unlocked")), "{out}{err}");
    assert_eq!(object["held"], false, "{out}");
    assert!(
        err.contains("\"k\" was force-unlocked by") && err.contains("alice: it hangs"),
        "{err}"
    );
    // The holder's command is ended by its loss, long before its lease could be.
    let (code, _, err) = holder.finish();
    assert_eq!(code, Some(123), "{err}");
    assert!(err.contains("force-unlocked by") && err.contains("alice: it hangs"), "{err}");
    let next = waiter.wait_with_output().unwrap().stdout;
    let next: u64 = String::from_utf8(next).unwrap().trim().parse().unwrap();
    assert!(next > token);
    let (code, out, _) = finish(&url, &["unlock", "k", "--force"]);
    assert_eq!((code, out.as_str()), (Some(1), "\"k\" is not held\n"));
    let (code, out, _) = finish(&url, &["unlock", "k", "--force", "--json"]);
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, object["outcome"].as_str()), (Some(1), Some("not held")), "{out}");
    assert_eq!(object["held"], false, "{out}");
    let long = "r".repeat(252);
    let (code, _, err) = finish(&url, &["unlock", "k", "--force", "--reason", &long]);
    let problem = "--reason has 252 bytes and USER 5: give at most 254 in all";
    assert!(code == Some(2) && err.contains(problem), "{err}");
    let mut command = gaggle(&url, &["unlock", "k", "--force"]);
    let err = command.env("USER", "u".repeat(300)).output().unwrap().stderr;
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains("--reason has 15 bytes and USER 300: give at most 254 in all"), "{err}");
    let mut command = gaggle(&url, &["unlock", "k", "--force", "--reason", &"r".repeat(257)]);
    let err = command.env_remove("USER").env_remove("LOGNAME").output().unwrap().stderr;
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains("--reason has 257 bytes: give at most 256 in all"), "{err}");
}

#[test]
fn filters_of_list_are_combined() {
    let redis = RedisServer::start();
    let url = redis.url();
    let job = hold_as(&url, "z it's \"a\\b\"", "nightly");
    let others = ["a", "b", "c"].map(|key| hold_as(&url, key, "daily"));
    let waiter = gaggle(&url, &["run", "--max-wait", "60s", "b", "--", "true"]);
    let waiter = Running::start_waiting(waiter);
    while !finish(&url, &["inspect", "b"]).1.contains("waiters  1") {}
    let pid = job.process.id();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let process = format!("{host}:{pid}");
    let quoted = "z it's \"a\\b\"";
    for (filters, keys) in [
        (&["--held"] as &[&str], &["a", "b", "c", quoted] as &[&str]),
        (&["--waiting"], &["b"]),
        (&["--owner", "nightly"], &[quoted]),
        (&["--owner", &process], &[quoted]),
        (&["--owner", &host], &["a", "b", "c", quoted]),
        (&["--owner", "daily", "--prefix", "c"], &["c"]),
        (&["--owner", "daily", "--waiting", "--older-than", "0s"], &["b"]),
        (&["--older-than", "1h"], &[]),
        // The limit counts shown rows only.
        (&["--owner", "nightly", "--limit", "1"], &[quoted]),
    ] {
        let (code, out, err) = finish(&url, &[&["list", "--json"], filters].concat());
        assert_eq!((code, err.as_str()), (Some(0), ""), "{filters:?}");
        let objects = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found: Vec<String> = objects.map(|it| it["key"].as_str().unwrap().to_owned()).collect();
        assert_eq!(found, keys, "{filters:?}");
    }
    let (_, out, err) = finish(&url, &["list", "--owner", "daily", "--limit", "2"]);
    assert!(out.lines().count() == 3 && err.contains("more than 2 keys"), "{out}{err}");
    let (_, out, _) = finish(&url, &["list", "--older-than", "1h"]);
    assert_eq!(out, "no held key matches\n");
    for arguments in [&["list"] as &[&str], &["inspect", quoted]] {
        let (_, out, _) = finish(&url, arguments);
        assert!(out.contains(quoted), "{out}");
    }
    end(waiter);
    end(job);
    others.into_iter().for_each(end);
}

/// Another process has chosen them: a terminal would obey, or show another order.
#[test]
fn output_has_no_control_character_of_a_label() {
    let redis = RedisServer::start();
    let url = redis.url();
    let label = "x\u{1b}]0;pwned\u{7}\u{1b}[2J\nroot: ok\u{9b}2J\u{202e}";
    let holder = hold_as(&url, "k", label);
    for arguments in [
        &["list"] as &[&str],
        &["list", "--json"],
        &["inspect", "k"],
        &["inspect", "k", "--json"],
        &["run", "--try", "k", "--", "true"],
        &["run", "--max-wait", "10ms", "k", "--", "true"],
        &["unlock", "k", "--force", "--token", "1"],
    ] {
        let (_, out, err) = finish(&url, arguments);
        let text = out + &err;
        let is_hidden = |it: char| it.is_control() && it != '\n' || it == '\u{202e}';
        assert!(!text.contains(is_hidden) && !text.contains("\nroot"), "{arguments:?}: {text:?}");
    }
    end(holder);
}

#[test]
fn list_goes_on_behind_a_value_that_is_no_lock() {
    let redis = RedisServer::start();
    let url = redis.url();
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    for bucket in 0..16 {
        write!(client, "SET gaggle:{{b{bucket}}}:l:zz junk\r\n").unwrap();
        client.read_exact(&mut [0; b"+OK\r\n".len()]).unwrap();
    }
    let holder = hold(&url, "k");
    let (code, out, err) = finish(&url, &["list"]);
    assert!(code == Some(2) && err.contains("1 key unreadable"), "{err}");
    assert!(err.contains("gaggle inspect KEY"), "{err}");
    assert!(out.contains(&holder.first_line), "{out}");
    assert!(out.lines().any(|line| line.starts_with("zz ") && line.contains("(unreadable)")));
    let (_, out, _) = finish(&url, &["list", "--json"]);
    assert!(out.ends_with("{\"key\":\"zz\",\"unreadable\":true}\n"), "{out}");
    let (code, out, err) = finish(&url, &["list", "--held"]);
    assert!(code == Some(0) && !out.contains("zz") && err.is_empty(), "{out}{err}");
    let remedy =
        "the stored value is not a lock; another program wrote it: remove it by DEL \"gaggle:{b";
    for arguments in [&["unlock", "zz", "--force"] as &[&str], &["inspect", "zz"]] {
        let (code, _, err) = finish(&url, arguments);
        assert!(code == Some(2) && err.contains("\"zz\"") && err.contains(remedy), "{err}");
    }
    // A line to the server is read as `redis-cli` reads its own.
    let key = "a\u{1}\u{202e}é\"'\\b";
    for bucket in 0..16 {
        let name = format!("gaggle:{{b{bucket}}}:l:{key}");
        write!(client, "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n$1\r\nx\r\n", name.len()).unwrap();
        client.read_exact(&mut [0; b"+OK\r\n".len()]).unwrap();
    }
    let (_, _, err) = finish(&url, &["inspect", key]);
    let (_, delete) = err.split_once("remove it by ").unwrap();
    write!(client, "{}\r\n", delete.trim_end()).unwrap();
    let mut reply = [0; b":1\r\n".len()];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b":1\r\n", "{err}");
    for wait in ["0s", "100ms"] {
        let run = ["run", "--max-wait", wait, "zz", "--", "true"];
        let (code, _, err) = finish(&url, &run);
        assert!(code == Some(122) && err.contains(remedy), "{err}");
        // The first comes as soon as it waits, the other one with the error.
        let logged = gaggle(&url, &run).env("RUST_LOG", "warn").output().unwrap().stderr;
        let logged = String::from_utf8(logged).unwrap();
        let warnings = logged.lines().filter(|line| line.contains("WARN")).count();
        assert_eq!(warnings, if wait == "0s" { 1 } else { 2 }, "{logged}");
    }
    end(holder);
}

#[cfg(feature = "tls")]
#[test]
fn authority_that_is_not_of_the_system_is_named() {
    use gaggle_fixtures::{Certificates, free_port};
    let (certificates, foreign, port) = (Certificates::new(), Certificates::new(), free_port());
    let _redis = RedisServer::start_tls(&certificates, port);
    let mut command = gaggle(&format!("rediss://localhost:{port}"), &["list"]);
    // In place of the system's.
    let output = command.env("SSL_CERT_FILE", foreign.path("ca.pem")).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("unknown authority: not an authority of this system"), "{err}");
}

#[test]
fn wrong_use_is_refused_with_2() {
    for (url, arguments, part) in [
        ("", &["list"] as &[&str], "set GAGGLE_URL"),
        ("local:", &["inspect", "k"], "excludes no other process"),
        ("", &["list", "--url-file", "/dev/zero"], "--url-file /dev/zero: it has more than 65536"),
        ("", &["list", "--url-file", "/etc/hostname"], "--url-file /etc/hostname: "),
        ("redis://127.0.0.1:1", &["list"], "127.0.0.1:1"),
        ("redis://127.0.0.1:1", &["inspect", ""], "0 bytes"),
        ("redis://127.0.0.1:1", &["inspect"], "<KEY>"),
        ("redis://127.0.0.1:1", &["completions", "tcl"], "invalid value"),
        ("redis://127.0.0.1:1", &["man", "nothing"], "unknown command nothing"),
    ] {
        let (code, out, err) = finish(url, arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(part), "{arguments:?}: {err}");
    }
}

#[test]
fn completions_and_manual_name_every_command() {
    for arguments in [&["completions", "bash"] as &[&str], &["completions", "zsh"], &["man"]] {
        let (code, out, err) = finish("", arguments);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        for command in ["run", "list", "inspect", "unlock", "bench"] {
            assert!(out.contains(command), "{arguments:?}: {command}");
        }
    }
    let (_, out, _) = finish("", &["man", "run"]);
    assert!(out.contains("<KEY> \\-\\- <COMMAND>"), "{out}");
    assert!(out.contains("<\\fIKEY\\fR>") && !out.contains("[\\fIKEY"), "{out}");
    assert!(out.contains(".TH gaggle-run 1  \"gaggle 0."), "{out}");
    for name in ["cert-ca", "gaggle-cert-ca"] {
        let (_, out, _) = finish("", &["man", name]);
        assert!(out.contains("gaggle\\-cert\\-ca") && out.contains("days"), "{out}");
    }
    for command in ["bench", "increment"] {
        let (_, out, _) = finish("", &["man", command]);
        assert!(out.contains("GAGGLE_REDIS"), "{command}: {out}");
    }
    let (_, out, _) = finish("", &["man", "list"]);
    assert!(out.contains("[default: 1000]") && !out.contains("[default: ]"), "{out}");
    let (_, out, _) = finish("", &["man", "unlock"]);
    assert!(out.starts_with(".ie") && out.contains("token") && out.contains("force"), "{out}");
}
