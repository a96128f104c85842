//! `gaggle increment`: a counter that several members increment, with a lock and without one.

mod args;
mod crew;
mod figures;
mod plan;
mod process;
mod report;
mod store;
mod work;

use std::{io, process::ExitCode};

use indicatif::ProgressBar;

pub(crate) use self::{args::Args, process::run_worker};
use self::{
    crew::Crew,
    figures::Figures,
    plan::Plan,
    report::Row,
    store::{Address, Folder, Memory, Store},
};
use crate::{cluster::StrategyName, failure::Failure, stop};

/// The command of a worker process.
pub(crate) const WORKER: &str = "increment-worker";

/// Runs the selected strategies, and then `Noop`.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    args.verbosity.start(io::stderr)?;
    args.check()?;
    let mut rows = Vec::new();
    let outcome = run_all(&args, &mut rows).await;
    // A run that fails or is stopped keeps the results before it.
    let shown = match args.json || rows.is_empty() {
        true => Ok(()),
        false => stop::say_unless_stopped(report::text(&args, &rows)).await,
    };
    outcome.and(shown)?;
    Ok(ExitCode::from(u8::from(rows.iter().any(Row::has_failed))))
}

/// Adds each result to `rows` as soon as it is there.
async fn run_all(args: &Args, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let mut strategies = args.strategies();
    if !strategies.contains(&StrategyName::Noop) {
        strategies.push(StrategyName::Noop);
    }
    for strategy in strategies {
        let row = run_one(args, strategy).await?;
        if args.json {
            stop::say_unless_stopped(report::json(args, &row)).await?;
        }
        rows.push(row);
    }
    Ok(())
}

async fn run_one(args: &Args, strategy: StrategyName) -> Result<Row, Failure> {
    let memory = Memory::default();
    let has_folder = args.processes && args.redis.is_none();
    // Until the end of the run.
    let folder = has_folder.then(Folder::new).transpose()?;
    let address = match (&args.redis, &folder) {
        (Some(redis), _) => Address::Redis(redis.server().to_owned()),
        (None, Some(folder)) => Address::Folder(folder.path().to_owned()),
        (None, None) => Address::Memory,
    };
    let mut store = Store::open(&address, &memory).await?;
    let plan = Plan::new(args, strategy, address)?;
    let bar = report::bar(args, strategy);
    let outcome = tokio::select! {
        outcome = count(&plan, &memory, &mut store, &bar) => outcome,
        stopped = stop::signal() => Err(stopped),
    };
    bar.finish_and_clear();
    // Also after a failure: the counters are real keys in the user's Redis.
    let deleted = delete_counters(&plan, &mut store).await;
    let mut figures = outcome?;
    deleted?;
    if strategy == StrategyName::Noop {
        figures = figures.without_handoffs();
    }
    Ok(Row { setup: plan.setup, figures })
}

async fn delete_counters(plan: &Plan, store: &mut Store) -> Result<(), Failure> {
    for counter in &plan.counters {
        store.delete(counter).await?;
    }
    Ok(())
}

async fn count(
    plan: &Plan,
    memory: &Memory,
    store: &mut Store,
    bar: &ProgressBar,
) -> Result<Figures, Failure> {
    let crew = Crew::start(plan, memory).await?;
    let spans = crew.work(|| bar.inc(1)).await?;
    let mut counted = 0;
    for counter in &plan.counters {
        counted += store.get(counter).await?;
    }
    Ok(Figures::new(&plan.workload, spans, counted))
}
