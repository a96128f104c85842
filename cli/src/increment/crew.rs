//! The members of one run.

use gaggle::Locker;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    plan::{Job, Plan},
    process,
    store::Memory,
    worker::{self, Event, Phase, Span},
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
    /// Starts the members, each in a task or a process.
    pub(super) async fn start(plan: &Plan, memory: &Memory) -> Result<Self, Failure> {
        let (phase, _) = watch::channel(Phase::Open);
        let (sender, events) = mpsc::channel(1024);
        let shared = match plan.jobs.first().filter(|_| plan.shared) {
            Some(Job { url, .. }) => Some(open_shared(url).await?),
            None => None,
        };
        let mut members = JoinSet::new();
        for job in plan.jobs.clone() {
            let (phase, sender) = (phase.subscribe(), sender.clone());
            if plan.processes {
                members.spawn(process::work(job, phase, sender));
            } else {
                let (memory, shared) = (memory.clone(), shared.clone());
                members.spawn(worker::work(job, memory, shared, phase, sender));
            }
        }
        Ok(Self { members, count: plan.jobs.len(), phase, events })
    }

    /// Waits until all are ready, lets them go, and ends them once all have finished.
    pub(super) async fn work(mut self, mut made: impl FnMut(&Span)) -> Result<Vec<Span>, Failure> {
        let (mut ready, mut finished, mut spans) = (0, 0, Vec::new());
        while finished < self.count {
            match self.events.recv().await {
                Some(Event::Ready) => {
                    ready += 1;
                    if ready == self.count {
                        self.phase.send_replace(Phase::Go);
                    }
                }
                Some(Event::Made(span)) => {
                    made(&span);
                    spans.push(span);
                }
                Some(Event::Finished) => finished += 1,
                Some(Event::Failed(problem)) => return Err(Failure::new(problem)),
                None => return Err(Failure::new("the members have gone")),
            }
        }
        self.phase.send_replace(Phase::End);
        while self.members.join_next().await.is_some() {}
        Ok(spans)
    }
}

async fn open_shared(url: &str) -> Result<Locker, Failure> {
    gaggle::open(url).await.map_err(|error| Failure::new("the strategy").because(&error))
}
