//! Goal: whole clusters of the code that ships keep the contract under faults, and the simulator
//! that says so can be trusted.
//! Method: a slice of what `gaggle simulate` runs: the seeds that once failed, a fixed range, and
//! fresh seeds that are printed. Two runs of a seed, in this process and in another, have the same
//! trace. Clocks beyond the drift bound must be seen to break what the bound protects.
//!
//! A failure prints its seed; `cargo run --release --features simulator -- simulate --seed N --trace`
//! replays it. `GAGGLE_SEEDS=n` runs more of the fresh ones.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::Write as _,
    process::{Command, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use gaggle_strategies::testing::{
    history::{self, History},
    simulator::{Batch, Clocks, FRESH_FROM, Run, STANDSTILL, Settings, simulate},
};

/// Seeds in which something was found once, by what it was. They always run. A trace changes with the
/// library, and with it which seed shows a mistake: those of the first have their mistake planted and
/// are held to fail with it by `scripts/planted`; of the next each failed with its mistake put back
/// when `docs/proof.md` says so; those of the last part have lost theirs, and are plain seeds now.
const REGRESSIONS: [(u64, &str); 26] = [
    // A mistake of the library that is kept: `answer-to-any-copy`.
    (2_391, "a lease counted from a later send than that of the LOCK that was granted"),
    (7_187, "the same"),
    // Mistakes of the library.
    (905, "a leader that alone commits repeated a stale LOCK for ever within one turn"),
    (7_253, "a joint configuration that had lost one half stood still"),
    // Mistakes of the judge.
    (5_756, "an unlock answered as expired, of which a repeated frame had taken effect"),
    (7_283, "a waiter whose turn ran out before it heard of it"),
    (111, "a lock told lost while its unlock was under way"),
    (1_014, "a lock told lost after its holder had let go of it, before its unlock was asked for"),
    (7_040, "a frame held up until after all had healed brought a nonce to remember"),
    (50_000_310_361, "a burst of entries that nobody could have compacted yet"),
    (50_000_480_147, "the same"),
    (50_000_723_867, "the same"),
    (2_199_023_264_002, "a client that handed on a lock of which it had been told that it is gone"),
    (2_310_000_003_187, "a nonce granted anew by a group that knows nothing of the former one"),
    // Plain seeds.
    (1_103, "a lease counted from a later send than that of the LOCK that was granted"),
    (2_310_000_016_956, "a lock lost between the answer to an extension and the watch that asks"),
    (1_007, "a LOCK of a nonce whose memory had passed"),
    (1_366, "a late copy of a refused LOCK that was granted to nobody"),
    (2_911, "a nonce that was forgotten before it was asked for again"),
    (200_021_281, "appends at heartbeats, put together to more than a frame holds, and dropped"),
    (11_073_312, "a nameless member that started over, whose former incarnation kept its place"),
    (201_008_799, "an extend that was read after the extended lease"),
    (2_005_347, "a snapshot in pieces, whose receiver had forgotten what it acknowledged"),
    (201_005_365, "a nameless learner that died before it could vote, and kept its place"),
    (112_534, "a call that overran its deadline, by the simulator's own count of standstill"),
    (201_888, "a waiter whose place was lost, and who queued again"),
];

fn assert_sound(seed: u64) -> Run {
    let run = simulate(seed, &Settings::default());
    assert!(run.violation.is_none(), "{run}\nreplay: gaggle simulate --seed {seed} --trace");
    run
}

#[test]
fn seeds_that_once_failed_are_sound() {
    for (seed, what) in REGRESSIONS {
        println!("seed {seed}: {what}");
        assert_sound(seed);
    }
}

#[test]
fn fixed_and_fresh_seeds_are_sound_and_reach_every_fault_and_rare_event() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let fresh = since.as_secs() << 16;
    let count = std::env::var("GAGGLE_SEEDS").ok().map_or(40, |n| n.parse().unwrap());
    // Past the test harness, which keeps what a test that passes has printed to itself.
    let line = format!("fresh seeds: gaggle simulate --from {fresh} --seeds {count}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let mut batch = Batch::default();
    // From the last bounds on, beyond which a plan may be anything.
    let beyond = 1 << 36;
    (0..160)
        .chain(beyond..beyond + 40)
        .chain(FRESH_FROM..FRESH_FROM + 40)
        .chain(fresh..fresh + count)
        .for_each(|seed| batch.add(&assert_sound(seed)));
    println!("{batch}");
    // Undecided is no pass: the intervals were checked, the search gave up.
    assert_eq!(batch.undecided, 0, "a history was not decided");
    assert_eq!(batch.missing(), Vec::<&str>::new(), "a fault or a rare event never happened");
}

/// A list of them all would have no bound; their number has.
#[test]
fn a_batch_counts_violations_beyond_those_that_it_names() {
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

/// The file that `gaggle simulate --history` writes says all that the checker judges.
#[test]
fn a_history_read_from_its_file_is_judged_alike() {
    let settings = Settings { history: true, ..Settings::default() };
    for seed in 80..90 {
        let run = simulate(seed, &settings);
        let judged = run.judged.unwrap();
        let mut file = Vec::new();
        judged.history.write(&mut file).unwrap();
        let history = History::read(&file[..]).unwrap();
        assert!(!history.operations().is_empty());
        let settings = history::Settings { drift: judged.drift, ..history::Settings::default() };
        let report = history::check(&history, judged.models, &settings);
        assert!(report.passed(), "seed {seed}: {report}");
        assert_eq!((report.searches, report.unknown), (run.searches, run.unknown), "seed {seed}");
    }
}

#[test]
fn two_runs_of_a_seed_have_one_trace() {
    let settings = Settings { trace: true, ..Settings::default() };
    for seed in (40..60).chain(FRESH_FROM + 40..FRESH_FROM + 50) {
        let (one, other) = (simulate(seed, &settings), simulate(seed, &settings));
        assert!(one.trace == other.trace && one.digest == other.digest, "seed {seed} differs");
    }
}

/// Names the seeds for the child process.
const CHILD: &str = "GAGGLE_SIMULATOR_CHILD";

#[test]
fn two_processes_have_one_trace_of_a_seed() {
    let settings = Settings { trace: true, ..Settings::default() };
    // Of the numbers of its events, and of every byte of its text.
    let digest = |seed| {
        let run = simulate(seed, &settings);
        let mut text = DefaultHasher::new();
        run.trace.unwrap().hash(&mut text);
        format!("{:016x} {:016x}", run.digest, text.finish())
    };
    let digests = || (60..80).chain(FRESH_FROM + 60..FRESH_FROM + 70).map(digest);
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

/// What the drift bound is for: beyond it two holders are seen to believe at one time, while one
/// live lease and rising tokens still hold, as the invariants assert.
#[test]
fn clocks_beyond_the_bound_break_belief_and_nothing_else() {
    let settings = Settings { clocks: Clocks::BeyondBound, ..Settings::default() };
    let (mut believed, mut stood_still) = (0, 0);
    // In the last an unlock is answered by its deadline alone; the judge once took that for an effect.
    for seed in (0..60).chain([5_358_645_071_286]) {
        let run = simulate(seed, &settings);
        assert!(
            run.violation.is_none(),
            "{run}\nreplay: gaggle simulate --seed {seed} --beyond-bound"
        );
        believed += run.two_believed;
        stood_still += run.coverage.count(STANDSTILL);
    }
    assert!(stood_still > 0, "no clock stood still");
    assert!(believed > 0, "the holder's promise was never seen to fail");
}
