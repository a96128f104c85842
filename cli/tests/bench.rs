//! Goal: `gaggle bench` runs every workload on every strategy and channel, shows what throughput
//! hides, and its exit code says whether the lock kept mutual exclusion.
//! Method: the built binary, a `redis-server` of the test's own, and small runs in real time.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use gaggle_fixtures::RedisServer;
use run_support::{Running, children, has_ended, pid, text, tool, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const WORKLOADS: [&str; 6] =
    ["handoff", "uncontended", "fan", "busy", "gaggle1-contended", "gaggle1-uncontended"];

fn gaggle() -> Command {
    tool(&["bench"])
}

/// A small run: 3 members, 300 ms.
fn small(arguments: &[&str]) -> Output {
    let size = ["--members", "3", "--duration", "300ms"];
    gaggle().args(size).args(arguments).output().expect("it runs")
}

/// The runs of the document of a successful command.
fn json(arguments: &[&str]) -> Vec<Value> {
    let output = small(&[arguments, &["--json", "-"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    let document: Value = serde_json::from_str(&out).expect("one document");
    document["runs"].as_array().unwrap().clone()
}

fn assert_sound(run: &Value) {
    let median = &run["median"];
    for fault in ["overlaps", "lost_updates", "stale_tokens"] {
        assert_eq!(median["broken"][fault], 0, "{run}");
    }
    assert!(median["pairs_per_s"].as_f64().unwrap() > 0.0, "{run}");
    let (p50, max) = (&median["lock_us"]["p50"], &median["lock_us"]["max"]);
    assert!(p50.as_f64().unwrap() <= max.as_f64().unwrap(), "{run}");
}

fn named<'a>(runs: &'a [Value], workload: &str) -> &'a Value {
    let run = runs.iter().find(|run| run["workload"].as_str().unwrap().starts_with(workload));
    run.unwrap_or_else(|| panic!("no {workload} in {runs:?}"))
}

#[test]
fn default_run_is_handoff_over_gaggle() {
    let runs = json(&[]);
    assert_eq!(runs.len(), 1);
    assert_sound(&runs[0]);
    let run = &runs[0];
    let who = (&run["workload"], &run["strategy"], &run["channel"]);
    assert_eq!(who, (&"handoff".into(), &"gaggle".into(), &"memory".into()));
    let median = &run["median"];
    assert!(median["handoff_share"].as_f64().unwrap() > 0.95, "waiters are served in turn: {run}");
    assert!(median["jain"].as_f64().unwrap() > 0.8, "{run}");
    assert!(median["handoff_us"]["p50"].as_f64().unwrap() > 0.0, "{run}");
}

#[test]
fn all_workloads_and_the_baseline_run() {
    let arguments: Vec<_> = WORKLOADS.iter().flat_map(|name| ["--workload", name]).collect();
    let runs = json(&[&arguments[..], &["--strategy", "local"]].concat());
    assert_eq!(runs.len(), 7, "six and the baseline");
    let baseline = named(&runs, "sequential");
    assert_eq!(baseline["strategy"], Value::Null);
    for workload in WORKLOADS {
        assert_sound(named(&runs, workload));
        assert_eq!(named(&runs, workload)["strategy"], "local");
    }
    for (workload, contended) in WORKLOADS.iter().zip([true, false, false, true, true, false]) {
        let streak = &named(&runs, workload)["median"]["longest_streak"];
        assert_eq!(streak.is_number(), contended, "{workload}: {streak}");
    }
}

#[test]
fn uncontended_shows_fastest_and_slowest() {
    let runs = json(&["--workload", "uncontended"]);
    let p50 = |run: &Value| run["median"]["lock_us"]["p50"].as_f64().unwrap();
    assert_eq!(runs.len(), 2);
    runs.iter().for_each(assert_sound);
    let (fastest, slowest) = (named(&runs, "uncontended, f"), named(&runs, "uncontended, s"));
    assert!(p50(fastest) <= p50(slowest), "{runs:?}");
}

/// By count, not by time: on a slow machine the window of a run may be empty.
#[test]
fn comparison_takes_all_strategies_in_rounds() {
    let redis = RedisServer::start();
    let compare = ["--compare", "--rounds", "2", "--workload", "gaggle1-contended"];
    let compare = [&compare[..], &["--duration", "1ms"]].concat();
    let mut command = gaggle();
    command.args(["--members", "3", "--json", "-", "--redis", &redis.url()]).args(compare);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["rounds"], &document["members"]), (&2.into(), &3.into()));
    let runs = document["runs"].as_array().unwrap();
    let mut names: Vec<_> = runs
        .iter()
        .map(|run| {
            let name = |field: &str| run[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", name("workload"), name("strategy"), name("channel"))
        })
        .collect();
    assert_eq!(names[0], "sequential - -");
    // The best one first, whichever that is.
    names.sort();
    let setups = ["gaggle memory", "gaggle redis", "gaggle tcp", "local -", "raft memory"];
    let setups = [&setups[..], &["raft redis", "raft tcp", "redis -"]].concat();
    let expected = setups.iter().map(|setup| format!("gaggle1-contended {setup}"));
    assert_eq!(names, expected.chain(["sequential - -".to_owned()]).collect::<Vec<_>>());
    let ms = |run: &Value| run["median"]["ms_per_pair"].as_f64().unwrap();
    assert!(runs[1..].is_sorted_by_key(ms), "{runs:?}");
    for run in runs {
        assert_sound(run);
        let rounds = run["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 2, "{run}");
        // Each task increments once in each round.
        assert!(rounds.iter().all(|round| round["pairs"] == round["tasks"]), "{run}");
    }
}

#[test]
fn each_member_runs_in_its_own_process() {
    let redis = RedisServer::start();
    let redis_url = redis.url();
    let arguments = ["--processes", "--strategy", "gaggle", "--strategy", "redis", "--redis"];
    let workloads = ["--workload", "handoff", "--workload", "fan", "--workload", "uncontended"];
    let runs = json(&[&arguments[..], &[&redis_url], &workloads].concat());
    assert_eq!(runs.len(), 7, "uncontended at two members of gaggle");
    for run in &runs {
        assert_sound(run);
    }
    // The better one of the two is first.
    let of_gaggle: Vec<_> =
        runs.iter().filter(|run| run["strategy"] == "gaggle").cloned().collect();
    let handoff = named(&of_gaggle, "handoff");
    assert_eq!((&handoff["strategy"], &handoff["channel"]), (&"gaggle".into(), &"tcp".into()));
    assert!(handoff["median"]["handoff_share"].as_f64().unwrap() > 0.95, "{handoff}");
}

/// The results of the others are longer than what a pipe holds.
#[test]
fn worker_that_dies_ends_the_run_and_the_others() {
    let redis = RedisServer::start();
    let mut command = gaggle();
    command.args(["--processes", "--members", "3", "--strategy", "redis", "--redis", &redis.url()]);
    command.args(["--workload", "fan", "--duration", "1s"]);
    let run = Running::start_waiting(command);
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    wait_until(|| {
        let held: Vec<String> = redis::cmd("KEYS").arg("*:l:*").query(&mut connection).unwrap();
        held.len() > 1
    });
    let workers = children(run.process.id());
    kill_process(pid(&workers[0]), Signal::KILL).unwrap();
    wait_until(|| workers.iter().all(|worker| has_ended(worker)));
    let (code, _, err) = run.finish();
    assert!(code == Some(2) && err.contains("ended early"), "{code:?}: {err}");
}

#[test]
fn tables_and_json_show_each_run() {
    let directory = std::env::temp_dir().join(format!("gaggle-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let data = directory.join("runs.json");
    let files = ["--json", path(&data)];
    let output = small(
        &[
            &["--strategy", "local", "--details", "--workload", "gaggle1-contended"][..],
            &["--workload", "gaggle1-uncontended"],
            &files,
        ]
        .concat(),
    );
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}");
    for part in
        ["to others", "gaggle1-contended (3 tasks)", "local", "no lock, 1 task", "ms each", "core"]
    {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    let err = text(&output.stderr);
    assert!(err.starts_with("plan: 1 round of gaggle1-contended, gaggle1-uncontended\n"), "{err}");
    assert!(err.contains(" s in all\n"), "{err}");
    assert!(!err.contains("left"), "no progress without a terminal: {err}");
    let document: Value = serde_json::from_slice(&std::fs::read(&data).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 3);
    std::fs::remove_dir_all(&directory).unwrap();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn overlaps_of_noop_are_shown_and_no_failure() {
    let output = small(&["--strategy", "noop", "--workload", "gaggle1-contended", "--json", "-"]);
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let noop = &document["runs"][1];
    assert!(noop["median"]["broken"]["overlaps"].as_u64().unwrap() > 0, "{noop}");
}

/// Runs `gaggle bench` on a Redis that ends while another strategy is measured.
fn on_a_redis_that_ends(arguments: &[&str]) -> Output {
    let redis = RedisServer::start();
    let mut command = gaggle();
    command.args(["--redis", &redis.url(), "--members", "3", "--duration", "1500ms"]);
    command.args(["--workload", "handoff"]).args(arguments);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    // After the first lock only its counter of tokens remains.
    let mut has_locked = || {
        std::thread::sleep(Duration::from_millis(5));
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        !keys.is_empty() && keys.iter().all(|key| key.ends_with("}:t"))
    };
    assert!((0..4000).any(|_| has_locked()), "no lock in Redis within 20 s");
    std::thread::sleep(Duration::from_millis(300));
    drop(redis);
    run.wait_with_output().unwrap()
}

#[test]
fn results_survive_a_later_failure() {
    let data = std::env::temp_dir().join(format!("gaggle-bench-early-{}.json", std::process::id()));
    let setups = ["--strategy", "local", "--strategy", "redis", "--json", path(&data)];
    let output = on_a_redis_that_ends(&setups);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}{err}");
    assert!(out.contains("local") && out.contains("Ended early"), "{out}");
    let document: Value = serde_json::from_slice(&std::fs::read(&data).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
    let why = document["ended_early"].as_str().unwrap();
    assert!(err.contains(why), "{why} in {err}");
    std::fs::remove_file(&data).unwrap();
    // The Redis ends in the first of three rounds.
    let output = on_a_redis_that_ends(&["--compare"]);
    let out = text(&output.stdout);
    assert!(out.contains("one round") && !out.contains("median of"), "{out}");
}

#[test]
fn unreachable_redis_prevents_any_run() {
    let nowhere = format!("redis://127.0.0.1:{}", gaggle_fixtures::free_port());
    let alone: &[&str] = &["--strategy", "redis"];
    for setups in [alone, &["--strategy", "local", "--strategy", "redis"], &["--compare"]] {
        let output = small(&[setups, &["--redis", &nowhere]].concat());
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""));
        assert!(text(&output.stderr).contains("cannot reach Redis"), "{setups:?}");
    }
}

#[test]
fn window_without_an_unlock_is_refused() {
    // A window of 1 µs hardly ever holds an unlock: there is no rate to show.
    let run = |_| gaggle().args(["--members", "1", "--duration", "1us"]).output().unwrap();
    let is_empty = |output: &Output| output.status.code() != Some(0);
    let output = (0..10).map(run).find(is_empty).expect("one of ten windows is empty");
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("no lock was unlocked"), "{err}");
}
