//! The members of one setup, in this process or in separate ones.

use std::{sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use gaggle::{Locker, Nonce};
use gaggle_workloads::{self as workloads, Figures, Workload};

use super::{
    args::Args,
    child::{Child, Work},
    open,
};
use crate::{
    cluster::{self, Cluster, Setup, StrategyName},
    failure::Failure,
};

/// The time between the order to the processes and the start of the run.
const LEAD: Duration = Duration::from_millis(50);

/// The members of one setup, ready to lock.
pub(super) struct Crew {
    members: Members,
    /// Members read their files again.
    _cluster: Cluster,
}

enum Members {
    /// In this process.
    Here(Vec<Arc<Locker>>),
    /// Each in a process of its own. Dropping them ends the processes.
    Processes(Vec<Child>),
}

impl Crew {
    pub(super) async fn open(setup: Setup, args: &Args) -> Result<Self, Failure> {
        // Unique to the crew, which shares no cluster with another one.
        let cluster = Nonce::random().to_string();
        let cluster = cluster::members(setup, args.members, args.redis.as_ref(), &cluster)?;
        let mut urls = &cluster.urls[..];
        let members = if args.processes {
            let children = urls.iter().map(|url| Child::open(url, args.verbosity));
            Members::Processes(try_join_all(children).await?)
        } else {
            if matches!(setup.strategy, StrategyName::Local | StrategyName::Noop) {
                // Each handle would be a separate lock.
                urls = &urls[..1];
            }
            Members::Here(try_join_all(urls.iter().map(|url| open::member(url))).await?)
        };
        Ok(Self { members, _cluster: cluster })
    }

    pub(super) fn members(&self) -> usize {
        match &self.members {
            Members::Here(members) => members.len(),
            Members::Processes(children) => children.len(),
        }
    }

    /// Runs the workload with its first task at member `first`.
    pub(super) async fn run(
        &mut self,
        workload: &Workload,
        first: usize,
        prefix: &str,
    ) -> Result<Figures, Failure> {
        let members = self.members();
        match &mut self.members {
            Members::Here(lockers) => {
                let mut lockers = lockers.clone();
                lockers.rotate_left(first);
                let run = workloads::run_lockers(&lockers, workload, prefix).await;
                run.map_err(|error| Failure::of(&*error))
            }
            Members::Processes(children) => {
                let begin = workloads::now() + LEAD.as_nanos() as u64;
                let runs = children.iter_mut().enumerate().map(|(member, child)| {
                    let at = |task: &u32| (*task as usize + first) % members == member;
                    let tasks = (0..workload.tasks).filter(at).collect();
                    let (workload, prefix) = (workload.clone(), prefix.to_owned());
                    child.work(Work { workload, tasks, begin, prefix })
                });
                let spans = try_join_all(runs).await;
                if spans.is_err() {
                    // Ends them: the others would wait for their results to be read.
                    children.clear();
                }
                Ok(workloads::replay(workload, begin, spans?.concat()))
            }
        }
    }

    pub(super) async fn close(self) {
        match self.members {
            Members::Here(lockers) => {
                join_all(lockers.iter().map(|locker| locker.close())).await;
            }
            Members::Processes(children) => {
                join_all(children.into_iter().map(Child::close)).await;
            }
        }
    }
}
