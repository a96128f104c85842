//! Goal: `Raft` and `Gaggle` keep the contract over every channel. Method: the conformance suite on
//! three members in one runtime: over Memory in virtual time, over TCP through sockets, and over
//! the test's own Redis server, which is killed where a case takes the backend down.

mod support {
    pub(crate) mod cluster;
    pub(crate) mod connect;
}

use gaggle_fixtures::RedisServer;
use gaggle_strategies::{Gaggle, Raft, testing};

use crate::support::{
    cluster::{Cluster, Member},
    connect,
};

async fn passes<S: Member + 'static>(cluster: Cluster<S>) {
    let report = testing::run(&cluster.started().await).await;
    // Every process is a member: the chaos test has processes.
    report.assert_passed_but_untried(&[42]);
    report.assert_not_applicable(&[]);
}

async fn passes_over_redis<S: Member + 'static>() {
    let server = RedisServer::start();
    passes(Cluster::<S>::in_real_time(3, connect::redis(&server)).over(server)).await;
}

#[tokio::test(start_paused = true)]
async fn raft_over_memory_conforms() {
    passes(Cluster::<Raft>::in_virtual_time(3, connect::memory())).await;
}

#[tokio::test(start_paused = true)]
async fn gaggle_over_memory_conforms() {
    passes(Cluster::<Gaggle>::in_virtual_time(3, connect::memory())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raft_over_tcp_conforms() {
    passes(Cluster::<Raft>::in_real_time(3, connect::tcp(3))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaggle_over_tcp_conforms() {
    passes(Cluster::<Gaggle>::in_real_time(3, connect::tcp(3))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raft_over_redis_conforms() {
    passes_over_redis::<Raft>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaggle_over_redis_conforms() {
    passes_over_redis::<Gaggle>().await;
}
