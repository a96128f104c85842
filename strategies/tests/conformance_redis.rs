//! Goal: the Redis strategy passes the conformance suite.
//! Method: the suite's 41 cases over a `redis-server` of the test's own; "down" is killed, and
//! comes back empty.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::sync::Arc;

use async_trait::async_trait;
use gaggle_strategies::{
    KeyedMutex, Queue, Redis,
    testing::{self, Fixture, Lacking},
};
use redis_support::Server;

struct Processes {
    server: Server,
    queue: Queue,
}

#[async_trait]
impl Fixture for Processes {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(Redis::open(self.server.options().queue(self.queue)).await.unwrap())
    }

    async fn residue(&self) -> Option<u64> {
        Some(self.server.residue().await.len() as u64)
    }

    /// A thousand that each look every 225 ms are no queue but a storm.
    fn waiters(&self) -> usize {
        if self.queue == Queue::None { 30 } else { 1000 }
    }

    async fn backend_down(&self) -> Result<(), Lacking> {
        self.server.down();
        Ok(())
    }

    async fn backend_up(&self) -> Result<(), Lacking> {
        self.server.up().await;
        Ok(())
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.server.down();
        self.server.up().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_passes_the_suite() {
    let fixture = Processes { server: Server::start().await, queue: Queue::Fifo };
    let report = testing::run(&fixture).await;
    report.assert_passed();
    report.assert_not_applicable(&[27]);
}

/// Without a queue a retry wins by chance, so fairness has no bound.
const FAIRNESS: u8 = 33;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_without_queue_fails_only_fairness() {
    let fixture = Processes { server: Server::start().await, queue: Queue::None };
    let report = testing::run(&fixture).await;
    let failed: Vec<u8> = report.failed().into_iter().filter(|case| *case != FAIRNESS).collect();
    assert!(failed.is_empty() && report.untried().is_empty(), "{report}");
}
