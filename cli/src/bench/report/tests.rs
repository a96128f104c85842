//! What a report shows, how wide it is, and which exit code it gives.

use std::process::ExitCode;

use clap::Parser as _;
use gaggle_workloads::{Broken, Figures};

use super::{super::conclude, *};
use crate::cluster::{Setup, StrategyName};

fn spread(scale: f64) -> Spread {
    let [mean, p50, p99, p999, max] = [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| scale * x);
    Spread { mean, p50, p99, p999, max }
}

/// A row whose figures all differ.
pub(super) fn row(workload: &'static str, pairs: u64) -> Row {
    let figures = Figures {
        tasks: 8,
        pairs,
        seconds: 2.0,
        pairs_per_s: 1500.0,
        ms_per_pair: 0.67,
        unlock_mean_us: Some(6.0),
        lock_us: spread(10.0),
        handoff_us: Some(spread(100.0)),
        handoff_share: Some(0.5),
        longest_streak: Some(9),
        jain: 0.875,
        broken: Broken { overlaps: 1, lost_updates: 20, stale_tokens: 300 },
    };
    let setup = Some(Setup { strategy: StrategyName::Redis, channel: None });
    let rounds = vec![figures.clone()];
    Row { setup, workload, figures, rounds, counted: None }
}

fn cells(columns: &[Column<Row>], row: &Row) -> Vec<(&'static str, String)> {
    columns.iter().map(|(header, cell)| (*header, cell(row))).collect()
}

fn cell(columns: &[Column<Row>], name: &str, row: &Row) -> String {
    let (_, cell) = columns.iter().find(|(header, _)| *header == name).expect("a column");
    cell(row)
}

#[test]
fn every_figure_is_in_its_column() {
    let mut row = row("handoff", 4000);
    let faster = Figures { pairs_per_s: 1800.0, ..row.figures.clone() };
    row.rounds.push(faster);
    let expected = [
        ("lock", "redis"),
        ("locks/s", "1500"),
        ("ms each", "–"),
        // (1 / 1500 − 1 / 1800) / 2 of 1 / 1500
        ("spread", "±8 %"),
        ("max wait µs", "50"),
        ("hand-off µs", "200"),
        ("to others", "50.0 %"),
        ("broken", "321"),
    ];
    assert_eq!(cells(&CONTENDED, &row), expected.map(|(name, cell)| (name, cell.to_owned())));
    let expected = [
        ("lock µs:", "redis"),
        ("locks", "4000"),
        ("p50", "20"),
        ("p99", "30"),
        ("p99.9", "40"),
        ("max", "50"),
        ("unlock", "6.00"),
    ];
    assert_eq!(cells(&LATENCIES, &row), expected.map(|(name, cell)| (name, cell.to_owned())));
    let expected = [
        ("hand-off µs:", "redis"),
        ("p50", "200"),
        ("p99", "300"),
        ("max", "500"),
        ("streak", "9"),
        ("Jain", "0.875"),
    ];
    assert_eq!(cells(&HANDOFFS, &row), expected.map(|(name, cell)| (name, cell.to_owned())));
}

#[test]
fn too_few_locks_show_no_percentiles() {
    for (pairs, p99, p999) in [(199, "–", "–"), (200, "30", "–"), (2000, "30", "40")] {
        let row = row("handoff", pairs);
        let shown = (cell(&LATENCIES, "p99", &row), cell(&LATENCIES, "p99.9", &row));
        assert_eq!(shown, (p99.into(), p999.into()), "{pairs}");
    }
    // Half of the grants went to another task.
    assert_eq!(cell(&HANDOFFS, "p99", &row("handoff", 399)), "–");
    assert_eq!(cell(&HANDOFFS, "p99", &row("handoff", 400)), "300");
}

#[test]
fn missing_figure_is_a_dash() {
    let mut alone = row("uncontended, slowest", 4000);
    alone.figures.handoff_us = None;
    alone.figures.handoff_share = None;
    alone.figures.longest_streak = None;
    alone.figures.broken = Broken::default();
    assert_eq!(cell(&CONTENDED, "hand-off µs", &alone), "–");
    assert_eq!(cell(&CONTENDED, "to others", &alone), "–");
    assert_eq!(cell(&CONTENDED, "spread", &alone), "–", "of one round");
    assert_eq!(cell(&HANDOFFS, "streak", &alone), "–");
    assert_eq!(cell(&UNCONTENDED, "lock", &alone), "redis, slowest");
    assert_eq!(cell(&UNCONTENDED, "broken", &alone), "no");
    let fixed = row("gaggle1-contended", 40);
    assert_eq!(cell(&HANDOFFS, "Jain", &fixed), "–", "each task makes the same number");
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args
}

