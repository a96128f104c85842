//! Goal: `Gaggle` keeps the contract over every channel. Method: the conformance suite on a cluster
//! of three members in one runtime; over Memory in virtual time, over TCP through real sockets, over
//! Redis through a server of the test's own, which is killed where a case takes the backend down.

mod support {
    pub(crate) mod cluster;
    pub(crate) mod connect;
    pub(crate) mod gate;
}

use gaggle_channels::testing::RedisServer;
use gaggle_strategies::{Gaggle, testing};

use crate::support::{cluster::Cluster, connect};

#[tokio::test(start_paused = true)]
async fn gaggle_over_memory_passes_the_conformance_suite() {
    let cluster = Cluster::<Gaggle>::in_virtual_time(3, connect::memory()).started().await;
    let report = testing::run(&cluster).await;
    report.assert_passed();
    report.assert_not_applicable(&[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaggle_over_tcp_passes_the_conformance_suite() {
    let cluster = Cluster::<Gaggle>::in_real_time(3, connect::tcp(3)).started().await;
    let report = testing::run(&cluster).await;
    report.assert_passed();
    report.assert_not_applicable(&[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaggle_over_redis_passes_the_conformance_suite() {
    let server = RedisServer::start();
    let cluster = Cluster::<Gaggle>::in_real_time(3, connect::redis(&server));
    let cluster = cluster.over(server).started().await;
    let report = testing::run(&cluster).await;
    report.assert_passed();
    report.assert_not_applicable(&[]);
}
