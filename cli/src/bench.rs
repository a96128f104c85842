//! `gaggle bench` and `gaggle increment`: the workloads of [`gaggle_workloads`] on the selected
//! locks.

mod args;
mod counters;
mod cpu;
mod member;
mod plan;
mod progress;
mod report;
mod row;
mod store;
mod worker;
mod workers;
mod workload_name;

use std::{io, process::ExitCode};

use gaggle_workloads::{Figures, NoLock};

pub(crate) use self::{
    args::{Args, IncrementArgs},
    worker::{WORKER, run_worker},
};
use self::{
    counters::Counters,
    member::Member,
    plan::{Case, Plan},
    progress::Progress,
    report::{IncrementReport, Report},
    row::Row,
    workers::Workers,
};
use crate::{
    cluster::{self, Setup, StrategyName},
    failure::Failure,
    output::remark,
    stop,
};

/// Runs `gaggle bench`: all workloads on all setups, round by round, so that a disturbance of the
/// machine affects all of them.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let verbosity = args.setup.verbosity;
    verbosity.start(io::stderr)?;
    args.check()?;
    let plan = Plan::bench(&args);
    let busy_share = cpu::busy_share();
    if !verbosity.is_quiet() {
        remark(&plan);
        if busy_share > cpu::BUSY {
            let percent = busy_share * 100.0;
            remark(format_args!("warning: other programs use {percent:.0} % of the machine"));
        }
    }
    let mut rows = Vec::new();
    let failure = measure(&plan, verbosity.shows_bar(), &mut rows).await.err();
    rows.iter_mut().for_each(Row::conclude);
    rows.sort_by(|a, b| plan.position(a).cmp(&plan.position(b)).then_with(|| a.compare(b)));
    let ended_early = failure.as_ref().map(Failure::to_string);
    let ended_early = ended_early.as_deref();
    let report = Report { args: &args, plan: &plan, rows: &rows, busy_share, ended_early };
    conclude(&rows, failure, || report.output(), || report.save()).await
}

/// Runs `gaggle increment`: the increments on all setups, one after another.
pub(crate) async fn run_increment(args: IncrementArgs) -> Result<ExitCode, Failure> {
    let verbosity = args.setup.verbosity;
    verbosity.start(io::stderr)?;
    args.check()?;
    let plan = Plan::increment(&args);
    let mut rows = Vec::new();
    let shows_bar = !args.json && verbosity.shows_bar();
    let failure = measure(&plan, shows_bar, &mut rows).await.err();
    let report = IncrementReport { args: &args, rows: &rows };
    conclude(&rows, failure, || report.output(), || Ok(())).await
}

/// Prints and saves the results. A failure keeps the results before it.
async fn conclude(
    rows: &[Row],
    failure: Option<Failure>,
    output: impl FnOnce() -> String,
    save: impl FnOnce() -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    if rows.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    // Neither output depends on the other one.
    let shown = stop::say_unless_stopped(output()).await;
    let saved = save();
    failure.map_or(Ok(()), Err)?;
    shown.and(saved)?;
    Ok(ExitCode::from(u8::from(rows.iter().any(Row::has_failed))))
}

/// Adds each result to `rows` as soon as it is there.
async fn measure(plan: &Plan<'_>, shows_bar: bool, rows: &mut Vec<Row>) -> Result<(), Failure> {
    let counters = match plan.counts {
        true => Some(Counters::open(plan.args).await?),
        false => None,
    };
    let progress = Progress::new(plan, shows_bar);
    let measured = tokio::select! {
        // First, so that the handlers are installed before a worker process starts.
        biased;
        stopped = stop::signal() => Err(stopped),
        measured = run_rounds(plan, counters.as_ref(), &progress, rows) => measured,
    };
    drop(progress);
    // Also after a failure: the counters are real keys in the user's Redis.
    let deleted = match &counters {
        Some(counters) => counters.delete(&plan.counters()).await,
        None => Ok(()),
    };
    measured.and(deleted)
}

async fn run_rounds(
    plan: &Plan<'_>,
    counters: Option<&Counters>,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let has_server = |it: &&Setup| matches!(it.strategy, StrategyName::Redis | StrategyName::Http);
    for setup in plan.setups.iter().filter(has_server) {
        // An unreachable server is reported at once, not after the other setups.
        check_server(plan, *setup).await.map_err(|failure| failure.during(&setup.to_string()))?;
    }
    for round in 0..plan.rounds {
        if let Some(workload) = &plan.baseline {
            let run = async {
                let run = gaggle_workloads::run(&[NoLock.into()], workload, "").await;
                run.map_err(|error| Failure::of(&*error))
            };
            let figures = progress.during("sequential", workload.expected(), run).await?;
            Row::add_round(rows, None, "sequential", figures, None);
        }
        for setup in &plan.setups {
            let opening = Workers::open(*setup, plan, counters);
            let mut workers =
                progress.during(&setup.to_string(), plan::opening(*setup), opening).await?;
            let outcome =
                run_cases(&mut workers, *setup, plan, round, counters, progress, rows).await;
            workers.close().await;
            outcome?;
        }
        progress.end_of_round(round + 1);
    }
    Ok(())
}

