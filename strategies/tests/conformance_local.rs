//! Goal: `Local` keeps the contract. Method: the conformance suite in virtual time. Its backend is
//! the calling process: it has no leader, and is never down.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use gaggle_strategies::{
    Error, KeyedMutex, Local,
    clock::TokioClock,
    testing::{self, Fixture, Lacking},
};

struct InProcess {
    local: Mutex<Arc<Local>>,
}

impl InProcess {
    fn new() -> Self {
        Self { local: Mutex::new(Self::fresh()) }
    }

    fn fresh() -> Arc<Local> {
        Arc::new(Local::with_clock(Arc::new(TokioClock::new())))
    }

    fn local(&self) -> Arc<Local> {
        self.local.lock().expect("no test panics with it").clone()
    }

    fn replace(&self) {
        *self.local.lock().expect("no test panics with it") = Self::fresh();
    }
}

#[async_trait]
impl Fixture for InProcess {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        self.local()
    }

    /// All handles are one.
    async fn done(&self, _: Arc<dyn KeyedMutex>) {}

    async fn settle(&self) {
        if matches!(self.local().inspect("k").await, Err(Error::Closed)) {
            self.replace();
        }
    }

    async fn residue(&self) -> Option<u64> {
        let sizes = self.local().sizes();
        Some(sizes.keys + sizes.waiters)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(5)
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.local().close().await;
        self.replace();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn local_passes_the_conformance_suite() {
    let report = testing::run(&InProcess::new()).await;
    report.assert_passed();
    report.assert_not_applicable(&[27, 36, 37, 42]);
}
