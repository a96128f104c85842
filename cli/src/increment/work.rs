//! The work of one member, in a task or in a process of its own.

use std::time::Duration;

use gaggle::{LockOptions, Locker};
use gaggle_workloads::{Span, now};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::{
    plan::Job,
    store::{Memory, Store},
};
use crate::{cluster, failure::Failure};

/// The least `max_wait` of an increment. Long work needs more.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A report of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// It can lock.
    Ready,
    /// It has made one increment.
    Incremented(Span),
    /// It has made all its increments. It still votes.
    Finished,
    /// It has failed.
    Failed(String),
}

/// The phases of a run, which all members enter together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Open the strategy and lock once.
    Open,
    /// Increment.
    Increment,
    /// Close: no member needs the vote of another any more.
    Close,
}

/// Runs one member to its end, on the handle `shared` or on its own.
pub(super) async fn work(
    job: Job,
    memory: Memory,
    shared: Option<Locker>,
    mut phase: watch::Receiver<Phase>,
    events: mpsc::Sender<Event>,
) {
    let opened = match shared {
        Some(locker) => Ok(locker),
        None => gaggle::open(&job.url).await,
    };
    let outcome = match opened {
        Err(error) => Err(Failure::of(&error)),
        Ok(locker) => {
            let outcome = run(&job, &memory, &locker, &mut phase, &events).await;
            if outcome.is_ok() {
                // Members vote for each other until the last one has finished.
                let _ = phase.wait_for(|phase| *phase == Phase::Close).await;
            }
            locker.close().await;
            outcome
        }
    };
    if let Err(failure) = outcome {
        let failure = failure.during(&format!("member {}", job.member));
        let _ = events.send(Event::Failed(failure.to_string())).await;
    }
}

async fn run(
    job: &Job,
    memory: &Memory,
    locker: &Locker,
    phase: &mut watch::Receiver<Phase>,
    events: &mpsc::Sender<Event>,
) -> Result<(), Failure> {
    let mut store = Store::open(&job.store, memory).await?;
    cluster::warm_up(locker, &job.warm_up_key).await?;
    let _ = events.send(Event::Ready).await;

    let ended = |_| Failure::new("the run has ended");
    phase.wait_for(|phase| *phase >= Phase::Increment).await.map_err(ended)?;
    for _ in 0..job.increments {
        let span = increment(job, locker, &mut store).await?;
        let _ = events.send(Event::Incremented(span)).await;
    }
    let _ = events.send(Event::Finished).await;
    Ok(())
}

async fn increment(job: &Job, locker: &Locker, store: &mut Store) -> Result<Span, Failure> {
    let failed = |call: &str, error: gaggle::Error| Failure::of(&error).during(call);
    let options = LockOptions::default()
        .duration(Duration::from_secs(10).max(job.work * 4))
        .max_wait(MAX_WAIT.max(job.work * 1000));
    let lock_called_at = now();
    let guard = locker.lock_with(job.key.as_str(), options).await;
    let guard = guard.map_err(|error| failed("lock", error))?;
    let (granted_at, token) = (now(), Some(guard.fencing_token()));

    let value = store.get(&job.counter).await?;
    tokio::time::sleep(job.work).await;
    store.set(&job.counter, value + 1).await?;

    let unlock_called_at = now();
    guard.unlock().await.map_err(|error| failed("unlock", error))?;
    let unlocked_at = now();
    Ok(Span { task: job.member, lock_called_at, granted_at, unlock_called_at, unlocked_at, token })
}
