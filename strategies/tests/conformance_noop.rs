//! Goal: the suite fails on a mutex that excludes nobody. Method: `Noop` in virtual time, and the
//! cases that must notice, written down.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use gaggle_strategies::{
    Error, KeyedMutex, Noop, TokioClock,
    testing::{self, Fixture, Lacking},
};

/// One `Noop` for all, so that its tokens rise: what fails, fails for want of exclusion.
struct Nothing {
    noop: Mutex<Arc<Noop>>,
}

fn fresh() -> Arc<Noop> {
    Arc::new(Noop::with_clock(Arc::new(TokioClock::new())))
}

#[async_trait]
impl Fixture for Nothing {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        self.noop.lock().expect("no test panics with it").clone()
    }

    async fn done(&self, _: Arc<dyn KeyedMutex>) {}

    async fn settle(&self) {
        let noop = self.open().await;
        if matches!(noop.inspect("k").await, Err(Error::Closed)) {
            *self.noop.lock().expect("no test panics with it") = fresh();
        }
    }

    async fn residue(&self) -> Option<u64> {
        Some(0)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(5)
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        Ok(())
    }
}

/// Derived by running. What passes does so because nobody is in the way: a key that is free for
/// everybody is granted at once (5, 17), bad input is refused (15), and tokens rise without
/// exclusion (28, 29, 30).
const FAILED: [u8; 29] = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 19, 20, 21, 22, 23, 28, 29, 30, 31, 32, 33,
    34, 35, 38,
];

#[tokio::test(start_paused = true)]
async fn noop_fails_the_conformance_suite_in_these_cases() {
    let report = testing::run(&Nothing { noop: Mutex::new(fresh()) }).await;
    report.assert_failed(&FAILED);
    report.assert_not_applicable(&[27, 36, 37]);
}
