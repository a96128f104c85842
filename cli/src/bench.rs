//! `gaggle bench`: the workloads of [`gaggle_cli::workloads`], on whatever the reader has.

mod args;
mod child;
mod crew;
mod open;
mod plan;
mod report;
mod row;
mod workload_name;

use std::{process::ExitCode, time::Duration};

use gaggle_cli::workloads::{Figures, NoLock};
use indicatif::ProgressBar;

pub(crate) use self::args::Args;
use self::{
    crew::Crew,
    plan::{Case, Plan},
    row::Row,
};
use crate::{
    cluster::{Setup, StrategyName},
    failure::Failure,
    output::say,
};

/// Runs everything asked for, round by round, so that what disturbs the machine disturbs all.
pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    args.check()?;
    let plan = Plan::new(&args);
    let bar = report::bar(&args, plan.expected());
    let mut rows = Vec::new();
    let measured = tokio::select! {
        measured = measure(&args, &plan, &bar, &mut rows) => measured,
        _ = tokio::signal::ctrl_c() => Err(Failure::interrupted()),
    };
    bar.finish_and_clear();
    // What was measured before a failure took its time, and is not lost by it.
    let failure = measured.err();
    if rows.is_empty()
        && let Some(failure) = failure
    {
        return Err(failure);
    }
    rows.iter_mut().for_each(Row::conclude);
    rows.sort_by_key(|row| plan.place(row));
    let ended = failure.as_ref().map(Failure::to_string);
    // What cannot be shown is written all the same, and what cannot be written is shown.
    let shown = show(&args, &rows, ended.as_deref());
    let saved = report::save(&args, &rows, ended.as_deref());
    if let Some(failure) = failure {
        return Err(failure);
    }
    shown.and(saved)?;
    Ok(ExitCode::from(u8::from(rows.iter().any(Row::has_failed))))
}

fn show(args: &Args, rows: &[Row], ended: Option<&str>) -> Result<(), Failure> {
    if args.json.as_deref() == Some("-") {
        return say(report::json(args, rows, ended));
    }
    say(report::table(rows).trim_end())?;
    for series in report::series(rows) {
        say(format!("\n{series}").trim_end())?;
    }
    say(format!("\n{}", report::setting(args, rows)))?;
    if let Some(left_out) = args.left_out() {
        say(left_out)?;
    }
    if ended.is_some() {
        say("\nEnded early: the above was measured before.")?;
    }
    Ok(())
}

/// The hidden subcommand.
pub(crate) async fn run_worker() -> Result<ExitCode, Failure> {
    child::run().await.map(|()| ExitCode::SUCCESS)
}

/// Adds what it measures to `rows`, whether or not it comes to its end.
async fn measure(
    args: &Args,
    plan: &Plan,
    bar: &ProgressBar,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    if let Some(setup) = plan.setups.iter().find(|setup| setup.strategy == StrategyName::Redis) {
        // Who cannot reach their server learns that before a minute was spent on others.
        open::reach(args).await.map_err(|failure| failure.during(&setup.to_string()))?;
    }
    for round in 0..args.rounds() {
        if let Some(workload) = &plan.baseline {
            let run = async {
                let run = gaggle_cli::workloads::run(&[NoLock.into()], workload, "").await;
                run.map_err(|error| Failure::new("baseline").because(&*error))
            };
            let figures = shown(bar, "sequential".into(), workload.expected(), run).await?;
            Row::note(rows, None, "sequential", figures);
        }
        for setup in &plan.setups {
            let opened = Crew::open(*setup, args).await;
            let crew = opened.map_err(|failure| failure.during(&setup.to_string()))?;
            let outcome = run_all(&crew, *setup, plan, round, bar, rows).await;
            crew.close().await;
            outcome?;
        }
    }
    Ok(())
}