/// Checks that the server of `--redis` or `--http` can be locked in.
async fn check_server(plan: &Plan<'_>, setup: Setup) -> Result<(), Failure> {
    let cluster = cluster::members(setup, 1, plan.args.servers(), "")?;
    Member::open(&cluster.urls[0], plan.longest_section(), None).await?.close().await;
    Ok(())
}

async fn run_cases(
    workers: &mut Workers,
    setup: Setup,
    plan: &Plan<'_>,
    round: u32,
    counters: Option<&Counters>,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    for case in &plan.cases {
        let (mut measured, mut counted) = (Vec::new(), None);
        for (part, parts) in case.parts(setup, workers.count()) {
            let prefix = plan.prefix(setup, case, round, part);
            let name = format!("{setup} {}", case.name.as_str());
            let workload = case.workload(parts);
            let run = workers.run(&workload, part, &prefix);
            let mut figures = progress.during(&name, workload.expected(), run).await?;
            if figures.pairs == 0 {
                let problem = "no lock was unlocked within the time: use a longer --duration";
                return Err(Failure::new(format!("{name}: {problem}")));
            }
            if setup.strategy == StrategyName::Noop {
                // An apparent hand-off without a lock is chance.
                figures.handoff_us = None;
            }
            measured.push(figures);
            if let Some(counters) = counters {
                counted = Some(counters.sum(&case.keys(&prefix)).await?);
            }
        }
        for (label, figures) in labelled(case, measured) {
            Row::add_round(rows, Some(setup), label, figures, counted);
        }
    }
    Ok(())
}

/// The fastest and the slowest of runs that began at each member in turn. The leader saves a round
/// trip, and only the figures show which member it is.
fn labelled(case: &Case, mut measured: Vec<Figures>) -> Vec<(&'static str, Figures)> {
    measured.sort_by(|a, b| a.lock_us.p50.total_cmp(&b.lock_us.p50));
    let slowest = measured.pop().expect("a case has a part");
    match measured.into_iter().next() {
        None => vec![(case.name.as_str(), slowest)],
        Some(fastest) => vec![("uncontended, fastest", fastest), ("uncontended, slowest", slowest)],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser as _;
    use gaggle_workloads::{Broken, Spread};

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args
    }

    #[test]
    fn comparison_takes_under_a_minute() {
        let args = args("bench --compare --redis redis://127.0.0.1");
        let plan = Plan::bench(&args);
        let setups: Vec<_> = plan.setups.iter().map(Setup::to_string).collect();
        let expected =
            "local redis gaggle/memory gaggle/tcp gaggle/redis raft/memory raft/tcp raft/redis";
        assert_eq!(setups, expected.split(' ').collect::<Vec<_>>());
        let cases: Vec<_> = plan.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!((cases, plan.baseline.is_some()), (vec!["handoff", "uncontended"], false));
        assert!(plan.expected() < Duration::from_secs(55), "{:?}", plan.expected());
        let text = plan.to_string();
        assert!(text.contains("3 rounds of handoff, uncontended"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn fastest_and_slowest_member_are_shown() {
        let figures = |p50| Figures {
            tasks: 1,
            pairs: 1,
            seconds: 1.0,
            pairs_per_s: 1.0,
            ms_per_pair: 1.0,
            unlock_mean_us: None,
            lock_us: Spread { mean: p50, p50, p99: p50, p999: p50, max: p50 },
            handoff_us: None,
            handoff_share: None,
            longest_streak: None,
            jain: 1.0,
            broken: Broken::default(),
        };
        let args = args("bench --workload uncontended");
        let plan = Plan::bench(&args);
        let shown = labelled(&plan.cases[0], [3.0, 9.0, 1.0, 5.0].map(figures).into());
        let shown: Vec<_> =
            shown.iter().map(|(label, figures)| (*label, figures.lock_us.p50)).collect();
        assert_eq!(shown, [("uncontended, fastest", 1.0), ("uncontended, slowest", 9.0)]);
    }
}
