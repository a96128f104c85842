//! Goal: `gaggle-lab simulate` refuses what it cannot run, and says what it found as it is.
//! Method: the built binary. `scripts/planted` has seeds at which something is to be found.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::process::{Command, Output, Stdio};

fn simulate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gaggle-lab"));
    command.arg("simulate").args(arguments).stdin(Stdio::null());
    command.env_remove("RUST_LOG");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Refused for `reason`, and nothing was run.
fn assert_refused(output: &Output, reason: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{reason}: {out}{err}");
    assert!(err.contains(reason), "no {reason:?} in {err}");
    assert!(out.is_empty(), "{reason}: {out}");
}

#[test]
fn invalid_options_end_with_2() {
    let table: [(&[&str], &str); 9] = [
        (&["--from", "18446744073709551613"], "--seeds 3: their sum must fit in 64 bits"),
        (&["--from", "18446744073709551616"], "'--from <FROM>'"),
        (&["--seed", "1", "--jobs", "5"], "cannot be used with '--jobs <JOBS>'"),
        (&["--seed", "1", "--plan", "F"], "'--seed <SEED>' cannot be used with '--plan <FILE>'"),
        (&["--plan", "F", "--from", "5"], "cannot be used with '--from <FROM>'"),
        (&["--plan", "F", "--beyond-bound"], "cannot be used with '--beyond-bound'"),
        (&["--plan", "/nowhere/F"], "no plan can be read from /nowhere/F"),
        (&["--save", "/nowhere"], "--save /nowhere: no such directory: create it"),
        (&["--trace"], "'--trace' cannot be used with '--seeds <SEEDS>'"),
    ];
    for (arguments, reason) in table {
        let is_batch =
            !arguments.iter().any(|option| ["--seed", "--seeds", "--plan"].contains(option));
        let seeds: &[&str] = if is_batch { &["--seeds", "3"] } else { &[] };
        assert_refused(&simulate(&[arguments, seeds].concat()).output().unwrap(), reason);
    }
}

#[test]
fn simulated_members_log_only_on_request() {
    let log = |options: &[&str], variable: &str| {
        let mut command = simulate(&[&["--seed", "1"], options].concat());
        text(&command.env("RUST_LOG", variable).output().unwrap().stderr)
    };
    assert_eq!(log(&[], ""), "");
    assert!(log(&["-v"], "").contains("INFO"));
    assert!(log(&[], "info").contains("INFO"));
    assert!(!log(&["-q"], "info").contains("INFO"));
}

#[test]
fn batch_ends_with_its_last_seed() {
    let arguments = ["--from", "4", "--seeds", "3", "--jobs", "1024"];
    let output = simulate(&arguments).output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}");
    let words: Vec<_> = out.split_whitespace().collect();
    for part in [["--from", "4"], ["--seeds", "3"], ["seeds", "3"], ["violations", "0"]] {
        assert!(words.windows(2).any(|it| it == part), "no {part:?} in {out}");
    }
}
