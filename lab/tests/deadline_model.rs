//! Goal: the holder gives up first (contract, rules 2 and 4). Method: a granting side and a holder
//! with clocks of different rates run random schedules of waits, delays, lost replies, repeated
//! requests and extensions. The holder's deadline is never later than the end of its lease, and
//! never moves back. Formulas with a planted bug must fail.
//!
//! A failure prints its schedule; `PROPTEST_RNG_SEED=<seed> cargo test -p gaggle-strategies --test
//! deadline_model` replays a run.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::Duration;

use gaggle_strategies::{
    Drift,
    clock::Instant,
    implement::{extended_deadline, granted_deadline},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

const MS: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;

/// One try at the lock, and its events. Times are in nanoseconds of the granting side's clock,
/// which is exact; the holder's runs at `rate` millionths of it.
#[derive(Clone, Debug)]
struct Schedule {
    drift_ppm: u32,
    /// Where in the allowed range the holder's rate is, from 0 (slowest) to 1,000.
    rate: u64,
    sent: u64,
    /// From the send to the place in the queue.
    travel: u64,
    /// In the queue.
    wait: u64,
    /// From the grant to its receipt.
    reply: u64,
    duration_ms: u64,
    extends: Vec<Extend>,
}

/// An extend after a pause: how long it travels, how long its reply, and whether that is lost.
#[derive(Clone, Debug)]
struct Extend {
    pause: u64,
    travel: u64,
    reply: u64,
    duration_ms: u64,
    lost: bool,
}

type Granted = fn(Instant, Instant, Duration, Duration, Drift) -> Instant;
type Extended = fn(Option<Instant>, Instant, Duration, Drift) -> Instant;

struct World {
    rate: u64,
    now: u64,
    /// When the granting side ends the lease.
    end: u64,
    deadline: Instant,
}

impl World {
    /// The reading of the holder's clock.
    fn holder(&self, at: u64) -> Instant {
        let read = u128::from(at) * u128::from(self.rate) / u128::from(MILLION);
        Instant::from_origin(Duration::from_nanos(u64::try_from(read).unwrap()))
    }

    fn check(&self, before: Instant) -> Result<(), TestCaseError> {
        let (deadline, end) = (self.deadline, self.holder(self.end));
        prop_assert!(
            deadline <= end,
            "the holder gives up at {deadline:?}, its lease ends at {end:?}"
        );
        prop_assert!(deadline >= before, "the deadline moved back from {before:?} to {deadline:?}");
        Ok(())
    }
}

/// The granting side stamps whole milliseconds.
fn stamp(at: u64) -> u64 {
    at / MS
}

/// Runs a schedule with these formulas of a deadline.
fn live(schedule: &Schedule, granted: Granted, extended: Extended) -> Result<(), TestCaseError> {
    let drift = Drift::from_ppm(schedule.drift_ppm).unwrap();
    let spread = u64::from(schedule.drift_ppm);
    let rate = MILLION - spread + 2 * spread * schedule.rate / 1000;
    let duration = Duration::from_millis(schedule.duration_ms);

    let queued = schedule.sent + schedule.travel;
    let granted_at = queued + schedule.wait;
    let received = granted_at + schedule.reply;
    let end = (stamp(granted_at) + schedule.duration_ms) * MS;
    let mut world = World { rate, now: received, end, deadline: Instant::default() };
    let (sent, received) = (world.holder(schedule.sent), world.holder(received));
    let waited = Duration::from_millis(stamp(granted_at) - stamp(queued));
    world.deadline = granted(sent, received, waited, duration, drift);
    world.check(Instant::default())?;

    for &Extend { pause, travel, reply, duration_ms, lost } in &schedule.extends {
        let before = world.deadline;
        let sent = world.now + pause;
        let arrived = sent + travel;
        world.now = arrived + reply;
        if arrived >= world.end {
            // Lost: the refusal does not move the deadline.
            continue;
        }
        world.end = world.end.max((stamp(arrived) + duration_ms) * MS);
        if !lost {
            let duration = Duration::from_millis(duration_ms);
            world.deadline = extended(Some(before), world.holder(sent), duration, drift);
        }
        world.check(before)?;
    }
    Ok(())
}

fn times(most_ms: u64) -> impl Strategy<Value = u64> {
    // Whole milliseconds and the neighbours are where rounding shows.
    (0..=most_ms, prop_oneof![Just(0), Just(1), Just(MS - 1), 0..MS])
        .prop_map(|(ms, ns)| ms * MS + ns)
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let extend = (times(2000), times(300), times(300), 1..5000_u64, any::<bool>()).prop_map(
        |(pause, travel, reply, duration_ms, lost)| Extend {
            pause,
            travel,
            reply,
            duration_ms,
            lost,
        },
    );
    let extends = proptest::collection::vec(extend, 0..8);
    let ppm = prop_oneof![Just(0), Just(10_000), Just(400_000), 0..=400_000_u32];
    let rate = prop_oneof![Just(0), Just(500), Just(1000), 0..=1000_u64];
    let start = (times(100_000), times(300), times(20_000), times(500), 1..20_000_u64);
    (ppm, rate, start, extends).prop_map(
        |(drift_ppm, rate, (sent, travel, wait, reply, duration_ms), extends)| Schedule {
            drift_ppm,
            rate,
            sent,
            travel,
            wait,
            reply,
            duration_ms,
            extends,
        },
    )
}

#[test]
fn holder_gives_up_before_its_lease_ends() {
    let cases = std::env::var("PROPTEST_CASES").map_or(5000, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let live = |schedule| live(&schedule, granted_deadline, extended_deadline);
    TestRunner::new(config).run(&schedule(), live).unwrap();
}

/// The same schedules each time, and many: some faults show in one of thousands.
fn is_found(granted: Granted, extended: Extended) -> bool {
    let config = Config { cases: 60_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let live = |schedule| live(&schedule, granted, extended);
    TestRunner::new_with_rng(config, rng).run(&schedule(), live).is_err()
}

#[test]
fn formula_of_a_grant_with_a_fault_is_found() {
    let from_receipt: Granted = |_, received, _, duration, drift| {
        granted_deadline(received, received, Duration::ZERO, duration, drift)
    };
    let no_drift_over_the_wait: Granted = |sent, received, waited, duration, drift| {
        let start = sent.after(waited).min(received);
        granted_deadline(start, received, Duration::ZERO, duration, drift)
    };
    let no_drift: Granted = |sent, received, waited, duration, _| {
        granted_deadline(sent, received, waited, duration, Drift::from_ppm(0).unwrap())
    };
    let no_millisecond_for_rounding: Granted = |sent, received, waited, duration, drift| {
        granted_deadline(sent, received, waited, duration, drift).after(Duration::from_millis(1))
    };
    for (place, formula) in
        [from_receipt, no_drift_over_the_wait, no_drift, no_millisecond_for_rounding]
            .into_iter()
            .enumerate()
    {
        assert!(is_found(formula, extended_deadline), "number {place} was not found");
    }
}

#[test]
fn faulty_extend_formula_is_found() {
    let shortens: Extended =
        |_, sent, duration, drift| extended_deadline(None, sent, duration, drift);
    let adds: Extended = |present, sent, duration, _| present.unwrap_or(sent).after(duration);
    let no_drift: Extended = |present, sent, duration, _| {
        extended_deadline(present, sent, duration, Drift::from_ppm(0).unwrap())
    };
    for (place, formula) in [shortens, adds, no_drift].into_iter().enumerate() {
        assert!(is_found(granted_deadline, formula), "number {place} was not found");
    }
}
