//! What each member of one run does, and where.

use std::{fmt, time::Duration};

use gaggle::Nonce;
use serde::{Deserialize, Serialize};

use super::{
    args::{Args, Keys},
    store::Address,
};
use crate::{
    cluster::{self, ChannelName, Setup, StrategyName},
    failure::Failure,
};

/// One run: what each member does, and where.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) channel: Option<ChannelName>,
    pub(super) processes: bool,
    pub(super) keys: Keys,
    pub(super) counters: Vec<String>,
    pub(super) jobs: Vec<Job>,
    /// All members of this run share one handle of this process.
    pub(super) shared: bool,
}

/// What one member does. It travels to a worker process over its standard input, so that no
/// password shows in a list of processes.
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

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("member", &self.member).finish_non_exhaustive()
    }
}

impl Plan {
    pub(super) fn new(
        args: &Args,
        strategy: StrategyName,
        store: Address,
    ) -> Result<Self, Failure> {
        // Unique to the run: nothing of a former run, or of another one at the same time, is met.
        let run = Nonce::random();
        let channel = strategy.has_channel().then(|| args.channel());
        let setup = Setup { strategy, channel };
        let urls = cluster::urls(setup, args.members, args.redis.as_ref(), &run.to_string())?;
        let name = |index| match args.keys {
            Keys::Same => format!("gaggle/increment/{run}"),
            Keys::Distinct => format!("gaggle/increment/{run}/{index}"),
        };
        let job = |(member, url)| Job {
            member,
            url,
            key: name(member),
            warm_up_key: format!("gaggle/increment/{run}/warm-up/{member}"),
            counter: name(member),
            increments: args.increments,
            work: args.work,
            store: store.clone(),
        };
        let jobs: Vec<_> = (0..).zip(urls).map(job).collect();
        let mut counters: Vec<_> = jobs.iter().map(|job| job.counter.clone()).collect();
        counters.dedup();
        Ok(Self {
            channel,
            processes: args.processes,
            keys: args.keys,
            counters,
            jobs,
            shared: strategy == StrategyName::Local,
        })
    }

    pub(super) fn expected(&self) -> u64 {
        self.jobs.iter().map(|job| u64::from(job.increments)).sum()
    }
}
