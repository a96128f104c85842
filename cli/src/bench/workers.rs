//! The members of one setup, in this process or in worker processes.

use std::{sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use gaggle::Nonce;
use gaggle_workloads::{self as workloads, Figures, Workload};

use super::{
    counters::Counters,
    member::Member,
    plan::Plan,
    worker::{MemberConfig, Run, Worker},
};
use crate::{
    cluster::{self, Cluster, Setup, StrategyName},
    failure::Failure,
};

/// The time between the request to the processes and the start of the run.
const LEAD: Duration = Duration::from_millis(50);

/// The members of one setup, ready to lock.
pub(super) struct Workers {
    members: Members,
    /// Members read their files again.
    _cluster: Cluster,
}

enum Members {
    Local(Vec<Arc<Member>>),
    /// Dropping them ends the processes.
    Processes(Vec<Worker>),
}

impl Workers {
    pub(super) async fn open(
        setup: Setup,
        plan: &Plan<'_>,
        counters: Option<&Counters>,
    ) -> Result<Self, Failure> {
        let (args, section) = (plan.args, plan.longest_section());
        // Unique to these members, which share no cluster with others.
        let cluster = Nonce::random().to_string();
        let cluster = cluster::members(setup, args.members, args.servers(), &cluster)?;
        let mut urls = &cluster.urls[..];
        let members = if args.processes {
            let open = |url: &String| {
                let store = counters.map(|counters| counters.address.clone());
                Worker::open(MemberConfig { url: url.clone(), section, store }, args.verbosity)
            };
            Members::Processes(try_join_all(urls.iter().map(open)).await?)
        } else {
            if matches!(setup.strategy, StrategyName::Local | StrategyName::Noop) {
                // Each handle would be a separate lock.
                urls = &urls[..1];
            }
            let open = async |url: &String| {
                let store = counters.map(|counters| Arc::clone(&counters.store));
                Ok::<_, Failure>(Arc::new(Member::open(url, section, store).await?))
            };
            Members::Local(try_join_all(urls.iter().map(open)).await?)
        };
        Ok(Self { members, _cluster: cluster })
    }

    pub(super) fn count(&self) -> usize {
        match &self.members {
            Members::Local(members) => members.len(),
            Members::Processes(workers) => workers.len(),
        }
    }

    /// Runs the workload with its first task at member `first`.
    pub(super) async fn run(
        &mut self,
        workload: &Workload,
        first: usize,
        prefix: &str,
    ) -> Result<Figures, Failure> {
        let count = self.count();
        match &mut self.members {
            Members::Local(members) => {
                let mut members = members.clone();
                members.rotate_left(first);
                let run = workloads::run(&members, workload, prefix).await;
                run.map_err(|error| Failure::of(&*error))
            }
            Members::Processes(workers) => {
                let begin = workloads::now() + LEAD.as_nanos() as u64;
                let runs = workers.iter_mut().enumerate().map(|(member, worker)| {
                    let at = |task: &u32| (*task as usize + first) % count == member;
                    let tasks = (0..workload.tasks).filter(at).collect();
                    let (workload, prefix) = (workload.clone(), prefix.to_owned());
                    worker.run(Run { workload, tasks, begin, prefix })
                });
                let samples = try_join_all(runs).await;
                if samples.is_err() {
                    // Ends them: the others would wait for their results to be read.
                    workers.clear();
                }
                Ok(workloads::replay(workload, begin, samples?.concat()))
            }
        }
    }

    pub(super) async fn close(self) {
        match self.members {
            Members::Local(members) => {
                join_all(members.iter().map(|member| member.close())).await;
            }
            Members::Processes(workers) => {
                join_all(workers.into_iter().map(Worker::close)).await;
            }
        }
    }
}
