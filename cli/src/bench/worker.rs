//! A member in a worker process, which exchanges JSON with its parent, one value a line.

use std::{
    io::{self, BufRead as _, Write as _},
    process::{ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use gaggle_workloads::{self as workloads, LockSample, Workload};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::mpsc,
};

use super::{
    member::Member,
    store::{Address, Folder, Store},
};
use crate::{failure::Failure, verbosity::Verbosity};

/// The command of a worker process.
pub(crate) const WORKER: &str = "bench-worker";

/// A request of the parent.
#[derive(Serialize, Deserialize)]
enum Request {
    Open(MemberConfig),
    Run(Run),
    Close,
}

/// How a worker opens its member. No `Debug`, which would show a password.
#[derive(Serialize, Deserialize)]
pub(super) struct MemberConfig {
    pub(super) url: String,
    /// How long a critical section lasts.
    pub(super) section: Duration,
    /// The store of the counters, if critical sections increment them.
    pub(super) store: Option<Address>,
}

/// Tasks of a workload, which begin at this time on keys with this prefix.
#[derive(Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) tasks: Vec<u32>,
    pub(super) begin: u64,
    pub(super) prefix: String,
}

/// The reply to each request but the last.
#[derive(Serialize, Deserialize)]
enum Reply {
    Ready,
    Samples(Vec<LockSample>),
    Failed(String),
}

/// A worker process, as its parent sees it. Dropping it kills the process.
///
/// Requests travel over its standard input, so that no password shows in a list of processes. The
/// end of that input ends the process: a worker never outlives its parent.
pub(super) struct Worker {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts this program again, and returns when its member can lock.
    pub(super) async fn open(config: MemberConfig, verbosity: Verbosity) -> Result<Self, Failure> {
        let mut worker = Self::start(verbosity).map_err(|error| failed(&error))?;
        match worker.request(&Request::Open(config)).await? {
            Reply::Ready => Ok(worker),
            _ => Err(Failure::new("a worker replied out of turn")),
        }
    }

    fn start(verbosity: Verbosity) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(WORKER)
            .env("RUST_LOG", verbosity.directives())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A terminal's Ctrl-C goes to the parent alone, which ends its workers.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let input = process.stdin.take().expect("its standard input is piped");
        let output = process.stdout.take().expect("its standard output is piped");
        Ok(Self { process, input, output: BufReader::new(output).lines() })
    }

    pub(super) async fn run(&mut self, run: Run) -> Result<Vec<LockSample>, Failure> {
        match self.request(&Request::Run(run)).await? {
            Reply::Samples(samples) => Ok(samples),
            _ => Err(Failure::new("a worker replied out of turn")),
        }
    }

    /// Closes the member and waits for the end of its process.
    pub(super) async fn close(mut self) {
        // A process that takes no request has ended.
        if self.send(&Request::Close).await.is_ok() {
            let _ = self.process.wait().await;
        }
    }

    async fn request(&mut self, request: &Request) -> Result<Reply, Failure> {
        let reply = async {
            self.send(request).await?;
            let line = self.output.next_line().await?;
            Ok(line.map(|line| serde_json::from_str(&line)).transpose()?)
        };
        match reply.await.map_err(|error: io::Error| failed(&error))? {
            None => Err(Failure::new("a worker ended early")),
            Some(Reply::Failed(problem)) => Err(Failure::new(problem)),
            Some(reply) => Ok(reply),
        }
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.input.write_all(line(request)?.as_bytes()).await
    }
}

fn line(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

fn failed(error: &io::Error) -> Failure {
    Failure::new("a worker").because(error)
}

/// Serves the parent's requests, in the worker process.
pub(crate) async fn run_worker() -> Result<ExitCode, Failure> {
    Verbosity::default().start(io::stderr)?;
    let mut requests = requests();
    let mut member = None;
    while let Some(request) = requests.recv().await {
        let reply = match request {
            Request::Open(config) => open(config).await.map(|opened| {
                member = Some(opened);
                Reply::Ready
            }),
            Request::Run(run) => record(member.as_ref(), &run).await,
            Request::Close => break,
        };
        let reply = reply.unwrap_or_else(|failure| Reply::Failed(failure.to_string()));
        let mut output = io::stdout().lock();
        let written = line(&reply).and_then(|line| output.write_all(line.as_bytes()));
        written.and_then(|()| output.flush()).map_err(|error| failed(&error))?;
    }
    if let Some(member) = member {
        member.close().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// The requests from standard input, whose end ends the process.
fn requests() -> mpsc::Receiver<Request> {
    let (sender, requests) = mpsc::channel(1);
    // A thread, because a runtime waits at its end for a task that reads standard input.
    thread::spawn(move || {
        let mut folder = None;
        for line in io::stdin().lock().lines() {
            let Ok(request) = line.and_then(|line| Ok(serde_json::from_str(&line)?)) else { break };
            if let Request::Open(MemberConfig { store: Some(Address::Folder(path)), .. }) = &request
            {
                folder = Some(path.clone());
            }
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
        // The parent was killed, and has not removed it.
        drop(folder.map(Folder::of_parent));
        std::process::exit(2);
    });
    requests
}

async fn open(config: MemberConfig) -> Result<Arc<Member>, Failure> {
    let store = match &config.store {
        Some(address) => Some(Arc::new(Store::open(address).await?)),
        None => None,
    };
    Ok(Arc::new(Member::open(&config.url, config.section, store).await?))
}

async fn record(member: Option<&Arc<Member>>, run: &Run) -> Result<Reply, Failure> {
    let member = member.ok_or_else(|| Failure::new("no member is open"))?;
    let Run { workload, tasks, begin, prefix } = run;
    let samples = workloads::record(member, workload, tasks, *begin, prefix).await;
    samples.map(Reply::Samples).map_err(|error| Failure::of(&*error))
}
