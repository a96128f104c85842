//! What the tasks of a run do, and when.

use std::time::Duration;

use gaggle::{BootClock, Clock};
use serde::{Deserialize, Serialize};

/// Which keys the tasks lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// One for all.
    Same,
    /// One each.
    Distinct,
}

/// When a task stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// After this many locks of each task.
    Each(u32),
    /// After this time, a warm-up before it not counted.
    For(Duration),
}

/// What the tasks of one run do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// How many tasks lock at once.
    pub tasks: u32,
    /// What they lock.
    pub keys: Keys,
    /// How many sleeps a critical section is made of.
    pub steps: u32,
    /// How long each of them lasts.
    pub step: Duration,
    /// How long a task stays away after it has unlocked.
    pub away: Duration,
    /// When a task stops.
    pub until: Until,
    /// How long tasks run before anything counts; only with [`Until::For`].
    pub warm_up: Duration,
}

/// The seed's benchmark: 20 increments a member, of four steps of 15 ms.
const INCREMENTS: u32 = 20;
const STEPS: u32 = 4;
const STEP: Duration = Duration::from_millis(15);

impl Workload {
    /// The seed's worst case: all members increment under one key.
    #[must_use]
    pub fn worst(members: u32) -> Self {
        let until = Until::Each(INCREMENTS);
        Self { steps: STEPS, step: STEP, until, ..Self::empty(members, Keys::Same) }
    }

    /// The seed's best case: each member increments under a key of its own.
    #[must_use]
    pub fn best(members: u32) -> Self {
        Self { keys: Keys::Distinct, ..Self::worst(members) }
    }

    /// The seed's baseline: what [`worst`](Self::worst) does, by one task. Run it over [`NoLock`].
    ///
    /// [`NoLock`]: super::NoLock
    #[must_use]
    pub fn sequential(members: u32) -> Self {
        Self { tasks: 1, until: Until::Each(INCREMENTS * members), ..Self::worst(members) }
    }

    /// One task, one key, an empty critical section.
    #[must_use]
    pub fn uncontended() -> Self {
        Self::empty(1, Keys::Same)
    }

    /// Tasks that lock a key each: what one handle can carry.
    #[must_use]
    pub fn fan(tasks: u32) -> Self {
        Self::empty(tasks, Keys::Distinct)
    }

    /// Tasks that hand one key on, an empty critical section.
    #[must_use]
    pub fn handoff(tasks: u32) -> Self {
        Self::empty(tasks, Keys::Same)
    }

    /// Tasks on one key, 5 ms inside and 5 ms away: where a waiter that sleeps wastes the key.
    #[must_use]
    pub fn busy(tasks: u32) -> Self {
        let away = Duration::from_millis(5);
        Self { steps: 1, step: away, away, ..Self::empty(tasks, Keys::Same) }
    }

    fn empty(tasks: u32, keys: Keys) -> Self {
        Self {
            tasks,
            keys,
            steps: 0,
            step: Duration::ZERO,
            away: Duration::ZERO,
            until: Until::For(Duration::from_secs(3)),
            warm_up: Duration::from_millis(500),
        }
    }

    /// Runs for this long instead.
    #[must_use]
    pub fn lasting(mut self, duration: Duration) -> Self {
        self.until = Until::For(duration);
        self
    }

    /// Runs for this many locks of each task instead.
    #[must_use]
    pub fn each(mut self, locks: u32) -> Self {
        self.until = Until::Each(locks);
        self
    }

    /// How long one critical section sleeps.
    #[must_use]
    pub fn inside(&self) -> Duration {
        self.step * self.steps
    }

    /// About how long a run takes, for a progress bar; a lock that costs nothing is assumed.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let side_by_side = match self.keys {
            Keys::Same => self.tasks,
            Keys::Distinct => 1,
        };
        match self.until {
            Until::For(duration) => self.warm_up + duration,
            Until::Each(locks) => (self.inside() + self.away) * locks * side_by_side,
        }
    }

    /// The window of a run that begins at `begin`.
    #[must_use]
    pub fn window(&self, begin: u64) -> Window {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        match self.until {
            Until::Each(_) => Window { from: begin, until: u64::MAX },
            Until::For(duration) => {
                let from = begin.saturating_add(nanos(self.warm_up));
                Window { from, until: from.saturating_add(nanos(duration)) }
            }
        }
    }
}

/// What counts, in nanoseconds of [`now`]: from the first moment to before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The first moment that counts.
    pub from: u64,
    /// The first that no longer does.
    pub until: u64,
}

impl Window {
    /// Whether this moment counts.
    #[must_use]
    pub fn has(&self, moment: u64) -> bool {
        self.from <= moment && moment < self.until
    }

    /// Whether any of the moments from one to another, both included, counts.
    #[must_use]
    pub fn meets(&self, from: u64, to: u64) -> bool {
        from < self.until && self.from <= to
    }
}

/// Nanoseconds of the host's boot-time clock, which all its processes share.
#[must_use]
pub fn now() -> u64 {
    u64::try_from(BootClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}