async fn run_all(
    crew: &Crew,
    setup: Setup,
    plan: &Plan,
    round: u32,
    bar: &ProgressBar,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    for case in &plan.cases {
        let mut measured = Vec::new();
        for (part, parts) in case.parts(setup, crew.members()) {
            // Another benchmark on the same Redis has keys of its own.
            let prefix = format!("gaggle/bench/{}/{}/{round}/{part}", plan.run, case.name.as_str());
            let message = format!("{setup} {}", case.name.as_str());
            let workload = case.workload(parts);
            let run = crew.run(&workload, part, &prefix);
            let figures = shown(bar, message.clone(), workload.expected(), run).await?;
            if figures.pairs == 0 {
                let why =
                    "no lock was taken and freed within the time; give it a longer --duration";
                return Err(Failure::new(format!("{message}: {why}")));
            }
            measured.push(figures);
        }
        for (label, figures) in named(case, measured) {
            Row::note(rows, Some(setup), label, figures);
        }
    }
    Ok(())
}

/// Where one task ran at each member in turn, two stand for all: the leader needs one round trip
/// less than the others, and only the figures say who leads.
fn named(case: &Case, mut measured: Vec<Figures>) -> Vec<(&'static str, Figures)> {
    measured.sort_by(|a, b| a.lock_us.p50.total_cmp(&b.lock_us.p50));
    let slowest = measured.pop().expect("a case has a part");
    match measured.into_iter().next() {
        None => vec![(case.name.as_str(), slowest)],
        Some(fastest) => {
            vec![("uncontended, fastest member", fastest), ("uncontended, slowest", slowest)]
        }
    }
}

/// Moves the bar on while the run lasts.
async fn shown(
    bar: &ProgressBar,
    message: String,
    expected: Duration,
    run: impl Future<Output = Result<Figures, Failure>>,
) -> Result<Figures, Failure> {
    const TICK: Duration = Duration::from_millis(100);
    bar.set_message(message.clone());
    let (before, expected) = (bar.position(), report::bar_ms(expected));
    let advance = async {
        loop {
            tokio::time::sleep(TICK).await;
            bar.set_position((bar.position() + report::bar_ms(TICK)).min(before + expected));
        }
    };
    let outcome = tokio::select! {
        outcome = run => outcome,
        () = advance => unreachable!("it goes on until the run has ended"),
    };
    bar.set_position(before + expected);
    outcome.map_err(|failure| failure.during(&message))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gaggle_cli::workloads::{Broken, Spread};

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Plan {
        let args = Line::try_parse_from(line.split_whitespace()).expect("the line is one").args;
        Plan::new(&args)
    }

    #[test]
    fn comparing_takes_all_strategies_over_all_channels() {
        let plan = plan("bench --compare --redis redis://127.0.0.1");
        let setups: Vec<_> = plan.setups.iter().map(Setup::to_string).collect();
        let expected =
            "local redis gaggle/memory gaggle/tcp gaggle/redis raft/memory raft/tcp raft/redis";
        assert_eq!(setups, expected.split(' ').collect::<Vec<_>>());
        let cases: Vec<_> = plan.cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!((cases, plan.baseline.is_some()), (vec!["worst", "best"], true));
    }

    #[test]
    fn members_are_shown_by_the_fastest_and_the_slowest() {
        let figures = |p50| Figures {
            tasks: 1,
            pairs: 1,
            seconds: 1.0,
            pairs_per_s: 1.0,
            ms_per_pair: 1.0,
            unlock_mean_us: None,
            lock_us: Spread { mean: None, p50, p99: p50, p999: p50, max: p50 },
            handoff_us: None,
            handed_over: None,
            longest_streak: None,
            jain: 1.0,
            broken: Broken::default(),
        };
        let plan = plan("bench --workload uncontended");
        let shown = named(&plan.cases[0], [3.0, 9.0, 1.0, 5.0].map(figures).into());
        let shown: Vec<_> =
            shown.iter().map(|(label, figures)| (*label, figures.lock_us.p50)).collect();
        assert_eq!(shown, [("uncontended, fastest member", 1.0), ("uncontended, slowest", 9.0)]);
    }
}
