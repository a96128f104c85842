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
    Drift, Error, Instant, Lock, Nonce,
    implement::{extended_deadline, gone, granted_deadline},
};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

const MS: u64 = 1_000_000;
const MILLION: u64 = 1_000_000;

/// One try at the lock, and what follows. Times are in nanoseconds of the granting side's clock,
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
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Event {
    /// An extend after a pause: how long it travels, how long its answer, and whether that is lost.
    Extend { pause: u64, travel: u64, reply: u64, duration_ms: u64, lost: bool },
    /// The holder asks for its nonce again, and finds the grant.
    Find { pause: u64, travel: u64, reply: u64 },
}

/// The formulas under test.
#[derive(Clone, Copy)]
struct Formulas {
    granted: fn(Instant, Instant, Duration, Duration, Drift) -> Instant,
    extended: fn(Option<Instant>, Instant, Duration, Drift) -> Instant,
    found: fn(Instant, Duration, Drift) -> Instant,
}

const LIBRARY: Formulas = Formulas {
    granted: granted_deadline,
    extended: extended_deadline,
    // Only the rest of the lease is known.
    found: |sent, rest, drift| granted_deadline(sent, sent, Duration::ZERO, rest, drift),
};

struct World {
    rate: u64,
    now: u64,
    /// When the granting side ends the lease.
    end: u64,
    deadline: Instant,
}

impl World {
    /// What the holder's clock reads.
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

fn live(schedule: &Schedule, formulas: Formulas) -> Result<(), TestCaseError> {
    let drift = Drift::from_ppm(schedule.drift_ppm).unwrap();
    let spread = u64::from(schedule.drift_ppm);
    let rate = MILLION - spread + 2 * spread * schedule.rate / 1000;
    let duration = Duration::from_millis(schedule.duration_ms);

    let queued = schedule.sent + schedule.travel;
    let granted = queued + schedule.wait;
    let received = granted + schedule.reply;
    let end = (stamp(granted) + schedule.duration_ms) * MS;
    let zero = Instant::default();
    let mut world = World { rate, now: received, end, deadline: zero };
    let (sent, received) = (world.holder(schedule.sent), world.holder(received));
    let waited = Duration::from_millis(stamp(granted) - stamp(queued));
    world.deadline = (formulas.granted)(sent, received, waited, duration, drift);
    world.check(zero)?;

    for event in &schedule.events {
        let before = world.deadline;
        match *event {
            Event::Extend { pause, travel, reply, duration_ms, lost } => {
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
                    let sent = world.holder(sent);
                    world.deadline = (formulas.extended)(Some(before), sent, duration, drift);
                }
                world.check(before)?;
            }
            Event::Find { pause, travel, reply } => {
                let sent = world.now + pause;
                let arrived = sent + travel;
                world.now = arrived + reply;
                if arrived >= world.end {
                    continue;
                }
                let remaining = Duration::from_millis(stamp(world.end) - stamp(arrived));
                // Another caller's view of the same lease.
                let deadline = (formulas.found)(world.holder(sent), remaining, drift);
                let other = World { deadline, ..world };
                other.check(zero)?;
            }
        }
        expired_from_the_deadline_on(&world)?;
    }
    Ok(())
}

/// A lost lock is `NotHolder` before its deadline, `Expired` from it on.
fn expired_from_the_deadline_on(world: &World) -> Result<(), TestCaseError> {
    let lock = Lock::new("k", Nonce::from_u128(1), 1, Some(world.deadline));
    let deadline = world.deadline.since_origin();
    for now in [deadline.saturating_sub(Duration::from_nanos(1)), deadline] {
        let expired = matches!(gone(&lock, Instant::from_origin(now)), Error::Expired);
        prop_assert_eq!(expired, now >= deadline);
    }
    Ok(())
}

