//! `gaggle increment`: the seed's atomic increment, timed, and the same with no lock beside it.

mod args;
mod crew;
mod plan;
mod process;
mod report;
mod server;
mod stats;
mod store;
mod worker;

use std::process::ExitCode;

use indicatif::ProgressBar;

pub(crate) use self::args::Args;
use self::{
    crew::Crew,
    plan::Plan,
    report::Row,
    server::Server,
    stats::Figures,
    store::{Address, Memory, Store},
};
use crate::{cluster::StrategyName, failure::Failure, output::say};

/// Runs every strategy asked for, and `Noop` beside them.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    args.check()?;
    let mut strategies = args.strategies();
    if !strategies.contains(&StrategyName::Noop) {
        strategies.push(StrategyName::Noop);
    }
    let mut rows = Vec::new();
    for strategy in strategies {
        let row = run_one(&args, strategy).await?;
        if args.json {
            say(report::json(&args, &row))?;
        }
        rows.push(row);
    }
    if !args.json {
        say(report::table(&args, &rows).trim_end())?;
    }
    Ok(ExitCode::from(u8::from(rows.iter().any(Row::has_failed))))
}

/// The hidden subcommand.
pub(crate) async fn run_worker() -> Result<ExitCode, Failure> {
    process::run_child().await.map(|()| ExitCode::SUCCESS)
}

async fn run_one(args: &Args, strategy: StrategyName) -> Result<Row, Failure> {
    let memory = Memory::default();
    // Lives as long as the run.
    let server = match (&args.redis, args.processes) {
        (None, true) => Some(Server::start(memory.clone()).await?),
        _ => None,
    };
    let address = match (&args.redis, &server) {
        (Some(redis), _) => Address::Redis(redis.server().to_owned()),
        (None, Some(server)) => Address::Redis(server.url()),
        (None, None) => Address::Memory,
    };
    let mut store = Store::open(&address, &memory).await?;
    let plan = Plan::new(args, strategy, address)?;
    let bar = report::bar(args, strategy);
    let outcome = tokio::select! {
        outcome = count(&plan, &memory, &mut store, &bar) => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
    };
    bar.finish_and_clear();
    // Also after a failure: the counters are real keys in somebody's Redis.
    let tidied = tidy(&plan, &mut store).await;
    let mut figures = outcome?;
    tidied?;
    if strategy == StrategyName::Noop {
        figures = figures.without_handoffs();
    }
    Ok(Row { strategy, channel: plan.channel, figures })
}

async fn tidy(plan: &Plan, store: &mut Store) -> Result<(), Failure> {
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
    let spans = crew.work(|_| bar.inc(1)).await?;
    let mut got = 0;
    for counter in &plan.counters {
        got += store.get(counter).await?;
    }
    Ok(stats::figures(plan, &spans, got))
}
