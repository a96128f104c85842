//! The members of one run.

use gaggle::Locker;
use gaggle_workloads::Span;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    plan::{Job, Plan},
    process,
    store::Memory,
    work::{self, Event, Phase},
};
use crate::failure::Failure;

/// The members of one run. Dropping it ends them, processes included.
pub(super) struct Crew {
    members: JoinSet<()>,
    count: usize,
    phase: watch::Sender<Phase>,
    events: mpsc::Receiver<Event>,
}

impl Crew {
    /// Starts each member in a task or a process.
    pub(super) async fn start(plan: &Plan, memory: &Memory) -> Result<Self, Failure> {
        let (phase, _) = watch::channel(Phase::Open);
        let (sender, events) = mpsc::channel(1024);
        let shared = match plan.jobs.first().filter(|_| plan.is_shared) {
            Some(Job { url, .. }) => Some(open_shared(url).await?),
            None => None,
        };
        let mut members = JoinSet::new();
        for job in plan.jobs.clone() {
            let (phase, sender) = (phase.subscribe(), sender.clone());
            if plan.processes {
                members.spawn(process::work(job, plan.verbosity, phase, sender));
            } else {
                let (memory, shared) = (memory.clone(), shared.clone());
                members.spawn(work::work(job, memory, shared, phase, sender));
            }
        }
        Ok(Self { members, count: plan.jobs.len(), phase, events })
    }

    /// Starts the increments once all members are ready, and ends the members once all have
    /// finished.
    pub(super) async fn work(
        mut self,
        mut on_increment: impl FnMut(),
    ) -> Result<Vec<Span>, Failure> {
        let (mut ready, mut finished, mut spans) = (0, 0, Vec::new());
        while finished < self.count {
            match self.events.recv().await {
                Some(Event::Ready) => {
                    ready += 1;
                    if ready == self.count {
                        self.phase.send_replace(Phase::Increment);
                    }
                }
                Some(Event::Incremented(span)) => {
                    on_increment();
                    spans.push(span);
                }
                Some(Event::Finished) => finished += 1,
                Some(Event::Failed(problem)) => return Err(Failure::new(problem)),
                None => return Err(Failure::new("all members have ended")),
            }
        }
        self.phase.send_replace(Phase::Close);
        while self.members.join_next().await.is_some() {}
        Ok(spans)
    }
}

async fn open_shared(url: &str) -> Result<Locker, Failure> {
    gaggle::open(url).await.map_err(|error| Failure::of(&error))
}
