//! Goal: a wrong value of an option is refused with its limits or its source. Method: the built
//! binary, and one wrong value each.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::process::{Command, Output, Stdio};

/// The exit code, and the standard error.
fn gaggle(line: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle"));
    command.args(line.split(' ')).stdin(Stdio::null()).env("GAGGLE_URL", "redis://127.0.0.1:1");
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// `command option value` is refused, and the cause names the value and the option.
fn assert_refused(command: &str, option: &str, value: &str, cure: &str) {
    let (code, err) = gaggle(&format!("{command} {option} {value}"));
    let wrong_use = if command == "run" { 125 } else { 2 };
    assert_eq!(code, Some(wrong_use), "{option} {value}: {err}");
    let begin = format!("error: invalid value '{value}' for '{option} <");
    assert!(err.starts_with(&begin), "{option} {value}: {err}");
    assert!(err.lines().next().unwrap().ends_with(&format!(">': {cure}")), "{option}: {err}");
}

#[test]
fn wrong_number_is_refused_with_its_limits() {
    let huge = "99999999999999999999";
    for (command, option, limits) in [
        ("run", "--exit-not-acquired", "0 to 255"),
        ("run", "--exit-lost", "0 to 255"),
        ("run", "--exit-unavailable", "0 to 255"),
        ("list", "--limit", "1 to 18446744073709551615"),
        ("bench", "--members", "1 to 31"),
        ("bench", "--tasks", "1 to 4096"),
        ("bench", "--rounds", "1 to 99"),
        ("increment", "--members", "1 to 31"),
        ("increment", "--increments", "1 to 1000000"),
        ("cert ca", "--days", "1 to 36500"),
        ("cert member", "--days", "1 to 36500"),
    ] {
        let zero = limits.starts_with('1').then_some("0");
        for value in ["x", "-1", "1.5", huge].into_iter().chain(zero) {
            assert_refused(command, option, value, &format!("give a whole number, {limits}"));
        }
    }
    for value in ["x", "-5", huge] {
        let cure = "give the token that `gaggle list` shows";
        assert_refused("unlock --force", "--token", value, cure);
    }
}

#[test]
fn wrong_duration_is_refused_with_its_limits() {
    for (command, option, limits) in [
        ("run", "--max-wait", "0s to 1day, or forever"),
        ("run", "--duration", "100ms to 1day"),
        ("run", "--max-hold", "100ms to 1year"),
        ("run", "--kill-after", "0s to 1year"),
        ("run", "--at-least", "0s to 1day"),
        ("list", "--older-than", "0s to 1year"),
        ("bench", "--duration", "1us to 10m"),
        ("increment", "--work", "0s to 1m"),
    ] {
        let cure = format!("expected a duration such as 500ms, 10s or 5m, {limits}");
        let zero = (!limits.starts_with("0s")).then_some("0");
        for value in ["-1s", "-1", "1.5x", "-q", "15", "9999h"].into_iter().chain(zero) {
            assert_refused(command, option, value, &cure);
        }
        for value in ["--try", "--"] {
            assert_refused(command, option, value, &format!("its value is missing: {cure}"));
        }
    }
}

#[test]
fn option_after_a_value_is_an_option() {
    // They are read, and the Redis is not reached.
    let (code, err) = gaggle("run --at-least 1s --try --max-wait=0s k -- true");
    assert!(code == Some(122) && err.contains("127.0.0.1:1"), "{err}");
    let (code, err) = gaggle("list --older-than 0 --held --limit 1");
    assert!(code == Some(2) && err.contains("127.0.0.1:1"), "{err}");
}

#[test]
fn run_without_arguments_names_both() {
    let (code, err) = gaggle("run");
    assert!(code == Some(125) && err.contains("  <KEY>\n  <COMMAND>...\n"), "{err}");
    let (_, err) = gaggle("run k");
    assert!(err.contains("  <COMMAND>...\n") && !err.contains("  <KEY>"), "{err}");
}

/// Clap's tip names another key, which would be unlocked.
#[test]
fn unknown_option_beside_a_key_has_no_tip() {
    for line in ["unlock --force -dash", "unlock --force -q k", "inspect -dash"] {
        let (code, err) = gaggle(line);
        assert!(code == Some(2) && err.contains("unexpected argument"), "{line}: {err}");
        assert!(!err.contains("tip"), "{line}: {err}");
    }
}
