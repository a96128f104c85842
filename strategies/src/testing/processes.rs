//! Worker processes: case 42, and the part of each worker.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tokio::{
    task::{JoinSet, spawn_blocking},
    time::sleep,
};

use super::{
    Fixture,
    context::{Context, Handle, LONG, Stop, Verdict, ensure, granted, unlocked},
};
use crate::{
    clock::{BootClock, Clock as _},
    lock::Nonce,
    options::LockOptions,
};

/// The order to a worker process, which [`Fixture::worker`]'s command inherits.
const VARIABLE: &str = "GAGGLE_WORKER";

/// How many processes increment, in how many tasks each, and how often each task does.
const PROCESSES: usize = 4;
const TASKS: usize = 4;
const INCREMENTS: usize = 25;
/// How long an increment takes: two holders at once then read the same number.
const STEP: Duration = Duration::from_millis(1);
/// How often the processes are checked.
const CHECK_EVERY: Duration = Duration::from_millis(5);

/// The work of one process.
#[derive(Clone)]
struct Order {
    key: String,
    /// Each increment appends its number and its token to this file.
    file: PathBuf,
    duration: Duration,
    /// Keeps its first lock until it is killed.
    is_victim: bool,
}

impl Order {
    /// The order in four lines: no key of the suite contains a line break.
    fn to_text(&self) -> String {
        let Self { key, file, duration, is_victim } = self;
        format!("{key}\n{}\n{}\n{is_victim}", file.display(), duration.as_millis())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (key, file) = (lines.next()?.into(), lines.next()?.into());
        let duration = Duration::from_millis(lines.next()?.parse().ok()?);
        Some(Self { key, file, duration, is_victim: lines.next()?.parse().ok()? })
    }
}

/// The file of the increments, removed when dropped.
struct Counter(PathBuf);

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A process, killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Case 42.
pub(super) async fn processes_lose_no_increment(cx: &Context<'_>) -> Verdict {
    if !cx.open().await.capabilities().distributed {
        return Err(Stop::NotApplicable("the strategy is for one process"));
    }
    let file = env::temp_dir().join(format!("gaggle-increments-{}", Nonce::random()));
    // A holder that is not scheduled for that long is a fault of the machine.
    let (key, duration) = (cx.key("counter"), cx.lease() * 5);
    let order = Order { key, file: file.clone(), duration, is_victim: false };
    let victim = worker(cx, &Order { is_victim: true, ..order.clone() })?;
    let others = (0..PROCESSES).map(|_| worker(cx, &order)).collect::<Result<Vec<_>, _>>()?;
    let limit = cx.fixture.time_limit();
    // The time of a paused runtime stands still as long as this thread runs.
    let ended = spawn_blocking(move || {
        let counter = Counter(file);
        supervise(victim, others, &counter.0, limit)?;
        check(&fs::read_to_string(&counter.0).map_err(failed)?)
    });
    ended.await.map_err(failed)?
}

fn worker(cx: &Context<'_>, order: &Order) -> Result<Command, Stop> {
    let mut command = cx.fixture.worker()?;
    command.env(VARIABLE, order.to_text()).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// Kills the first process once it holds the key. The others must end by themselves.
fn supervise(mut first: Command, others: Vec<Command>, file: &Path, limit: Duration) -> Verdict {
    let until = BootClock.now().after(limit);
    let check_time = || {
        thread::sleep(CHECK_EVERY);
        ensure!(BootClock.now() < until, "worker processes have not ended within {limit:?}");
        Ok(())
    };
    let mut victim = Worker(first.spawn().map_err(failed)?);
    while fs::read(file).map_or(0, |text| text.len()) == 0 {
        let ended = victim.0.try_wait().map_err(failed)?;
        ensure!(ended.is_none(), "a worker process ended without a lock: its output says why");
        check_time()?;
    }
    let others = others.into_iter().map(|mut command| command.spawn().map(Worker));
    let mut others = others.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    drop(victim);
    for worker in &mut others {
        let status = loop {
            match worker.0.try_wait().map_err(failed)? {
                Some(status) => break status,
                None => check_time()?,
            }
        };
        ensure!(status.success(), "a worker process failed, {status}: its output says why");
    }
    Ok(())
}

/// Two holders at once append the same number.
fn check(text: &str) -> Verdict {
    let (mut count, mut token) = (0, 0);
    for line in text.lines() {
        let numbers =
            line.split_once(' ').and_then(|(n, t)| Some((n.parse().ok()?, t.parse().ok()?)));
        let Some((number, next)): Option<(usize, u64)> = numbers else {
            return Err(failed(format_args!("two processes held the key: they wrote {line:?}")));
        };
        ensure!(number == count, "two processes held the key: increment {number} was made twice");
        ensure!(next > token, "the token {next} of a process follows {token}");
        (count, token) = (number + 1, next);
    }
    let expected = 1 + PROCESSES * TASKS * INCREMENTS;
    ensure!(count == expected, "expected {expected} increments of all processes, got {count}");
    Ok(())
}

/// In a worker process: works, and ends the process. Returns in other processes.
pub(super) async fn work(fixture: &dyn Fixture) {
    let Ok(order) = env::var(VARIABLE) else { return };
    let status = match increment(fixture.open().await, &order).await {
        Ok(()) => 0,
        Err(stop) => {
            // Past the output capture of the test harness, which would lose it.
            let _ = writeln!(std::io::stderr(), "worker process: {stop:?}");
            1
        }
    };
    std::process::exit(status);
}

async fn increment(handle: Handle, order: &str) -> Verdict {
    let order =
        Order::parse(order).ok_or_else(|| failed("the order of the suite has four lines"))?;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (handle, order) = (handle.clone(), order.clone());
        tasks.spawn(async move {
            for _ in 0..INCREMENTS {
                let options = LockOptions::default().duration(order.duration).max_wait(LONG);
                let lock = granted(handle.lock(&order.key, options).await, "lock by a worker")?;
                let count = fs::read_to_string(&order.file).map_or(0, |text| text.lines().count());
                sleep(STEP).await;
                let line = format!("{count} {}\n", lock.fencing_token());
                let file = fs::File::options().create(true).append(true).open(&order.file);
                file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(failed)?;
                if order.is_victim {
                    std::future::pending::<()>().await;
                }
                unlocked(handle.unlock(&lock).await, "unlock by a worker")?;
            }
            Ok::<_, Stop>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(failed)??;
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}
