//! Goal: the promises of the contract hold under real faults, on real processes, a real Redis and
//! real sockets; where the documentation says that they do not, that is seen as well.
//!
//! Method: workers are processes of their own (this binary, started again), which take one lock
//! over and over and change, by read, wait and write, what it protects: a counter with and one
//! without a check of fencing tokens. Together with the log of acquisitions these are Jepsen's lock
//! workloads. Meanwhile the parent kills and stops processes, hangs and restarts Redis, cuts
//! connections between write and reply, loses publications, replaces certificates, and drops
//! packets by iptables in network namespaces of its own. Every fault must be seen to have fired. At
//! the end every worker makes progress again, all keys are free, a leader is agreed on, and the
//! whole history is checked on the host's one clock.
//!
//! Scenarios run one after the other, in this order. The order and timing of faults come from a
//! seed: a fixed one for some scenarios, a fresh one for the others, both printed.
//!
//! ```text
//! cargo test -p gaggle-lab --test chaos                              the slice, some 100 s
//! GAGGLE_CHAOS_SECS=120 cargo test -p gaggle-lab --test chaos        each that long, with fresh seeds
//! GAGGLE_CHAOS_SEED=7 cargo test --test chaos raft     one seed, the scenarios of that name
//! ```
//!
//! Needs root, `ip`, `iptables` and `redis-server`; it fails where one is missing.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test ends where it is surprised, and reads the clock"
)]

mod crew;
mod mutex_log;
mod network;
mod process;
mod protocol;
mod scenarios;
mod signals;
mod store;
mod tally;
mod worker;

use std::{
    panic::{UnwindSafe, catch_unwind},
    process::ExitCode,
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    scenarios::{members, planted, redis},
    tally::Tally,
};

/// The seed of the scenarios that are the same on every run.
const FIXED_SEED: u64 = 20_150_821;

/// Whether members and clients of Redis speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Plain,
    Tls,
}

/// How the faults of one scenario are drawn.
pub(crate) struct Plan {
    random: StdRng,
    /// The end of the draws; a slice has each fault once.
    until: Option<Instant>,
}

impl Plan {
    /// Does each of these once, in an order of the seed's; again and again in a long run.
    pub(crate) fn each<T: Copy>(&mut self, all: &[T], mut each: impl FnMut(T, &mut StdRng)) {
        loop {
            let mut order = all.to_vec();
            shuffle(&mut order, &mut self.random);
            for one in order {
                each(one, &mut self.random);
            }
            if self.until.is_none_or(|until| Instant::now() >= until) {
                return;
            }
        }
    }
}

pub(crate) fn shuffle<T>(all: &mut [T], random: &mut StdRng) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.random_range(0..=last));
    }
}

/// Runs a function that should panic, without its message.
pub(crate) fn silently<T>(f: impl FnOnce() -> T + UnwindSafe) -> std::thread::Result<T> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = catch_unwind(f);
    std::panic::set_hook(hook);
    result
}

struct Scenario {
    name: &'static str,
    /// Whether its seed is the same on every short run.
    fixed: bool,
    run: fn(&mut Plan) -> Tally,
}

const fn scenario(name: &'static str, fixed: bool, run: fn(&mut Plan) -> Tally) -> Scenario {
    Scenario { name, fixed, run }
}

/// How many of the scenarios a short run has: the first ones.
const SHORT: usize = 11;

const SCENARIOS: [Scenario; 13] = [
    scenario("every_checker_fails_on_what_is_planted", true, planted::checkers_fail),
    scenario("redis_keeps_the_lock_while_its_memory_lives", true, |plan| {
        redis::memory_kept(Wire::Plain, plan)
    }),
    scenario("redis_keeps_the_lock_over_tls", true, |plan| redis::memory_kept(Wire::Tls, plan)),
    scenario("redis_that_restarts_empty_has_two_holders", true, |plan| {
        redis::restarts_empty(Wire::Plain, plan)
    }),
    scenario("redis_over_tls_that_restarts_empty_has_two_holders", true, |plan| {
        redis::restarts_empty(Wire::Tls, plan)
    }),
    scenario("gaggle_keeps_the_lock_over_tcp", true, |plan| {
        members::over_tcp("gaggle", Wire::Plain, plan)
    }),
    scenario("raft_keeps_the_lock_over_tcp", false, |plan| {
        members::over_tcp("raft", Wire::Plain, plan)
    }),
    scenario("gaggle_keeps_the_lock_over_tls", false, |plan| {
        members::over_tcp("gaggle", Wire::Tls, plan)
    }),
    scenario("gaggle_keeps_the_lock_over_redis", false, |plan| redis::as_channel("gaggle", plan)),
    scenario("new_gaggle_group_grants_after_the_former_holder_gave_up", true, |plan| {
        members::re_forms("gaggle", plan)
    }),
    scenario("new_raft_group_grants_after_the_former_holder_gave_up", true, |plan| {
        members::re_forms("raft", plan)
    }),
    scenario("raft_keeps_the_lock_over_tls", false, |plan| {
        members::over_tcp("raft", Wire::Tls, plan)
    }),
    scenario("raft_keeps_the_lock_over_redis", false, |plan| redis::as_channel("raft", plan)),
];

