//! Goal: whole clusters of the code that ships keep the contract under faults, and the simulator
//! that says so can be trusted. Method: a slice of what `gaggle-lab simulate` runs: the plans that
//! once failed (`tests/plans`), a fixed range of seeds, and fresh seeds that are printed. A seed has
//! one trace; a seed of members has it in another process too. Clocks beyond the drift bound must
//! be seen to break the promise that the bound protects.
//!
//! A failure prints the command that replays it. `GAGGLE_SEEDS=n` runs more of the fresh ones.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    ops::Range,
    path::Path,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use gaggle_lab::simulator::{
    Batch, Clocks, Plan, Run, STANDSTILL, Settings, simulate, simulate_claims,
};

/// The command that runs the simulator.
const SIMULATE: &str = "cargo run --release -p gaggle-lab -- simulate";

fn assert_sound(seed: u64) -> Run {
    checked(seed, Plan::generate(seed, Clocks::WithinBound))
}

/// A violation leaves its plan in a file: what a seed means may change with the next commit.
fn checked(seed: u64, plan: Plan) -> Run {
    let run = simulate(plan.clone(), &Settings::default());
    if run.violation.is_some() {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{seed}.json"));
        fs::write(&file, serde_json::to_vec(&plan).unwrap()).unwrap();
        panic!("{run}\nreplay: {SIMULATE} --plan {} --trace", file.display());
    }
    run
}

/// Seeds that no run had before: this many, or `GAGGLE_SEEDS`.
fn fresh_seeds(count: u64, option: &str) -> Range<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let fresh = since.as_secs() << 16;
    let count = std::env::var("GAGGLE_SEEDS").ok().map_or(count, |n| n.parse().unwrap());
    // Past the test harness, which keeps what a test that passes has printed to itself.
    let line = format!("fresh seeds: {SIMULATE}{option} --from {fresh} --seeds {count}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    fresh..fresh + count
}

#[test]
fn saved_plans_are_sound() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    for file in fs::read_dir(directory).unwrap() {
        let file = file.unwrap().path();
        let plan: Plan = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let run = simulate(plan, &Settings::default());
        let file = file.display();
        assert!(run.violation.is_none(), "{run}\nreplay: {SIMULATE} --plan {file} --trace");
    }
}

#[test]
fn fixed_and_fresh_seeds_are_sound() {
    let mut batch = Batch::default();
    (0..240).chain(fresh_seeds(40, "")).for_each(|seed| batch.add(&assert_sound(seed)));
    println!("{batch}");
    // Undecided is no pass: the intervals were checked, the search gave up.
    assert_eq!(batch.totals.undecided, 0, "a history was not decided");
    assert_eq!(batch.missing(), Vec::<&str>::new(), "a fault or a rare event never happened");
}

#[test]
fn redis_clients_are_sound_under_every_fault() {
    let mut batch = Batch::default();
    for seed in (0..400).chain(fresh_seeds(100, " --redis")) {
        batch.add(&checked(seed, Plan::generate_redis(seed)));
    }
    println!("{batch}");
    assert_eq!(batch.totals.undecided, 0, "a history was not decided");
    assert_eq!(batch.missing(), Vec::<&str>::new(), "a fault or a rare event never happened");
}

#[test]
fn clients_of_servers_are_sound_under_every_fault() {
    let mut batch = Batch::default();
    for seed in (0..100).chain(fresh_seeds(20, " --http")) {
        let run = simulate_claims(seed);
        assert!(run.violation.is_none(), "{run}\nreplay: {SIMULATE} --http --seed {seed}");
        batch.add(&run);
    }
    println!("{batch}");
    assert_eq!(batch.missing(), Vec::<&str>::new(), "a fault or a rare event never happened");
}

#[test]
fn two_runs_of_a_server_seed_have_one_digest() {
    for seed in 40..50 {
        let digests = [(); 2].map(|()| simulate_claims(seed).digest);
        assert_eq!(digests[0], digests[1], "seed {seed}");
    }
}

/// A list of them all would have no bound; their number has.
#[test]
fn batch_counts_violations_beyond_its_list() {
    let mut batch = Batch::default();
    for seed in 0..1_500 {
        batch.add(&Run { seed, violation: Some("it broke".into()), ..Run::default() });
        batch.add(&Run { seed, ..Run::default() });
    }
    assert_eq!((batch.violations_found, batch.violations.len()), (1_500, 1_000));
    let table = batch.to_string();
    let line = table.lines().find(|line| line.starts_with("violations")).unwrap();
    assert!(line.ends_with(" 1500"), "{line}");
}

/// Requests to a Redis carry the id of the process, so that another has another trace.
#[test]
fn two_runs_of_a_redis_seed_have_one_trace() {
    for seed in 40..70 {
        let run = || simulate(Plan::generate_redis(seed), &Settings { trace: true });
        let (one, other) = (run(), run());
        assert!(one.trace == other.trace && one.digest == other.digest, "seed {seed} differs");
    }
}

/// Names the seeds for the child process.
const CHILD: &str = "GAGGLE_SIMULATOR_CHILD";

#[test]
fn two_processes_have_one_trace_of_a_seed() {
    // The digests of the numbers of its events, and of every byte of its text.
    let digest = |seed| {
        let run = simulate(Plan::generate(seed, Clocks::WithinBound), &Settings { trace: true });
        let mut text = DefaultHasher::new();
        run.trace.unwrap().hash(&mut text);
        format!("{:016x} {:016x}", run.digest, text.finish())
    };
    let digests = || (60..90).map(digest);
    if std::env::var_os(CHILD).is_some() {
        let text: String = digests().map(|digest| format!("digest {digest}\n")).collect();
        std::io::stdout().write_all(text.as_bytes()).unwrap();
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "two_processes_have_one_trace_of_a_seed", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let theirs = String::from_utf8(child.stdout).unwrap();
    let theirs: Vec<&str> =
        theirs.lines().filter_map(|line| line.split("digest ").nth(1)).collect();
    let ours: Vec<String> = digests().collect();
    assert_eq!(theirs, ours);
}

/// The purpose of the drift bound: beyond it two holders are seen to believe at one time, while one
/// live lease and rising tokens still hold, as the invariants assert.
#[test]
fn excess_drift_breaks_only_belief() {
    let (mut believed, mut stood_still) = (0, 0);
    for seed in 0..60 {
        let run = simulate(Plan::generate(seed, Clocks::BeyondBound), &Settings::default());
        assert!(run.violation.is_none(), "{run}\nreplay: {SIMULATE} --seed {seed} --beyond-bound");
        believed += run.totals.two_believed;
        stood_still += run.totals.coverage.count(STANDSTILL);
    }
    assert!(stood_still > 0, "no clock stood still");
    assert!(believed > 0, "the holder's promise was never seen to fail");
}
