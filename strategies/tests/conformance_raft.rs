//! Goal: `Raft` keeps the contract over Memory. Method: the conformance suite on a cluster of
//! three members in one runtime, in virtual time.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/gate.rs"]
mod gate;
#[path = "support/memory.rs"]
mod memory;

use gaggle_strategies::{Raft, testing};

use crate::cluster::Cluster;

#[tokio::test(start_paused = true)]
async fn raft_over_memory_passes_the_conformance_suite() {
    let cluster = Cluster::<Raft>::in_virtual_time(3, memory::memory()).started().await;
    let report = testing::run(&cluster).await;
    report.assert_passed();
    report.assert_not_applicable(&[]);
}
