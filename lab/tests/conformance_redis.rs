//! Goal: the Redis strategy passes the conformance suite, and nothing is late.
//! Method: the suite's cases on the emulated server, in virtual time: nothing may be later than
//! 20 ms. The cases of processes and of listing run on real servers only.
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use gaggle_lab::SimulatedRedis;
use gaggle_strategies::{
    KeyedMutex,
    clock::TokioClock,
    testing::{self, Fixture, Lacking, Report},
};

/// The simulated server, which does not know `SCAN`.
struct Simulated {
    server: Arc<SimulatedRedis>,
    clock: Arc<TokioClock>,
    opened: AtomicU64,
}

/// The case that lists keys.
const LISTING: u8 = 39;

#[async_trait]
impl Fixture for Simulated {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        let seed = self.opened.fetch_add(1, Ordering::Relaxed);
        Arc::new(self.server.open(self.clock.clone(), seed))
    }

    async fn residue(&self) -> Option<u64> {
        Some(self.server.residue().iter().filter(|key| is_residue(key)).count() as u64)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// The Lua interpreter is built without optimisation.
    fn keys(&self) -> usize {
        2_000
    }

    async fn backend_down(&self) -> Result<(), Lacking> {
        self.server.down();
        Ok(())
    }

    async fn backend_up(&self) -> Result<(), Lacking> {
        self.server.up();
        Ok(())
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.server.down();
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.server.up();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn simulated_redis_is_never_late() {
    let (server, clock) = (SimulatedRedis::new(), Arc::new(TokioClock::new()));
    let fixture = Simulated { server, clock, opened: AtomicU64::new(0) };
    let mut cases = Vec::new();
    for case in testing::cases().filter(|case| case.number != LISTING) {
        cases.push(testing::run_case(&fixture, case.number).await);
    }
    let report = Report { strategy: "redis", cases };
    // `conformance_processes` has it.
    report.assert_passed_but_untried(&[42]);
    report.assert_not_applicable(&[27]);
}

/// Neither a token counter nor a remembered nonce.
fn is_residue(key: &str) -> bool {
    let part = key.split_once("}:").unwrap().1;
    !(["t", "x"].contains(&part) || part.starts_with("g:"))
}
