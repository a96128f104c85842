//! Goal: the conformance suite can fail. Method: a plain strategy that passes every case in
//! virtual time is broken in one way at a time, and the cases that must notice are written down.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use gaggle_strategies::{
    KeyedMutex,
    testing::{
        self, Fixture, Lacking, Outcome,
        broken::{Fault, Server},
    },
};

struct Plain(Server);

#[async_trait]
impl Fixture for Plain {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(self.0.open())
    }
    async fn residue(&self) -> Option<u64> {
        Some(self.0.residue())
    }
    fn slack(&self) -> Duration {
        Duration::from_millis(20)
    }
    fn recovery(&self) -> Duration {
        Duration::from_secs(2)
    }
    fn waiters(&self) -> usize {
        200
    }
    fn keys(&self) -> usize {
        1_000
    }
    async fn backend_down(&self) -> Result<(), Lacking> {
        self.0.stop();
        Ok(())
    }
    async fn backend_up(&self) -> Result<(), Lacking> {
        self.0.start();
        Ok(())
    }
    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.0.restart();
        Ok(())
    }
    async fn change_leader(&self) -> Result<(), Lacking> {
        self.0.change_leader();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_strategy_with_no_fault_passes_every_case() {
    let report = testing::run(&Plain(Server::sound())).await;
    report.assert_passed();
    assert_eq!(report.not_applicable(), []);
}
#[tokio::test(start_paused = true)]
async fn derive() {
    for fault in Fault::ALL {
        let t = std::time::Instant::now();
        let report = testing::run(&Plain(Server::with(fault))).await;
        println!("(Fault::{fault:?}, &{:?}), // {:?}", report.failed(), t.elapsed());
        for c in &report.cases { if !matches!(c.outcome, Outcome::Passed) { println!("     {c}"); } }
    }
}
