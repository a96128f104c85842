//! Gaggle over Memory on one thread.

use std::time::Duration;

use gaggle_workloads::{Workload, run};

use super::Outcome;
use crate::{
    cluster::{Cluster, Over},
    contenders::{Failed, excluding},
};

/// Gaggle over Memory, at the leader, on one thread.
pub(super) async fn measure(window: Duration) -> Result<Outcome, Failed> {
    let cluster = Cluster::gaggle(3, Over::Memory).await;
    let leader = cluster.leader();
    let uncontended = run(&leader, &Workload::uncontended().lasting(window), "uncontended").await?;
    let fan = run(&leader, &Workload::fan(64).lasting(window), "fan").await?;
    let hot = run(&leader, &Workload::handoff(8).lasting(window), "hot").await?;
    let (uncontended, fan, hot) = (excluding(uncontended)?, excluding(fan)?, excluding(hot)?);
    Ok(Outcome {
        p50_us: uncontended.lock_us.p50,
        per_s: fan.pairs_per_s,
        handoff_p50_us: hot.handoff_us.map(|spread| spread.p50),
    })
}
