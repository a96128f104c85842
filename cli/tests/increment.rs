//! Goal: `gaggle increment` runs on every strategy and channel, loses updates only without a lock,
//! and its exit code says whether a lock lost one.
//! Method: the built binary, a `redis-server` of the test's own, and small runs in real time.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod run_support;

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
};

use gaggle_fixtures::RedisServer;
use run_support::{Running, children, has_ended, pid, text, tool, wait_until};
use rustix::process::{Signal, getpgid, kill_process_group};
use serde_json::Value;

const FIELDS: [&str; 11] = [
    "strategy",
    "channel",
    "members",
    "processes",
    "expected",
    "got",
    "lost",
    "ms_per_increment",
    "handoff_p50_us",
    "handoff_p99_us",
    "longest_streak",
];

/// The counters in Redis.
const COUNTERS: &str = "gaggle:increment:*";

fn gaggle() -> Command {
    tool(&["increment"])
}

/// A small run: 5 members × 4 increments of 5 ms.
fn small(arguments: &[&str]) -> Output {
    let size = ["--increments", "4", "--work", "5ms"];
    gaggle().args(size).args(arguments).output().expect("it runs")
}

/// An object for each run of a successful command.
fn json(arguments: &[&str]) -> Vec<Value> {
    let output = small(&[arguments, &["--json"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

fn assert_none_lost(run: &Value, strategy: &str, channel: Option<&str>) {
    assert_eq!(run["strategy"], strategy, "{run}");
    assert_eq!(run["channel"].as_str(), channel, "{run}");
    assert_eq!((&run["expected"], &run["got"], &run["lost"]), (&20.into(), &20.into(), &0.into()));
    assert!(run["ms_per_increment"].as_f64().unwrap() >= 5.0, "{run}");
    assert!(run["handoff_p50_us"].as_f64() <= run["handoff_p99_us"].as_f64(), "{run}");
    assert!(run["handoff_p50_us"].as_f64().unwrap() > 0.0, "{run}");
}

/// Five members without a lock read the same value.
fn assert_lost(run: &Value) {
    assert_eq!(run["strategy"], "noop", "{run}");
    assert!(run["lost"].as_u64().unwrap() > 0, "{run}");
    assert_eq!(run["handoff_p50_us"], Value::Null, "no hand-off without a lock: {run}");
}

#[test]
fn default_run_is_gaggle_and_no_lock() {
    let runs = json(&[]);
    assert_eq!(runs.len(), 2);
    assert_none_lost(&runs[0], "gaggle", Some("memory"));
    assert_lost(&runs[1]);
    for run in &runs {
        let fields = run.as_object().unwrap();
        assert_eq!(fields.len(), FIELDS.len(), "{run}");
        assert!(FIELDS.iter().all(|field| fields.contains_key(*field)), "{run}");
        assert_eq!((&run["members"], &run["processes"]), (&5.into(), &false.into()));
    }
}

#[test]
fn redis_option_locks_counts_and_cleans_up() {
    let redis = RedisServer::start();
    let runs = json(&["--redis", &redis.url()]);
    assert_none_lost(&runs[0], "redis", None);
    assert_lost(&runs[1]);
    let output = small(&["--redis", &redis.url()]);
    let address = redis.url().replace("redis://", "").trim_end_matches('/').to_owned();
    let counter = format!("counter: a key in the Redis at {address}");
    assert!(text(&output.stdout).contains(&counter), "no {counter:?} in {output:?}");
    let mut with_environment = gaggle();
    with_environment.args(["--increments", "4", "--json"]).env("GAGGLE_REDIS", redis.url());
    let output = with_environment.output().unwrap();
    assert!(text(&output.stdout).contains("\"strategy\":\"redis\""), "{output:?}");
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let counters = redis::cmd("KEYS").arg(COUNTERS).query::<Vec<String>>(&mut connection).unwrap();
    assert!(counters.is_empty(), "{counters:?}");
}

/// The user of docs/redis.md has rights on `gaggle:*` alone.
#[test]
fn counter_in_redis_needs_no_other_right_and_expires() {
    let redis = RedisServer::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let user = ["SETUSER", "app", "on", ">pw", "~gaggle:*", "&gaggle:*", "+@all"];
    redis::cmd("ACL").arg(&user).exec(&mut connection).unwrap();
    let mut command = gaggle();
    command.args(["--increments", "100000"]);
    command.env("GAGGLE_REDIS", redis.url().replace("//", "//app:pw@"));
    let run = Running::start_waiting(command);
    let mut counters = Vec::<String>::new();
    wait_until(|| {
        counters = redis::cmd("KEYS").arg(COUNTERS).query(&mut connection).unwrap();
        !counters.is_empty()
    });
    run.signal(Signal::KILL);
    run.finish();
    let left: i64 = redis::cmd("TTL").arg(&counters[0]).query(&mut connection).unwrap();
    assert!(left > 0, "{left}");
}

#[test]
fn each_member_runs_in_its_own_process() {
    let runs = json(&["--processes", "--strategy", "gaggle", "--strategy", "raft"]);
    assert_none_lost(&runs[0], "gaggle", Some("tcp"));
    assert_none_lost(&runs[1], "raft", Some("tcp"));
    assert_lost(&runs[2]);
    assert_eq!(runs[0]["processes"], true);

    let redis = RedisServer::start();
    let redis_url = redis.url();
    let over_redis = ["--processes", "--redis", &redis_url, "--channel", "redis"];
    let runs = json(&[&over_redis[..], &["--strategy", "redis", "--strategy", "gaggle"]].concat());
    assert_none_lost(&runs[0], "redis", None);
    assert_none_lost(&runs[1], "gaggle", Some("redis"));
}

#[test]
fn counter_of_processes_is_a_file_that_is_removed() {
    let id = std::process::id();
    let directory = std::env::temp_dir().join(format!("gaggle-increment-test-{id}"));
    std::fs::create_dir(&directory).unwrap();
    let mut command = gaggle();
    command.args(["--processes", "--members", "2", "--increments", "2"]);
    let output = command.env("TMPDIR", &directory).output().unwrap();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(out.contains("counter: a file in the temporary directory"), "{out}");
    // Fails unless it is empty.
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn temporary_directory_that_is_not_utf8_is_named() {
    let options: &[&str] =
        if cfg!(feature = "tls") { &["--processes", "--channel=tls"] } else { &["--processes"] };
    for option in options {
        let mut command = gaggle();
        command.arg(option).env("TMPDIR", OsStr::from_bytes(b"/tmp/\xff"));
        let output = command.output().unwrap();
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(r#"TMPDIR "/tmp/\xFF" is not UTF-8: set it"#), "{err}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn secret_may_be_in_any_directory() {
    let name = format!("gaggle increment-&%41+#é-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).unwrap();
    let mut command = gaggle();
    command.args(["--channel", "tls", "--members", "2", "--increments", "2"]);
    let output = command.env("TMPDIR", &directory).output().unwrap();
    // Fails unless it is empty.
    std::fs::remove_dir(&directory).unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn distinct_keys_need_no_handoff() {
    let runs = json(&["--keys", "distinct", "--strategy", "local"]);
    assert_eq!((&runs[0]["lost"], &runs[1]["lost"]), (&0.into(), &0.into()));
    assert_eq!(runs[0]["longest_streak"], Value::Null);
    assert_eq!(runs[0]["handoff_p50_us"], Value::Null);
}

#[test]
fn table_shows_each_run_and_its_verdict() {
    let output = small(&["--strategy", "local"]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}");
    let memory = "counter: in the memory of this process";
    for part in ["counted", "time per increment", memory, "local: no update lost", "no lock: "] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    assert!(!out.contains("hand-off"), "only in the details: {out}");
    assert!(output.stderr.is_empty(), "no progress bar without a terminal");
    let details = text(&small(&["--strategy", "local", "--details"]).stdout);
    for part in ["lock µs:", "hand-off µs:", "streak"] {
        assert!(details.contains(part), "no {part:?} in {details}");
    }
}

#[test]
fn signal_ends_the_run_and_its_workers() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (run, workers) = long_run(&std::env::temp_dir());
        // A terminal sends it to all processes of the foreground.
        kill_process_group(pid(&run.process.id().to_string()), signal).unwrap();
        assert_eq!(run.finish().0, Some(128 + signal.as_raw()));
        wait_until(|| workers.iter().all(|worker| has_ended(worker)));
    }
}

/// A script starts a command behind `&` in this way.
#[test]
fn ignored_interrupt_stays_ignored() {
    let script = "trap '' INT; exec \"$0\" increment --processes --increments 100000 --json";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_gaggle")]).env_remove("GAGGLE_REDIS");
    let run = Running::start_waiting(command);
    wait_until(|| children(run.process.id()).len() == 5);
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.process.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0b10, 0b10, "{ignored}");
    run.signal(Signal::INT);
    run.signal(Signal::TERM);
    assert_eq!(run.finish().0, Some(143));
}

/// A run with its five worker processes, in a new process group.
fn long_run(directory: &Path) -> (Running, Vec<String>) {
    let mut command = gaggle();
    command.args(["--processes", "--increments", "100000", "--json"]).env("TMPDIR", directory);
    command.process_group(0);
    let (run, mut workers) = (Running::start_waiting(command), Vec::new());
    wait_until(|| {
        workers = children(run.process.id());
        // A worker that was just started is in the group of its parent for a moment.
        let is_apart = |worker: &String| getpgid(Some(pid(worker))) == Ok(pid(worker));
        workers.len() == 5 && workers.iter().all(is_apart)
    });
    (run, workers)
}

#[test]
fn workers_end_with_their_parent_and_its_folder() {
    let id = std::process::id();
    let directory = std::env::temp_dir().join(format!("gaggle-increment-killed-{id}"));
    std::fs::create_dir(&directory).unwrap();
    let (run, workers) = long_run(&directory);
    let files = |folder: &Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect()
    };
    wait_until(|| files(&directory).iter().any(|folder| !files(folder).is_empty()));
    run.signal(Signal::KILL);
    run.finish();
    wait_until(|| workers.iter().all(|worker| has_ended(worker)));
    // Fails unless it is empty.
    std::fs::remove_dir(&directory).unwrap();
}
