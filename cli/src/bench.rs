//! `gaggle bench`: runs the workloads of [`gaggle_workloads`] on the selected locks.

mod args;
mod chart;
mod child;
mod crew;
mod machine;
mod open;
mod plan;
mod progress;
mod report;
mod row;
mod workload_name;

use std::{io, process::ExitCode};

use gaggle_workloads::{Figures, NoLock};

pub(crate) use self::{args::Args, child::run_worker};
use self::{
    crew::Crew,
    plan::{Case, Plan},
    progress::Progress,
    report::Report,
    row::Row,
};
use crate::{
    cluster::{Setup, StrategyName},
    failure::Failure,
    output::remark,
    stop,
};

/// The command of a worker process.
pub(crate) const WORKER: &str = "bench-worker";

/// Runs all workloads on all setups, round by round: a disturbance of the machine meets all of
/// them.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    args.verbosity.start(io::stderr)?;
    args.check()?;
    let plan = Plan::new(&args);
    let busy_share = machine::busy_share();
    if !args.verbosity.is_quiet() {
        remark(&plan);
        if busy_share > machine::BUSY {
            let percent = busy_share * 100.0;
            remark(format_args!("warning: other programs use {percent:.0} % of the machine"));
        }
    }
    let progress = Progress::new(&args, plan.expected());
    let mut rows = Vec::new();
    let measured = tokio::select! {
        measured = measure(&args, &plan, &progress, &mut rows) => measured,
        stopped = stop::signal() => Err(stopped),
    };
    drop(progress);
    // A failure keeps the results before it.
    let failure = measured.err();
    if rows.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    rows.iter_mut().for_each(Row::conclude);
    rows.sort_by(|a, b| plan.position(a).cmp(&plan.position(b)).then_with(|| a.compare(b)));
    let ended_early = failure.as_ref().map(Failure::to_string);
    let ended_early = ended_early.as_deref();
    let report = Report { args: &args, plan: &plan, rows: &rows, busy_share, ended_early };
    // Neither output depends on the other one.
    let is_json = args.json.as_deref() == Some("-");
    let text = if is_json { report.json() } else { report.text() };
    let shown = stop::say_unless_stopped(text).await;
    let saved = report.save();
    if let Some(failure) = failure {
        return Err(failure);
    }
    shown.and(saved)?;
    Ok(ExitCode::from(u8::from(rows.iter().any(Row::has_failed))))
}

/// Adds each result to `rows` as soon as it is there.
async fn measure(
    args: &Args,
    plan: &Plan,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    if let Some(setup) = plan.setups.iter().find(|setup| setup.strategy == StrategyName::Redis) {
        // An unreachable server is reported at once, not after the other setups.
        open::check_redis(args).await.map_err(|failure| failure.during(&setup.to_string()))?;
    }
    for round in 0..args.rounds() {
        if let Some(workload) = &plan.baseline {
            let run = async {
                let run = gaggle_workloads::run(&[NoLock.into()], workload, "").await;
                run.map_err(|error| Failure::of(&*error))
            };
            let figures = progress.during("sequential", workload.expected(), run).await?;
            Row::add_round(rows, None, "sequential", figures);
        }
        for setup in &plan.setups {
            let opening = Crew::open(*setup, args);
            let mut crew =
                progress.during(&setup.to_string(), plan::opening(*setup), opening).await?;
            let outcome = run_all(&mut crew, *setup, plan, round, progress, rows).await;
            crew.close().await;
            outcome?;
        }
        progress.end_of_round(round + 1);
    }
    Ok(())
}

async fn run_all(
    crew: &mut Crew,
    setup: Setup,
    plan: &Plan,
    round: u32,
    progress: &Progress,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    for case in &plan.cases {
        let mut measured = Vec::new();
        for (part, parts) in case.parts(setup, crew.members()) {
            // Unique to the benchmark, which shares no key with another one.
            let prefix = format!("gaggle/bench/{}/{}/{round}/{part}", plan.run, case.name.as_str());
            let name = format!("{setup} {}", case.name.as_str());
            let workload = case.workload(parts);
            let run = crew.run(&workload, part, &prefix);
            let figures = progress.during(&name, workload.expected(), run).await?;
            if figures.pairs == 0 {
                let problem = "no lock was unlocked within the time: use a longer --duration";
                return Err(Failure::new(format!("{name}: {problem}")));
            }
            measured.push(figures);
        }
        for (label, figures) in labelled(case, measured) {
            Row::add_round(rows, Some(setup), label, figures);
        }
    }
    Ok(())
}

/// Of runs that began at each member in turn, the fastest and the slowest. The leader saves a round
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

    fn plan(line: &str) -> Plan {
        let args = Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args;
        Plan::new(&args)
    }

    #[test]
    fn comparison_takes_under_a_minute() {
        let plan = plan("bench --compare --redis redis://127.0.0.1");
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
        let plan = plan("bench --workload uncontended");
        let shown = labelled(&plan.cases[0], [3.0, 9.0, 1.0, 5.0].map(figures).into());
        let shown: Vec<_> =
            shown.iter().map(|(label, figures)| (*label, figures.lock_us.p50)).collect();
        assert_eq!(shown, [("uncontended, fastest", 1.0), ("uncontended, slowest", 9.0)]);
    }
}