fn times(most_ms: u64) -> impl Strategy<Value = u64> {
    // Whole milliseconds and their neighbours are where rounding shows.
    (0..=most_ms, prop_oneof![Just(0), Just(1), Just(MS - 1), 0..MS])
        .prop_map(|(ms, ns)| ms * MS + ns)
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let extend = (times(2000), times(300), times(300), 1..5000_u64, any::<bool>()).prop_map(
        |(pause, travel, reply, duration_ms, lost)| Event::Extend {
            pause,
            travel,
            reply,
            duration_ms,
            lost,
        },
    );
    let find = (times(500), times(300), times(300))
        .prop_map(|(pause, travel, reply)| Event::Find { pause, travel, reply });
    let events = proptest::collection::vec(prop_oneof![3 => extend, 1 => find], 0..8);
    let ppm = prop_oneof![Just(0), Just(10_000), Just(400_000), 0..=400_000_u32];
    let rate = prop_oneof![Just(0), Just(500), Just(1000), 0..=1000_u64];
    let start = (times(100_000), times(300), times(20_000), times(500), 1..20_000_u64);
    (ppm, rate, start, events).prop_map(
        |(drift_ppm, rate, (sent, travel, wait, reply, duration_ms), events)| Schedule {
            drift_ppm,
            rate,
            sent,
            travel,
            wait,
            reply,
            duration_ms,
            events,
        },
    )
}

fn run(formulas: Formulas) -> Result<(), String> {
    let cases = std::env::var("PROPTEST_CASES").map_or(5000, |cases| cases.parse().unwrap());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    run_with(TestRunner::new(config), formulas)
}

/// The same schedules each time, and many: some faults show in one of thousands.
fn run_fixed(formulas: Formulas) -> Result<(), String> {
    let config = Config { cases: 60_000, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    run_with(TestRunner::new_with_rng(config, rng), formulas)
}

fn run_with(mut runner: TestRunner, formulas: Formulas) -> Result<(), String> {
    runner
        .run(&schedule(), |schedule| live(&schedule, formulas))
        .map_err(|failure| failure.to_string())
}

#[test]
fn holder_gives_up_before_its_lease_ends() {
    run(LIBRARY).unwrap();
}

#[test]
fn formulas_with_a_fault_are_found() {
    let broken = [
        (
            "a grant counted from its receipt",
            Formulas {
                granted: |_, received, _, duration, drift| {
                    granted_deadline(received, received, Duration::ZERO, duration, drift)
                },
                ..LIBRARY
            },
        ),
        (
            "no drift over the wait",
            Formulas {
                granted: |sent, received, waited, duration, drift| {
                    let start = sent.after(waited).min(received);
                    granted_deadline(start, received, Duration::ZERO, duration, drift)
                },
                ..LIBRARY
            },
        ),
        (
            "no drift at all",
            Formulas {
                granted: |sent, received, waited, duration, _| {
                    let none = Drift::from_ppm(0).unwrap();
                    granted_deadline(sent, received, waited, duration, none)
                },
                ..LIBRARY
            },
        ),
        (
            "no millisecond for rounding",
            Formulas {
                granted: |sent, received, waited, duration, drift| {
                    granted_deadline(sent, received, waited, duration, drift)
                        .after(Duration::from_millis(1))
                },
                ..LIBRARY
            },
        ),
        (
            "an extension that may shorten",
            Formulas {
                extended: |_, sent, duration, drift| extended_deadline(None, sent, duration, drift),
                ..LIBRARY
            },
        ),
        (
            "an extension added to the present end",
            Formulas {
                extended: |present, sent, duration, _| {
                    present.map_or(sent, |present| present.after(duration))
                },
                ..LIBRARY
            },
        ),
        (
            "an extension without drift",
            Formulas {
                extended: |present, sent, duration, _| {
                    extended_deadline(present, sent, duration, Drift::from_ppm(0).unwrap())
                },
                ..LIBRARY
            },
        ),
        (
            "a found lease counted without rounding",
            Formulas { found: |sent, remaining, _| sent.after(remaining), ..LIBRARY },
        ),
    ];
    for (fault, formulas) in broken {
        assert!(run_fixed(formulas).is_err(), "{fault} was not found");
    }
}
