//! The plan of a run: what a seed decides before it begins.

use std::time::Duration;

use crate::simulator::random::Random;

/// The sizes and faults of a run. A fault whose mean time is `None` is off.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    /// Client processes, and the users of each.
    pub(super) clients: usize,
    pub(super) users: usize,
    pub(super) keys: u64,
    /// How long faults are injected.
    pub(super) chaos: Duration,
    /// The longest lease, in milliseconds.
    pub(super) lease_max: u64,
    pub(super) wait_max: u64,
    pub(super) think_max: u64,
    /// The delay of a segment in microseconds, and how many in a million are held up.
    pub(super) delay: (u64, u64),
    pub(super) held_up: u64,
    /// How often in a million a user ends the grant of a key, as an operator does.
    pub(super) force: u64,
    pub(super) faults: Faults,
}

/// The mean time between two faults of a kind.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) kill: Option<Duration>,
    pub(super) close: Option<Duration>,
    pub(super) isolate: Option<Duration>,
    pub(super) die: Option<Duration>,
    pub(super) cut: Option<Duration>,
}

impl Plan {
    pub(super) fn generate(seed: u64) -> Self {
        let mut random = Random::new(seed, 11);
        let all = seed.is_multiple_of(2);
        let mut mean = |low, high| {
            let mean = Duration::from_millis(random.spread(low, high));
            (all || random.chance(500_000)).then_some(mean)
        };
        let faults = Faults {
            kill: mean(3_000, 20_000),
            close: mean(3_000, 20_000),
            isolate: mean(3_000, 20_000),
            die: mean(2_000, 10_000),
            cut: mean(500, 10_000),
        };
        let near = random.spread(50, 5_000);
        Self {
            seed,
            nodes: [1, 3, 3, 3][random.index(4)],
            clients: random.between(1, 4) as usize,
            users: random.between(1, 3) as usize,
            keys: random.between(1, 2),
            chaos: Duration::from_millis(random.between(8_000, 20_000)),
            lease_max: random.spread(200, 1_500),
            wait_max: random.spread(100, 6_000),
            think_max: random.spread(5, 400),
            delay: (near, near + random.spread(50, 60_000)),
            held_up: if all || random.chance(500_000) { random.spread(500, 50_000) } else { 0 },
            force: if random.chance(333_333) { random.spread(2_000, 200_000) } else { 0 },
            faults,
        }
    }
}
