//! What one member does, in a task or in a process of its own.

use std::time::Duration;

use gaggle::{BootClock, Clock, LockOptions, Locker};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::{
    plan::Job,
    store::{Memory, Store},
};
use crate::failure::Failure;

/// How long a member may take until it votes.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long a member waits for its turn; more if the work is long.
const TURN_WITHIN: Duration = Duration::from_secs(60);

/// One increment, in nanoseconds of the host's boot-time clock, which all its processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) member: u32,
    /// Before `lock` was called.
    pub(super) asked: u64,
    /// `lock` had returned.
    pub(super) acquired: u64,
    /// Before `unlock` was called.
    pub(super) unlock_called: u64,
    /// `unlock` had returned.
    pub(super) unlocked: u64,
}

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// It can lock.
    Ready,
    /// It has made one increment.
    Made(Span),
    /// It has made them all, and goes on voting.
    Finished,
    /// It has given up.
    Failed(String),
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Open and get ready.
    Open,
    /// Increment.
    Go,
    /// Close: nobody needs your vote any more.
    End,
}

/// Runs one member to its end. `shared` is the handle to use instead of opening one.
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
        Err(error) => Err(Failure::new(format!("member {}", job.member)).because(&error)),
        Ok(locker) => {
            let outcome = run(&job, &memory, &locker, &mut phase, &events).await;
            if outcome.is_ok() {
                // Members vote for each other until the last has finished.
                let _ = phase.wait_for(|phase| *phase == Phase::End).await;
            }
            locker.close().await;
            outcome
        }
    };
    if let Err(failure) = outcome {
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
    let failed =
        |error: gaggle::Error| Failure::new(format!("member {}", job.member)).because(&error);
    let mut store = Store::open(&job.store, memory).await?;
    match tokio::time::timeout(READY_WITHIN, locker.ready()).await {
        Ok(ready) => ready.map_err(failed)?,
        Err(_) => {
            let problem = format!("member {} did not vote within {READY_WITHIN:?}", job.member);
            return Err(Failure::new(problem));
        }
    }
    // A first lock opens what opens lazily; it must not count.
    let warm_up = LockOptions::default().max_wait(READY_WITHIN);
    let guard = locker.lock_with(job.warm_up_key.as_str(), warm_up).await.map_err(failed)?;
    guard.unlock().await.map_err(failed)?;
    let _ = events.send(Event::Ready).await;

    let gone = |_| Failure::new("the run has ended");
    phase.wait_for(|phase| *phase >= Phase::Go).await.map_err(gone)?;
    for _ in 0..job.increments {
        let span = increment(job, locker, &mut store).await?;
        let _ = events.send(Event::Made(span)).await;
    }
    let _ = events.send(Event::Finished).await;
    Ok(())
}

async fn increment(job: &Job, locker: &Locker, store: &mut Store) -> Result<Span, Failure> {
    let failed = |what: &str, error: gaggle::Error| {
        Failure::new(format!("member {}: {what}", job.member)).because(&error)
    };
    let options = LockOptions::default()
        .duration(Duration::from_secs(10).max(job.work * 4))
        .max_wait(TURN_WITHIN.max(job.work * 1000));
    let asked = now();
    let guard =
        locker.lock_with(job.key.as_str(), options).await.map_err(|error| failed("lock", error))?;
    let acquired = now();

    let value = store.get(&job.counter).await?;
    tokio::time::sleep(job.work).await;
    store.set(&job.counter, value + 1).await?;

    let unlock_called = now();
    guard.unlock().await.map_err(|error| failed("unlock", error))?;
    Ok(Span { member: job.member, asked, acquired, unlock_called, unlocked: now() })
}

fn now() -> u64 {
    let since = BootClock.now().since_origin();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