/// The widest rows: the longest names, seven-digit rates, waits of a minute.
fn widest() -> Vec<Row> {
    let workloads = ["handoff", "uncontended, slowest", "busy", "gaggle1-contended", "sequential"];
    let widest = |workload| {
        let mut row = row(workload, 9_999_999);
        let setup = Setup {
            strategy: StrategyName::Gaggle,
            channel: Some(crate::cluster::ChannelName::Memory),
        };
        row.setup = (workload != "sequential").then_some(setup);
        row.figures.pairs_per_s = 9_999_999.0;
        row.figures.ms_per_pair = 1_000.0;
        row.figures.lock_us = spread(12_000_000.0);
        row.figures.handoff_us = Some(spread(12_000_000.0));
        row.figures.handoff_share = Some(1.0);
        if workload.starts_with("uncontended") {
            row.figures.handoff_us = None;
            row.figures.handoff_share = None;
        }
        row.rounds = vec![row.figures.clone(), row.figures.clone()];
        row.rounds[1].pairs_per_s = 1_000_000.0;
        row.rounds[1].ms_per_pair = 3_000.0;
        row
    };
    workloads.map(widest).into()
}

#[test]
fn widest_report_fits_80_columns() {
    let line = "bench --details --members 31 --tasks 4096 --workload handoff --workload busy \
                --workload uncontended --workload gaggle1-contended";
    let (args, rows) = (args(line), widest());
    let plan = &Plan::bench(&args);
    let report = Report { args: &args, plan, rows: &rows, busy_share: 0.99, ended_early: None };
    let text = report.text();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{text}");
    }
    for part in ["handoff (4096 tasks)", "gaggle/memory, slowest", "no lock, 1 task", "±450 %"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn legend_explains_the_columns_of_the_tables() {
    let text = |workload: &'static str| {
        let args = args(&format!("bench --workload {workload}"));
        let (plan, rows) = (&Plan::bench(&args), &[row(workload, 4000)]);
        Report { args: &args, plan, rows, busy_share: 0.0, ended_early: None }.text()
    };
    let (rate, time) = ("\nlocks/s    lock", "\nms each    the time");
    let (by_rate, by_time) = (text("handoff"), text("gaggle1-contended"));
    assert!(by_rate.contains(rate) && !by_rate.contains(time), "{by_rate}");
    assert!(by_time.contains(time) && !by_time.contains(rate), "{by_time}");
    assert!(!by_rate.contains("\nJain"), "a column of --details: {by_rate}");
}

#[test]
fn one_member_and_a_busy_machine_are_stated() {
    let args = args("bench --members 1");
    let plan = &Plan::bench(&args);
    let report = Report { args: &args, plan, rows: &[], busy_share: 0.34, ended_early: None };
    let [machine, members] = report.setting();
    assert!(machine.ends_with(", 34 % used by other programs"), "{machine}");
    assert_eq!(members, "1 member in one process, one round");
}

#[test]
fn only_a_broken_promise_is_a_failure() {
    let broken = row("busy", 40);
    assert!(broken.has_failed());
    let noop = Some(Setup { strategy: StrategyName::Noop, channel: None });
    for setup in [noop, None] {
        assert!(!Row { setup, ..row("busy", 40) }.has_failed(), "{setup:?}");
    }
    let mut sound = row("busy", 40);
    sound.figures.broken = Broken::default();
    assert!(!sound.has_failed());
}

#[tokio::test]
async fn one_broken_lock_makes_the_exit_code_1() {
    let (broken, mut sound) = (row("busy", 40), row("fan", 40));
    sound.figures.broken = Broken::default();
    for (rows, code) in [([sound.clone(), broken], 1), ([sound.clone(), sound], 0)] {
        let ended = conclude(&rows, None, String::new, || Ok(())).await.expect("a result");
        assert_eq!(format!("{ended:?}"), format!("{:?}", ExitCode::from(code)));
    }
}

#[test]
fn row_shows_the_median_of_its_rounds() {
    let setup = row("fan", 1).setup;
    let mut rows = Vec::new();
    for pairs in [30, 10, 20] {
        Row::add_round(&mut rows, setup, "fan", row("fan", pairs).figures, None);
        Row::add_round(&mut rows, setup, "busy", row("busy", 5).figures, None);
    }
    rows.iter_mut().for_each(Row::conclude);
    let found: Vec<_> = rows.iter().map(|row| (row.workload, row.figures.pairs)).collect();
    assert_eq!(found, [("fan", 20), ("busy", 5)]);
    let json = rows[0].json();
    assert_eq!(json["rounds"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["median"]["pairs"], 20);
}

#[test]
fn best_row_is_the_lesser_one() {
    let mut better = row("handoff", 1);
    better.figures.pairs_per_s = 2000.0;
    assert!(better.compare(&row("handoff", 1)).is_lt());
    // A higher rate that one task has for itself is worse.
    better.figures.handoff_share = Some(0.1);
    assert!(better.compare(&row("handoff", 1)).is_gt());
}
