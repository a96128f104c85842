//! A member in a process of its own.

use std::{io, process::ExitCode, sync::Arc};

use gaggle::Locker;
use gaggle_workloads::{self as workloads, Span, Workload};
use serde::{Deserialize, Serialize};

use super::open;
use crate::{
    failure::Failure,
    verbosity::Verbosity,
    worker::{self, Worker},
};

/// An order of the parent.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Open this URL.
    Open(String),
    Work(Work),
    Close,
}

/// Tasks of a workload, which begin at this time on keys with this prefix.
#[derive(Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) workload: Workload,
    pub(super) tasks: Vec<u32>,
    pub(super) begin: u64,
    pub(super) prefix: String,
}

/// The reply to each order but the last.
#[derive(Serialize, Deserialize)]
enum Reply {
    Ready,
    Worked(Vec<Span>),
    Failed(String),
}

/// A member in a worker process, as its parent sees it.
pub(super) struct Child(Worker);

impl Child {
    /// Starts a process that opens this URL, and returns when it can lock.
    pub(super) async fn open(url: &str, verbosity: Verbosity) -> Result<Self, Failure> {
        let worker = Worker::start(super::WORKER, verbosity);
        let mut child = Self(worker.map_err(|error| Failure::new("a worker").because(&error))?);
        match child.order(&Order::Open(url.to_owned())).await? {
            Reply::Ready => Ok(child),
            _ => Err(Failure::new("a worker replied out of turn")),
        }
    }

    pub(super) async fn work(&mut self, work: Work) -> Result<Vec<Span>, Failure> {
        match self.order(&Order::Work(work)).await? {
            Reply::Worked(spans) => Ok(spans),
            _ => Err(Failure::new("a worker replied out of turn")),
        }
    }

    /// Closes the member and waits for the end of its process.
    pub(super) async fn close(mut self) {
        // A process that takes no order has ended.
        if self.0.send(&Order::Close).await.is_ok() {
            let _ = self.0.wait().await;
        }
    }

    async fn order(&mut self, order: &Order) -> Result<Reply, Failure> {
        let reply = match self.0.send(order).await {
            Ok(()) => self.0.receive().await,
            Err(error) => Err(error),
        };
        match reply.map_err(|error| Failure::new("a worker").because(&error))? {
            None => Err(Failure::new("a worker ended early")),
            Some(Reply::Failed(problem)) => Err(Failure::new(problem)),
            Some(reply) => Ok(reply),
        }
    }
}

/// In the worker process: obeys the parent's orders.
pub(crate) async fn run_worker() -> Result<ExitCode, Failure> {
    Verbosity::default().start(io::stderr)?;
    let mut orders = worker::orders(|_| {});
    let mut member = None;
    while let Some(order) = orders.recv().await {
        let reply = match order {
            Order::Open(url) => open::member(&url).await.map(|opened| {
                member = Some(opened);
                Reply::Ready
            }),
            Order::Work(it) => work(member.as_ref(), &it).await,
            Order::Close => break,
        };
        let reply = reply.unwrap_or_else(|failure| Reply::Failed(failure.to_string()));
        let failed = |error: io::Error| Failure::new("a worker").because(&error);
        worker::reply(&reply).map_err(failed)?;
    }
    if let Some(member) = member {
        member.close().await;
    }
    Ok(ExitCode::SUCCESS)
}

async fn work(member: Option<&Arc<Locker>>, work: &Work) -> Result<Reply, Failure> {
    let member = member.ok_or_else(|| Failure::new("no member is open"))?;
    let Work { workload, tasks, begin, prefix } = work;
    let spans = workloads::record_locker(member, workload, tasks, *begin, prefix).await;
    spans.map(Reply::Worked).map_err(|error| Failure::of(&*error))
}
