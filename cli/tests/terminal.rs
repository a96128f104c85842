//! Goal: the terminal shows help of 80 columns, the version, the log, and the results
//! before a signal.
//! Method: the built binary, its output read from pipes.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    io::{BufRead as _, BufReader, Read as _, pipe},
    path::Path,
    process::{Command, Stdio},
};

use run_support::{fill, finish, pid, tool, wait_until};
use rustix::process::{Signal, kill_process};

#[test]
fn help_fits_80_columns() {
    let commands = ["increment", "bench", "run"];
    for command in commands {
        for option in ["-h", "--help"] {
            let (_, help, _) = finish(tool(&[command, option]).env("COLUMNS", "80"));
            let too_long = help.lines().find(|line| line.chars().count() > 80);
            // Possible values are not wrapped, but each is short.
            assert_eq!(too_long, None, "{command} {option}: {help}");
            assert!(help.contains("Usage: gaggle") && !help.contains("[KEY]"), "{help}");
        }
    }
}

#[test]
fn version_names_the_commit() {
    let (_, version, _) = finish(tool(&["--version"]));
    let package = concat!("gaggle ", env!("CARGO_PKG_VERSION"));
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join("../.git").exists() {
        assert!(version.starts_with(package), "{version}");
        return;
    }
    let mut git = Command::new("git");
    git.args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "--short=12", "HEAD"]);
    let (_, commit, _) = finish(git);
    assert_eq!(version, format!("{package} ({})\n", commit.trim()));
}

#[test]
fn empty_redis_variable_counts_as_unset() {
    let increment: &[&str] = &["increment", "--increments", "2", "--work", "1ms"];
    let bench = &["bench", "--strategy", "local", "--duration", "500ms"];
    for arguments in [increment, bench] {
        let (code, out, err) = finish(tool(arguments).env("GAGGLE_REDIS", ""));
        assert_eq!(code, Some(0), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn log_goes_to_stderr_at_its_level() {
    let run = |options: &[&str], log: &str| {
        let small = ["bench", "--channel", "tcp", "--duration", "500ms", "--json", "-"];
        let mut command = tool(&[&small[..], options].concat());
        let (code, out, err) = finish(command.env("RUST_LOG", log));
        assert_eq!(code, Some(0), "{options:?}: {out}{err}");
        let document: serde_json::Value = serde_json::from_str(&out).expect("JSON without a log");
        assert!(document["runs"].is_array());
        err
    };
    for (options, log, levels) in [
        (&[] as &[&str], "", ["", "", ""]),
        (&["-v"], "", ["INFO", "", ""]),
        (&["-vv"], "", ["INFO", "DEBUG", ""]),
        (&[], "info", ["INFO", "", ""]),
        (&[], "gaggle_strategies=debug", ["INFO", "DEBUG", ""]),
        (&["-v"], "error", ["INFO", "", ""]),
        (&["--processes", "-v"], "", ["INFO", "", ""]),
    ] {
        let err = run(options, log);
        for (level, expected) in ["INFO", "DEBUG", "TRACE"].into_iter().zip(levels) {
            assert_eq!(err.contains(level), level == expected, "{options:?} {log:?}: {err}");
        }
        assert!(err.contains("plan: "), "{err}");
    }
    assert_eq!(run(&["-q"], "info"), "", "neither a plan nor a log");
    let (code, _, err) = finish(tool(&["bench"]).env("RUST_LOG", "gaggle=loud"));
    assert_eq!(code, Some(2));
    assert!(err.contains("gaggle: RUST_LOG=gaggle=loud: "), "{err}");
}

#[test]
#[cfg(unix)]
fn signal_keeps_the_results_before_it() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let rounds = ["--strategy", "local", "--duration", "200ms", "--rounds", "99"];
        let mut command = tool(&[&["bench"], &rounds[..]].concat());
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
        let progress = lines.find(|line| line.as_ref().unwrap().starts_with("round 1 of 99"));
        let progress = progress.expect("a line after the first round").unwrap();
        assert!(progress.ends_with(" s left") && !progress.contains(" 0 s"), "{progress}");
        let mut kill = Command::new("kill");
        assert!(kill.args([signal, &run.id().to_string()]).status().unwrap().success());
        let mut out = String::new();
        run.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(code), "{out}");
        assert!(out.contains("local") && out.contains("Ended early"), "{out}");
    }
}

#[test]
fn signal_ends_the_wait_for_a_stalled_reader() {
    let (_reader, writer) = pipe().unwrap();
    fill(&writer);
    let rounds = ["--strategy", "local", "--duration", "200ms", "--rounds", "99"];
    let mut command = tool(&[&["bench"], &rounds[..]].concat());
    let mut run = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("round 1 of 99")));
    // The first ends the measurement, and another the output of its results.
    wait_until(|| {
        kill_process(pid(&run.id().to_string()), Signal::TERM).unwrap();
        run.try_wait().unwrap().is_some()
    });
    assert_eq!(run.wait().unwrap().code(), Some(143));
}