/// The scenarios that the command line names as libtest's would; none is ignored.
fn wanted() -> (Vec<&'static Scenario>, bool) {
    let (mut names, mut exact, mut ignored, mut list) = (Vec::new(), false, false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--ignored" => ignored = true,
            "--exact" => exact = true,
            "--list" => list = true,
            "--skip" | "--test-threads" | "--format" | "--color" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            _ => names.push(argument),
        }
    }
    let is = |scenario: &Scenario, name: &String| {
        if exact { scenario.name == name } else { scenario.name.contains(name) }
    };
    let count = match long_for() {
        _ if ignored => 0,
        Some(_) => SCENARIOS.len(),
        None => SHORT,
    };
    let wanted = SCENARIOS[..count].iter();
    let wanted = wanted.filter(|one| names.is_empty() || names.iter().any(|name| is(one, name)));
    (wanted.collect(), list)
}

fn main() -> ExitCode {
    if let Ok(assignment) = std::env::var(protocol::ASSIGNMENT) {
        worker::main(&assignment);
        return ExitCode::SUCCESS;
    }
    let (wanted, list) = wanted();
    if list {
        wanted.iter().for_each(|scenario| println!("{}: test", scenario.name));
        return ExitCode::SUCCESS;
    }
    if wanted.is_empty() {
        return ExitCode::SUCCESS;
    }
    if let Err(missing) = network::prepare() {
        eprintln!("chaos: FAILED, it cannot run: {missing}");
        return ExitCode::FAILURE;
    }
    run_all(&wanted)
}

fn run_all(wanted: &[&Scenario]) -> ExitCode {
    let began = Instant::now();
    let fresh: u64 = rand::random();
    let (mut all, mut failed) = (Tally::default(), Vec::new());
    for scenario in wanted {
        let fixed = scenario.fixed && long_for().is_none();
        let seed = seed().unwrap_or(if fixed { FIXED_SEED } else { fresh });
        println!("chaos: {} with seed {seed}", scenario.name);
        let started = Instant::now();
        let until = long_for().map(|long| started + long);
        let mut plan = Plan { random: StdRng::seed_from_u64(seed), until };
        let run = std::panic::AssertUnwindSafe(|| (scenario.run)(&mut plan));
        let seconds = |since: Instant| since.elapsed().as_secs_f64();
        match catch_unwind(run) {
            Ok(tally) => {
                println!("  ok in {:.1} s: {tally}", seconds(started));
                all.merge(&tally);
            }
            Err(_) => {
                println!(
                    "  FAILED after {:.1} s; the same faults again:\n  \
                     GAGGLE_CHAOS_SEED={seed} cargo test --test chaos -- --exact {}",
                    seconds(started),
                    scenario.name
                );
                failed.push(scenario.name);
            }
        }
    }
    println!("chaos: {} scenarios in {:.1} s: {all}", wanted.len(), began.elapsed().as_secs_f64());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("chaos: FAILED: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn seed() -> Option<u64> {
    let seed = std::env::var("GAGGLE_CHAOS_SEED").ok()?;
    Some(seed.parse().expect("GAGGLE_CHAOS_SEED is a number"))
}

/// How long each scenario of a long run goes on drawing faults.
fn long_for() -> Option<Duration> {
    let seconds = std::env::var("GAGGLE_CHAOS_SECS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("GAGGLE_CHAOS_SECS is a number")))
}
