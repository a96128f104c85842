//! The plan of one run: the job of each member.

use std::time::Duration;

use gaggle::Nonce;
use gaggle_workloads::{Keys, Workload};
use serde::{Deserialize, Serialize};

use super::{args::Args, store::Address};
use crate::{
    cluster::{self, Cluster, Setup, StrategyName},
    failure::Failure,
    verbosity::Verbosity,
};

/// The plan of one run.
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) processes: bool,
    pub(super) verbosity: Verbosity,
    pub(super) workload: Workload,
    pub(super) counters: Vec<String>,
    pub(super) jobs: Vec<Job>,
    /// All members share one handle of this process.
    pub(super) is_shared: bool,
    /// Members read their files again.
    _cluster: Cluster,
}

/// The work of one member. A worker process gets it as its first order. Without `Debug`, which
/// would show a password.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) member: u32,
    pub(super) url: String,
    pub(super) key: String,
    pub(super) warm_up_key: String,
    pub(super) counter: String,
    pub(super) increments: u32,
    pub(super) work: Duration,
    pub(super) store: Address,
}

impl Plan {
    pub(super) fn new(
        args: &Args,
        strategy: StrategyName,
        store: Address,
    ) -> Result<Self, Failure> {
        // Unique to the run, which shares no key with another one.
        let run = Nonce::random();
        let setup = Setup { strategy, channel: strategy.has_channel().then(|| args.channel()) };
        let cluster = cluster::members(setup, args.members, args.redis.as_ref(), &run.to_string())?;
        // Below the namespace of the locks, whose rights the user of a Redis has.
        let name = |member| match args.keys {
            Keys::Same => format!("gaggle:increment:{run}"),
            Keys::Distinct => format!("gaggle:increment:{run}:{member}"),
        };
        let job = |(member, url)| Job {
            member,
            url,
            key: name(member),
            warm_up_key: format!("gaggle:increment:{run}:warm-up:{member}"),
            counter: name(member),
            increments: args.increments,
            work: args.work,
            store: store.clone(),
        };
        let jobs: Vec<_> = (0..).zip(cluster.urls.iter().cloned()).map(job).collect();
        let mut counters: Vec<_> = jobs.iter().map(|job| job.counter.clone()).collect();
        counters.dedup();
        Ok(Self {
            setup,
            processes: args.processes,
            verbosity: args.verbosity,
            workload: Workload::increments(args.members, args.keys, args.increments, args.work),
            counters,
            jobs,
            is_shared: strategy == StrategyName::Local,
            _cluster: cluster,
        })
    }
}
