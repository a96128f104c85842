//! A member in a process of its own. Parent and child speak in lines of JSON: what to do down the
//! child's standard input, what came of it up its standard output. The end of the input ends the
//! child, so that none outlives its parent.

use std::{
    io::{self, BufRead, Write},
    process::Stdio,
    thread,
};

use gaggle_cli::workloads::{self, Span, Workload};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

use super::open;
use crate::failure::Failure;

/// What a child is told.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Open this URL. It travels here so that no password shows in a list of processes.
    Open(String),
    Work {
        workload: Workload,
        tasks: Vec<u32>,
        begin: u64,
        prefix: String,
    },
    Close,
}

/// What a child tells: one answer to each order but the last.
#[derive(Serialize, Deserialize)]
enum Answer {
    Ready,
    Worked(Vec<Span>),
    Failed(String),
}

/// The parent's side.
pub(super) struct Child {
    process: tokio::process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process that opens this URL, and returns when it can lock.
    pub(super) async fn open(url: &str) -> Result<Self, Failure> {
        let mut child = Self::spawn().map_err(|error| Failure::new("a process").because(&error))?;
        match child.ask(&Order::Open(url.to_owned())).await? {
            Answer::Ready => Ok(child),
            _ => Err(Failure::new("a process gave an answer to another question")),
        }
    }

    /// Has it run these tasks of the workload.
    pub(super) async fn work(
        &mut self,
        workload: Workload,
        tasks: Vec<u32>,
        begin: u64,
        prefix: String,
    ) -> Result<Vec<Span>, Failure> {
        match self.ask(&Order::Work { workload, tasks, begin, prefix }).await? {
            Answer::Worked(spans) => Ok(spans),
            _ => Err(Failure::new("a process gave an answer to another question")),
        }
    }

    /// Ends it in an orderly way.
    pub(super) async fn close(mut self) {
        // One that cannot be told has ended.
        if self.tell(&Order::Close).await.is_ok() {
            let _ = self.process.wait().await;
        }
    }

    fn spawn() -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("bench-worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, input, output: BufReader::new(output).lines() })
    }

    async fn ask(&mut self, order: &Order) -> Result<Answer, Failure> {
        let heard = match self.tell(order).await {
            Ok(()) => self.output.next_line().await,
            Err(error) => Err(error),
        };
        let line = heard.map_err(|error| Failure::new("a process").because(&error))?;
        let Some(line) = line else { return Err(Failure::new("a process ended early")) };
        match serde_json::from_str(&line) {
            Ok(Answer::Failed(problem)) => Err(Failure::new(problem)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Failure::new("a process' answer").because(&error)),
        }
    }

    async fn tell(&mut self, order: &Order) -> io::Result<()> {
        self.input.write_all(line(order)?.as_bytes()).await
    }
}

/// The child's side.
pub(super) async fn run() -> Result<(), Failure> {
    let (told, mut orders) = mpsc::channel(1);
    // A thread, because a runtime cannot end while one of its own waits for standard input.
    thread::spawn(move || obey(&told));
    let mut member = None;
    while let Some(order) = orders.recv().await {
        let answer = match order {
            Order::Open(url) => open::member(&url).await.map(|opened| {
                member = Some(opened);
                Answer::Ready
            }),
            Order::Work { workload, tasks, begin, prefix } => {
                let member = member.as_ref().ok_or_else(|| Failure::new("nothing is open"))?;
                let spans = workloads::record(member, &workload, &tasks, begin, &prefix).await;
                let failed = |error: workloads::Failed| Failure::new("a task").because(&*error);
                spans.map(Answer::Worked).map_err(failed)
            }
            Order::Close => break,
        };
        let answer = answer.unwrap_or_else(|failure| Answer::Failed(failure.to_string()));
        say(&answer).map_err(|error| Failure::new("a worker").because(&error))?;
    }
    if let Some(member) = member {
        member.close().await;
    }
    Ok(())
}

/// Passes on what standard input says, and ends the process when it ends.
fn obey(told: &mpsc::Sender<Order>) {
    for line in io::stdin().lock().lines() {
        let Ok(order) = line.and_then(|line| Ok(serde_json::from_str(&line)?)) else { break };
        let last = matches!(order, Order::Close);
        if told.blocking_send(order).is_err() || last {
            return;
        }
    }
    std::process::exit(2);
}

fn say(answer: &Answer) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(line(answer)?.as_bytes())?;
    output.flush()
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}
