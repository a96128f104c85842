//! Competitors in separate processes, one task in each: what people run is rarely one process.

use std::{
    io::{BufRead, Write},
    sync::Arc,
};

use gaggle_workloads::{Contender, LockSample, Workload, now, record, replay};
use tokio::runtime::Builder;

use crate::{
    bounds::Role,
    contenders::{BoxError, PostgresSession, Token, excluding},
    data::Data,
    settings::Settings,
};

pub(crate) const TOKEN: &str = "BLPOP, RPUSH, 8 processes";
pub(crate) const POSTGRES: &str = "PostgreSQL, 8 processes";
const PROCESSES: u32 = 8;
/// How long the processes have to take up a run before it begins, in nanoseconds.
const LEAD: u64 = 50_000_000;

/// One key, eight processes: the lock named so, over this URL.
pub(crate) fn handoff(
    settings: &Settings,
    data: &mut Data,
    lock: &'static str,
    url: &str,
) -> Result<(), BoxError> {
    if !settings.wants(&[lock], &["handoff"]) {
        return Ok(());
    }
    let workload = settings.of(Workload::handoff(PROCESSES));
    let described = serde_json::to_string(&workload)?;
    let mut processes = Vec::new();
    for task in 0..PROCESSES {
        processes.push(Role::silent(&["contend", lock, url, &task.to_string(), &described])?);
    }
    for process in &mut processes {
        process.line()?;
    }
    let begin = now() + LEAD;
    for process in &mut processes {
        process.send(&begin.to_string())?;
    }
    let mut spans: Vec<LockSample> = Vec::new();
    for process in &mut processes {
        spans.append(&mut serde_json::from_str(&process.line()?)?);
    }
    let figures = excluding(replay(&workload, begin, spans));
    data.note("handoff", lock, false, figures.map_err(|error| format!("{lock}: {error}"))?);
    Ok(())
}

/// The child: opens the lock, reports that, waits for the start time, and reports all its spans.
pub(crate) fn child(lock: &str, url: &str, task: &str, workload: &str) -> Result<(), BoxError> {
    let (task, workload) = (task.parse()?, serde_json::from_str(workload)?);
    // A thread, as the processes of `gaggle bench`: threads that wake each other would be
    // measured too.
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        match lock {
            TOKEN => contend(Token::open(url).await?, task, &workload).await,
            _ => contend(PostgresSession::open(url).await?, task, &workload).await,
        }
    })
}

async fn contend<C: Contender>(lock: C, task: u32, workload: &Workload) -> Result<(), BoxError> {
    // Opens what opens lazily.
    let hold = lock.lock(&format!("competitors/warm-up/{task}")).await?;
    lock.unlock(hold).await?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let begin = line.trim().parse()?;
    let spans = record(&Arc::new(lock), workload, &[task], begin, "competitors/apart").await?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(&spans)?)?;
    Ok(output.flush()?)
}
