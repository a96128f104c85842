//! The workloads: what the tasks of a run do, and for how long.

use std::time::Duration;

use gaggle::{BootClock, Clock};
use serde::{Deserialize, Serialize};

/// Which keys the tasks lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// The same key for all tasks.
    Same,
    /// A distinct key for each task.
    Distinct,
}

/// When a task stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Until {
    /// After this many locks of each task.
    Each(u32),
    /// After this time, which begins after the warm-up.
    For(Duration),
}

/// The work of the tasks of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// How many tasks run at once.
    pub tasks: u32,
    /// Which keys they lock.
    pub keys: Keys,
    /// How many sleeps a critical section consists of.
    pub steps: u32,
    /// How long each of them lasts.
    pub step: Duration,
    /// How long a task sleeps after it has unlocked.
    pub pause: Duration,
    /// When a task stops.
    pub until: Until,
    /// How long tasks run before the locks count; only with [`Until::For`].
    pub warm_up: Duration,
}

/// The Gaggle 1.x benchmark: 20 increments a member, of four steps of 15 ms.
const INCREMENTS: u32 = 20;
const STEPS: u32 = 4;
const STEP: Duration = Duration::from_millis(15);

impl Workload {
    /// Each task makes this many increments, which sleep for `work` in the critical section.
    #[must_use]
    pub fn increments(tasks: u32, keys: Keys, increments: u32, work: Duration) -> Self {
        Self { steps: 1, step: work, until: Until::Each(increments), ..Self::empty(tasks, keys) }
    }

    /// The contended case of the Gaggle 1.x benchmark: all members increment under one key.
    #[must_use]
    pub fn gaggle1_contended(members: u32) -> Self {
        Self { steps: STEPS, ..Self::increments(members, Keys::Same, INCREMENTS, STEP) }
    }

    /// The uncontended case of the Gaggle 1.x benchmark: each member increments under its own key.
    #[must_use]
    pub fn gaggle1_uncontended(members: u32) -> Self {
        Self { keys: Keys::Distinct, ..Self::gaggle1_contended(members) }
    }

    /// The baseline of the Gaggle 1.x benchmark: the increments of all members, by one task. Run it
    /// over [`NoLock`].
    ///
    /// [`NoLock`]: super::NoLock
    #[must_use]
    pub fn sequential(members: u32) -> Self {
        let until = Until::Each(INCREMENTS * members);
        Self { tasks: 1, until, ..Self::gaggle1_contended(members) }
    }

    /// A single task on one key, with an empty critical section.
    #[must_use]
    pub fn uncontended() -> Self {
        Self::empty(1, Keys::Same)
    }

    /// Tasks on a key each, with an empty critical section: the throughput of one handle.
    #[must_use]
    pub fn fan(tasks: u32) -> Self {
        Self::empty(tasks, Keys::Distinct)
    }

    /// Tasks on one key, with an empty critical section: the hand-off latency.
    #[must_use]
    pub fn handoff(tasks: u32) -> Self {
        Self::empty(tasks, Keys::Same)
    }

    /// Tasks on one key, with 5 ms in the critical section and 5 ms after it. A lock whose waiters
    /// sleep leaves the key unused.
    #[must_use]
    pub fn busy(tasks: u32) -> Self {
        let sleep = Duration::from_millis(5);
        Self { steps: 1, step: sleep, pause: sleep, ..Self::empty(tasks, Keys::Same) }
    }

    fn empty(tasks: u32, keys: Keys) -> Self {
        Self {
            tasks,
            keys,
            steps: 0,
            step: Duration::ZERO,
            pause: Duration::ZERO,
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

    /// Runs until each task has locked this often instead.
    #[must_use]
    pub fn each(mut self, locks: u32) -> Self {
        self.until = Until::Each(locks);
        self
    }

    /// The sleep in one critical section.
    #[must_use]
    pub fn inside(&self) -> Duration {
        self.step * self.steps
    }

    /// The sleeps of one critical section.
    pub async fn sleep_inside(&self) {
        for _ in 0..self.steps {
            tokio::time::sleep(self.step).await;
        }
    }

    /// The key of a task, in a run whose keys have this prefix.
    #[must_use]
    pub fn key(&self, prefix: &str, task: u32) -> String {
        match self.keys {
            Keys::Same => prefix.to_owned(),
            Keys::Distinct => format!("{prefix}/{task}"),
        }
    }

    /// The keys of all tasks, each once.
    #[must_use]
    pub fn all_keys(&self, prefix: &str) -> Vec<String> {
        let tasks = if self.keys == Keys::Same { 1 } else { self.tasks };
        (0..tasks).map(|task| self.key(prefix, task)).collect()
    }

    /// The estimated time of a run, if the lock takes none.
    #[must_use]
    pub fn expected(&self) -> Duration {
        let in_turn = match self.keys {
            Keys::Same => self.tasks,
            Keys::Distinct => 1,
        };
        match self.until {
            Until::For(duration) => self.warm_up + duration,
            Until::Each(locks) => (self.inside() + self.pause) * locks * in_turn,
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

/// The time in which locks count, in nanoseconds of [`now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The start.
    pub from: u64,
    /// The end, exclusive.
    pub until: u64,
}

impl Window {
    /// Whether the moment is within the window.
    #[must_use]
    pub fn contains(&self, moment: u64) -> bool {
        self.from <= moment && moment < self.until
    }

    /// Whether any moment from `from` to `to`, both included, is within the window.
    #[must_use]
    pub fn overlaps(&self, from: u64, to: u64) -> bool {
        from < self.until && self.from <= to
    }
}

/// The host's boot-time clock in nanoseconds, which all its processes share.
#[must_use]
pub fn now() -> u64 {
    u64::try_from(BootClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}
