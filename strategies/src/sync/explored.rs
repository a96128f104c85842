//! A mutex whose order of use `shuttle` decides, and the runs that explore such orders.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{LockResult, MutexGuard, TryLockError},
};

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    sync::atomic::{AtomicBool, Ordering},
};

thread_local! {
    /// Whether this thread runs a schedule: all threads of one schedule are fibres of one thread.
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// [`std::sync::Mutex`], with a choice of who runs next before each lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if !EXPLORING.get() {
            return self.0.lock();
        }
        switch();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
            }
        }
    }
}

/// A point at which another thread may go on.
pub(crate) fn switch() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// Schedules of each kind in one exploration.
const SCHEDULES: usize = 10_000;
/// Changes of priority in one schedule of the second kind (PCT): a bug that needs as many ordered
/// steps is found with a stated probability.
const PCT_DEPTH: usize = 3;

/// Runs `scenario` under random schedules, then under those of PCT. A deadlock, which is what a
/// lost wake-up comes to, and every panic fail the test.
pub(crate) fn explore(name: &str, scenario: fn()) {
    let seed = std::env::var("GAGGLE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!(
        "{name}: seed {seed}; again: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib {name}"
    );
    let random = RandomScheduler::new_from_seed(seed, SCHEDULES);
    let pct = PctScheduler::new_from_seed(seed, PCT_DEPTH, SCHEDULES);
    let exploring = Exploring::begin();
    let schedules = Runner::new(random, Config::default()).run(scenario)
        + Runner::new(pct, Config::default()).run(scenario);
    drop(exploring);
    assert_eq!(schedules, 2 * SCHEDULES, "every schedule was run");
}

/// How [`explore`] fails for `scenario`, as it must for a planted bug.
pub(crate) fn found(name: &str, scenario: fn()) -> Option<String> {
    let failure = catch_unwind(AssertUnwindSafe(|| explore(name, scenario))).err()?;
    Some(*failure.downcast::<String>().unwrap_or_default())
}

struct Exploring;

impl Exploring {
    fn begin() -> Self {
        EXPLORING.set(true);
        Self
    }
}

impl Drop for Exploring {
    fn drop(&mut self) {
        EXPLORING.set(false);
    }
}
