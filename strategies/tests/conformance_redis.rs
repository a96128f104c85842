//! Goal: the Redis strategy passes the conformance suite, wherever the Redis runs.
//! Method: the suite's cases over a `redis-server` of the test's own, in plain text and over
//! TLS, directly, by three Sentinels and in a Cluster of six nodes; "down" is killed, and comes
//! back empty. Times are judged on the emulated server, by `lab/tests/conformance_redis.rs`.
// A test that meets an error has failed, and it reads the clock to say how long things took.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod redis_support;

use std::{env, sync::Arc};

use async_trait::async_trait;
use gaggle_fixtures::RedisSentinel;
use gaggle_strategies::{
    KeyedMutex, Queue, Redis, RedisOptions,
    testing::{self, Fixture, Lacking, Report},
};
use redis_support::{
    Server, by_sentinels,
    cluster::{Cluster, eventually},
    replied,
};
use tokio::{sync::Semaphore, task::JoinSet};

/// The cases that need the server for themselves: they count what it keeps, load it or end it.
const ALONE: [u8; 7] = [25, 26, 32, 33, 35, 36, 37];

/// How many of the other cases run at a time.
const AT_ONCE: usize = 8;

struct Processes {
    /// A server, or a master of a Cluster and its replica.
    backend: Vec<Server>,
    /// The other nodes of the Cluster.
    _others: Vec<Server>,
    options: RedisOptions,
    /// How many waiters case 32 queues.
    waiters: usize,
    /// How many keys case 35 locks.
    keys: usize,
}

impl Processes {
    fn new(server: Server, options: RedisOptions) -> Self {
        let (backend, _others) = (vec![server], Vec::new());
        Self { backend, _others, options, waiters: 1_000, keys: 100_000 }
    }

    /// The same server in another place: its memory is that of the first.
    fn elsewhere(server: Server, options: RedisOptions) -> Self {
        Self { keys: 10_000, ..Self::new(server, options) }
    }

    /// The shard of the slot is the backend.
    fn in_cluster(cluster: Cluster) -> Self {
        let (owner, options) = (cluster.owner(), cluster.options_from(0));
        let mut others = cluster.nodes;
        let replica = others.remove(others.len() / 2 + owner);
        let master = others.remove(owner);
        let backend = vec![master, replica];
        Self { backend, _others: others, options, waiters: 1_000, keys: 10_000 }
    }
}

/// Runs the suite. Cases with different keys run at the same time.
async fn report_of(fixture: impl Fixture + 'static) -> Report {
    if env::var_os(testing::CASE_VARIABLE).is_some() {
        return testing::run(&fixture).await;
    }
    let (fixture, mut others) = (Arc::new(fixture), JoinSet::new());
    let limit = Arc::new(Semaphore::new(AT_ONCE));
    for number in testing::cases().map(|case| case.number) {
        let (fixture, limit) = (fixture.clone(), limit.clone());
        if !ALONE.contains(&number) {
            others.spawn(async move {
                let _permit = limit.acquire().await;
                testing::run_case(&*fixture, number).await
            });
        }
    }
    let mut cases = others.join_all().await;
    for number in ALONE {
        cases.push(testing::run_case(&*fixture, number).await);
    }
    Report { strategy: "redis", cases }
}

async fn assert_passed(fixture: impl Fixture + 'static) {
    let report = report_of(fixture).await;
    // `conformance_processes` has it.
    report.assert_passed_but_untried(&[42]);
    report.assert_not_applicable(&[27]);
}

#[async_trait]
impl Fixture for Processes {
    async fn open(&self) -> Arc<dyn KeyedMutex> {
        Arc::new(Redis::open(self.options.clone()).await.unwrap())
    }

    async fn residue(&self) -> Option<u64> {
        Some(self.backend[0].residue().await.len() as u64)
    }

    fn waiters(&self) -> usize {
        self.waiters
    }

    fn keys(&self) -> usize {
        self.keys
    }

    async fn backend_down(&self) -> Result<(), Lacking> {
        // The replica first: it would be promoted.
        self.backend.iter().rev().for_each(Server::down);
        Ok(())
    }

    async fn backend_up(&self) -> Result<(), Lacking> {
        for server in &self.backend {
            server.up().await;
        }
        if self.backend.len() > 1 {
            for server in &self.backend {
                eventually(server, &["CLUSTER", "INFO"], "cluster_state:ok").await;
            }
        }
        Ok(())
    }

    async fn restart_backend(&self) -> Result<(), Lacking> {
        self.backend_down().await?;
        self.backend_up().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_passes_the_suite() {
    let server = Server::start().await;
    let options = server.options();
    assert_passed(Processes::new(server, options)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_by_sentinels_passes_the_suite() {
    let server = Server::start().await;
    let sentinels = [(); 3].map(|()| RedisSentinel::start(server.port()));
    replied(&sentinels).await;
    assert_passed(Processes::elsewhere(server, by_sentinels(&sentinels))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cluster_passes_the_suite() {
    assert_passed(Processes::in_cluster(Cluster::start().await)).await;
}

#[cfg(feature = "tls")]
mod tls {
    use gaggle_fixtures::{Certificates, free_port};

    use super::*;
    use crate::redis_support::trust;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redis_over_tls_passes_the_suite() {
        let (certificates, port) = (Certificates::new(), free_port());
        let server = Server::start_tls(&certificates, port);
        let options = RedisOptions::new(format!("rediss://localhost:{port}"));
        assert_passed(Processes::elsewhere(server, options.tls(trust(&certificates)))).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn redis_by_tls_sentinels_passes_the_suite() {
        let (certificates, port) = (Certificates::new(), free_port());
        let server = Server::start_tls(&certificates, port);
        let sentinels = [(); 3].map(|()| RedisSentinel::start_tls(port, &certificates));
        replied(&sentinels).await;
        // The Sentinels name an IP address.
        let options = by_sentinels(&sentinels).tls(trust(&certificates)).tls_name("localhost");
        assert_passed(Processes::elsewhere(server, options)).await;
    }
}

/// A retry without a queue wins by chance, so fairness has no bound.
const FAIRNESS: u8 = 29;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_without_queue_fails_only_fairness() {
    let server = Server::start().await;
    let options = server.options().queue(Queue::None);
    // A thousand that each look every 225 ms are no queue but a storm.
    let fixture = Processes { waiters: 30, ..Processes::new(server, options) };
    let report = report_of(fixture).await;
    let failed: Vec<u8> = report.failed().into_iter().filter(|case| *case != FAIRNESS).collect();
    assert!(failed.is_empty() && report.untried() == [42], "{report}");
}
