//! A member in a process of its own.

use std::{io, process::ExitCode};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::{
    plan::Job,
    store::{Address, Folder, Memory},
    work::{self, Event, Phase},
};
use crate::{
    failure::Failure,
    verbosity::Verbosity,
    worker::{self, Worker},
};

/// An order of the parent. The replies are events.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Always the first.
    Job(Job),
    Enter(Phase),
}

/// In the parent: runs [`work::work`] in a worker process.
pub(super) async fn work(
    job: Job,
    verbosity: Verbosity,
    phase: watch::Receiver<Phase>,
    events: mpsc::Sender<Event>,
) {
    let member = job.member;
    if let Err(error) = attend(job, verbosity, phase, &events).await {
        let problem = Failure::new(format!("the process of member {member}")).because(&error);
        let _ = events.send(Event::Failed(problem.to_string())).await;
    }
}

async fn attend(
    job: Job,
    verbosity: Verbosity,
    mut phase: watch::Receiver<Phase>,
    events: &mpsc::Sender<Event>,
) -> io::Result<()> {
    let mut worker = Worker::start(super::WORKER, verbosity)?;
    // The output of a process that has ended says so, here and below.
    let _ = worker.send(&Order::Job(job)).await;
    let mut has_concluded = false;
    loop {
        tokio::select! {
            event = worker.receive::<Event>() => {
                let Some(event) = event? else { break };
                has_concluded |= matches!(event, Event::Finished | Event::Failed(_));
                if events.send(event).await.is_err() {
                    break;
                }
            }
            Ok(()) = phase.changed() => {
                let phase = *phase.borrow_and_update();
                let _ = worker.send(&Order::Enter(phase)).await;
            }
        }
    }
    let status = worker.wait().await?;
    let ended_early = || io::Error::other(format!("ended early ({status})"));
    if has_concluded { Ok(()) } else { Err(ended_early()) }
}

/// In the worker process: runs the member until its parent ends it.
pub(crate) async fn run_worker() -> Result<ExitCode, Failure> {
    Verbosity::default().start(io::stderr)?;
    let failed = |error: io::Error| Failure::new("a worker").because(&error);
    let mut folder = None;
    // Removed here if the parent was killed.
    let mut orders = worker::orders(move |order| {
        if let Order::Job(Job { store: Address::Folder(path), .. }) = order {
            folder.replace(Folder::of_parent(path.clone()));
        }
    });
    let Some(Order::Job(job)) = orders.recv().await else {
        return Err(Failure::new("a worker without a job"));
    };
    let (sender, phase) = watch::channel(Phase::Open);
    let (events, mut pending) = mpsc::channel(1024);
    let work = work::work(job, Memory::default(), None, phase, events);
    let obey = async {
        while let Some(Order::Enter(phase)) = orders.recv().await {
            sender.send_replace(phase);
        }
    };
    let reply = async {
        while let Some(event) = pending.recv().await {
            worker::reply(&event).map_err(failed)?;
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        ((), replied) = async { tokio::join!(work, reply) } => replied,
        () = obey => Err(Failure::new("an order out of turn")),
    }
}
