//! A mutex and atomics whose order of use `shuttle` decides, and the runs that explore such orders.

use std::{
    cell::Cell,
    ops::{Deref, DerefMut},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{LockResult, PoisonError, TryLockError},
};

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler},
    sync::atomic::Ordering,
};

thread_local! {
    /// Whether this thread runs a schedule: all threads of one schedule are fibres of one thread.
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// [`std::sync::Mutex`], with a choice of who runs next before each lock and after each unlock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

/// Frees the mutex, and then lets another thread go on: what the holder does next is not
/// protected any more.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(Option<std::sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = |guard| MutexGuard(Some(guard));
        let poisoned = |e: PoisonError<_>| PoisonError::new(guard(e.into_inner()));
        if !EXPLORING.get() {
            return self.0.lock().map(guard).map_err(poisoned);
        }
        switch();
        loop {
            match self.0.try_lock() {
                Ok(locked) => return Ok(guard(locked)),
                Err(TryLockError::Poisoned(error)) => return Err(poisoned(error)),
                Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("a guard guards until it is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("a guard guards until it is dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0 = None;
        if !std::thread::panicking() {
            switch();
        }
    }
}

/// [`std::sync::atomic::AtomicBool`], with a choice of who runs next before each use.
#[derive(Debug, Default)]
pub(crate) struct AtomicBool(std::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) const fn new(value: bool) -> Self {
        Self(std::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        switch();
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        switch();
        self.0.store(value, order);
    }
}

/// [`std::sync::atomic::AtomicU8`], with a choice of who runs next before each use.
#[derive(Debug, Default)]
pub(crate) struct AtomicU8(std::sync::atomic::AtomicU8);

impl AtomicU8 {
    pub(crate) fn compare_exchange(
        &self,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        switch();
        self.0.compare_exchange(current, new, success, failure)
    }
}

/// A point at which another thread of an explored schedule may go on.
pub(crate) fn switch() {
    if EXPLORING.get() {
        shuttle::sync::atomic::AtomicBool::new(false).load(Ordering::SeqCst);
    }
}

/// Schedules of each kind in one exploration.
const SCHEDULES: usize = 10_000;
/// Changes of priority in one schedule of the second kind (PCT): a bug that needs as many ordered
/// steps is found with a stated probability.
const PCT_DEPTH: usize = 3;

/// Runs `scenario` under random schedules, then under those of PCT. A deadlock, which is what a
/// lost wake-up comes to, and every panic fail the test.
pub(crate) fn explore(name: &str, scenario: fn()) {
    explore_times(SCHEDULES, name, scenario);
}

/// Explores `scenario` as [`explore`] does, with a chosen number of schedules.
pub(crate) fn explore_times(schedules: usize, name: &str, scenario: fn()) {
    let seed = std::env::var("GAGGLE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!(
        "{name}: seed {seed}; again: GAGGLE_SEED={seed} cargo test -p gaggle-strategies --lib {name}"
    );
    let random = RandomScheduler::new_from_seed(seed, schedules);
    let pct = PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules);
    let exploring = Exploring::begin();
    let run = Runner::new(random, Config::default()).run(scenario)
        + Runner::new(pct, Config::default()).run(scenario);
    drop(exploring);
    assert_eq!(run, 2 * schedules, "every schedule was run");
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
