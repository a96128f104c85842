//! The report of `gaggle bench`: tables, bars, JSON and SVG.

use std::path::Path;

use gaggle::strategies::{BootClock, Clock as _};
use gaggle_cli::workloads::{Bar, BarChart, Figures, Series, Spread};
use serde_json::json;

use super::{
    args::Args,
    machine,
    plan::{Case, Plan},
    row::Row,
};
use crate::{
    failure::Failure,
    output::{self, Column, NONE, count},
};

/// The results of a benchmark, and the conditions of their measurement.
pub(super) struct Report<'a> {
    pub(super) args: &'a Args,
    pub(super) plan: &'a Plan,
    /// By workload, the best first.
    pub(super) rows: &'a [Row],
    /// The share of the machine that other programs used.
    pub(super) busy_share: f64,
    /// The failure that ended the benchmark early.
    pub(super) ended_early: Option<&'a str>,
}

impl Report<'_> {
    /// One JSON object.
    pub(super) fn json(&self) -> String {
        let args = self.args;
        let document = json!({
            "gaggle": env!("CARGO_PKG_VERSION"),
            "seconds_since_1970": BootClock.wall_nanos() / 1_000_000_000,
            "duration_s": args.duration.map(|duration| duration.as_secs_f64()),
            "cores": machine::cores(),
            "busy_share": self.busy_share,
            "members": args.members,
            "processes": args.processes,
            "rounds": args.rounds(),
            "ended_early": self.ended_early,
            "runs": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        format!("{document:#}")
    }

    /// The tables, and with `--details` the bars.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for case in &self.plan.cases {
            let rows = self.rows.iter().filter(|row| Plan::has(case, row)).cloned();
            let rows = rows.collect::<Vec<_>>();
            if rows.iter().any(|row| row.setup.is_some()) {
                text += &self.section(case, &rows);
            }
        }
        text += LEGEND;
        if self.args.details {
            text += DETAILS_LEGEND;
            series(self.rows).iter().for_each(|series| text += &format!("\n{series}"));
        }
        text += &format!("\n{}", self.setting().join("\n"));
        if let Some(omitted) = self.args.omitted() {
            text += &format!("\n{omitted}");
        }
        if self.ended_early.is_some() {
            text += "\n\nEnded early: these are the results until then.";
        }
        text
    }

    fn section(&self, case: &Case, rows: &[Row]) -> String {
        let (name, tasks) = (case.name.as_str(), count(case.tasks(), "task"));
        let mut section = format!("{name} ({tasks}): {}\n", case.name.summary());
        let is_contended = rows.iter().any(|row| row.figures.handoff_share.is_some());
        let columns: &[_] = if is_contended { &CONTENDED } else { &UNCONTENDED };
        section += &format!("{}\n\n", output::table(columns, rows));
        if self.args.details {
            section += &format!("{}\n\n", output::table(&LATENCIES, rows));
            if is_contended {
                section += &format!("{}\n\n", output::table(&HANDOFFS, rows));
            }
        }
        section
    }

    /// The conditions of the measurement, in two short lines.
    fn setting(&self) -> [String; 2] {
        let args = self.args;
        let who = match args.processes {
            true => count(args.members, "process"),
            false => count(args.members, "member") + " in one process",
        };
        // A benchmark that ended early has fewer rounds of some rows, or of all.
        let measured = || self.rows.iter().map(|row| row.rounds.len());
        let rounds = match (measured().min().unwrap_or(0), measured().max().unwrap_or(0)) {
            (_, 0 | 1) => "one round".into(),
            (min, max) if min == max => format!("median of {max} rounds"),
            (min, max) => format!("median of {min} to {max} rounds"),
        };
        let cores = count(machine::cores() as u64, "core");
        let busy = match self.busy_share > machine::BUSY {
            true => format!(", {:.0} % used by other programs", self.busy_share * 100.0),
            false => String::new(),
        };
        [format!("gaggle {}, {cores}{busy}", gaggle_cli::VERSION), format!("{who}, {rounds}")]
    }

    /// Writes the files of `--json` and `--chart`.
    pub(super) fn save(&self) -> Result<(), Failure> {
        if let Some(path) = self.args.json.as_deref().filter(|path| *path != "-") {
            write(path.as_ref(), self.json() + "\n")?;
        }
        if let Some(path) = &self.args.chart {
            let (title, subtitle) = ("gaggle bench".into(), self.setting().join(", "));
            write(path, BarChart { title, subtitle, series: series(self.rows) }.svg())?;
        }
        Ok(())
    }
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    let failed = |error| Failure::new(format!("cannot write {}", path.display())).because(&error);
    std::fs::write(path, text).map_err(failed)
}

const CONTENDED: [Column<Row>; 8] = [
    ("lock", name),
    ("locks/s", rate),
    ("ms each", ms_each),
    ("spread", spread),
    ("max wait µs", |row| micros(row.figures.lock_us.max)),
    ("hand-off µs", |row| handoff(row, |spread| spread.p50)),
    ("to others", to_others),
    ("broken", broken),
];

const UNCONTENDED: [Column<Row>; 7] = [
    ("lock", name),
    ("locks/s", rate),
    ("ms each", ms_each),
    ("spread", spread),
    ("lock p50 µs", |row| micros(row.figures.lock_us.p50)),
    ("max wait µs", |row| micros(row.figures.lock_us.max)),
    ("broken", broken),
];

const LATENCIES: [Column<Row>; 7] = [
    ("lock µs:", name),
    ("locks", |row| row.figures.pairs.to_string()),
    ("p50", |row| micros(row.figures.lock_us.p50)),
    ("p99", |row| tail(row.figures.pairs, 100, row.figures.lock_us.p99)),
    ("p99.9", |row| tail(row.figures.pairs, 1000, row.figures.lock_us.p999)),
    ("max", |row| micros(row.figures.lock_us.max)),
    ("unlock", |row| row.figures.unlock_mean_us.map_or_else(|| NONE.into(), micros)),
];

const HANDOFFS: [Column<Row>; 6] = [
    ("hand-off µs:", name),
    ("p50", |row| handoff(row, |spread| spread.p50)),
    ("p99", |row| match row.figures.handoff_us {
        Some(spread) => {
            let share = row.figures.handoff_share.unwrap_or(0.0);
            tail((row.figures.pairs as f64 * share) as u64, 100, spread.p99)
        }
        None => NONE.into(),
    }),
    ("max", |row| handoff(row, |spread| spread.max)),
    ("streak", |row| row.figures.longest_streak.map_or_else(|| NONE.into(), |n| n.to_string())),
    // Where each task makes the same number of pairs, the index is 1 although some starve.
    ("Jain", |row| match row.by_time() {
        true => NONE.into(),
        false => format!("{:.3}", row.figures.jain),
    }),
];

/// Explains the words of [`CONTENDED`] and [`UNCONTENDED`].
const LEGEND: &str = "\
locks/s    pairs of a lock and its unlock in a second
ms each    the time of one increment
spread     half the distance between the best and the worst round
max wait   the longest time that `lock` took
hand-off   from `unlock` called until `lock` returned to a waiter (median)
to others  the share of grants that went to another task than the last holder
broken     how often two tasks held a key, an update was lost, or a token fell
";

/// Explains the other words of `--details`.
const DETAILS_LEGEND: &str = "\
unlock     the mean time that `unlock` took
streak     the most grants in a row to one task
Jain       fairness: 1 if all tasks lock as often, 1 ÷ tasks if one locks alone
–          not measured, or from too few locks
";

fn name(row: &Row) -> String {
    match row.workload.split_once(", ") {
        Some((_, member)) => format!("{}, {member}", row.name()),
        None => row.name(),
    }
}

fn rate(row: &Row) -> String {
    if row.by_time() { NONE.into() } else { format!("{:.0}", row.figures.pairs_per_s) }
}

fn ms_each(row: &Row) -> String {
    if row.by_time() { format!("{:.2}", row.figures.ms_per_pair) } else { NONE.into() }
}

fn spread(row: &Row) -> String {
    let percent = |spread| format!("±{:.0} %", spread * 100.0);
    row.spread().map_or_else(|| NONE.into(), percent)
}

fn handoff(row: &Row, field: fn(Spread) -> f64) -> String {
    row.figures.handoff_us.map_or_else(|| NONE.into(), |spread| micros(field(spread)))
}

fn to_others(row: &Row) -> String {
    let percent = |share| format!("{:.1} %", share * 100.0);
    row.figures.handoff_share.map_or_else(|| NONE.into(), percent)
}

fn broken(row: &Row) -> String {
    let broken = row.figures.broken;
    match broken.overlaps + broken.lost_updates + broken.stale_tokens {
        0 => "no".into(),
        faults => faults.to_string(),
    }
}

/// A percentile that one of `of` exceeds. Below twice as many pairs it is hardly less than the
/// maximum.
fn tail(pairs: u64, of: u64, us: f64) -> String {
    if pairs < 2 * of { NONE.into() } else { micros(us) }
}

fn micros(us: f64) -> String {
    if us < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}

/// The bars of each workload, in the order of the rows.
fn series(rows: &[Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let baseline = rows.iter().find(|row| row.setup.is_none());
    for row in rows.iter().filter(|row| row.setup.is_some()) {
        let bar = bar(row, baseline);
        match all.iter_mut().find(|series| series.title == row.workload) {
            Some(series) => series.bars.push(bar),
            None => all.push(Series {
                title: row.workload.into(),
                note: note(row, baseline),
                bars: vec![bar],
                limit: None,
            }),
        }
    }
    all
}

/// Of the contended case only what the lock adds: the work, which all have, would hide it.
fn added_ms(row: &Row, baseline: Option<&Row>) -> Option<f64> {
    let baseline = baseline.filter(|_| row.workload == "gaggle1-contended")?;
    Some(row.figures.ms_per_pair - baseline.figures.ms_per_pair)
}

fn note(row: &Row, baseline: Option<&Row>) -> String {
    let sequential = baseline.filter(|_| row.by_time()).map(|row| row.figures.ms_per_pair);
    match sequential {
        Some(ms) if row.workload == "gaggle1-contended" => {
            format!("added to the {ms:.2} ms of one task without a lock")
        }
        Some(ms) => format!("one task without a lock takes {ms:.2} ms; less is better"),
        None if row.by_time() => "less is better".into(),
        None if row.figures.handoff_share.is_some() => {
            "grants a second to another task; more is better".into()
        }
        None => "more is better".into(),
    }
}

/// Of a rate the part that went to other tasks: a task that starves the others is no merit.
fn bar(row: &Row, baseline: Option<&Row>) -> Bar {
    let Figures { ms_per_pair: ms, pairs_per_s: rate, handoff_share, .. } = row.figures;
    let to_others = rate * handoff_share.unwrap_or(1.0);
    let (value, text) = match added_ms(row, baseline) {
        Some(added) => (added.max(0.0), format!("{added:+.2} ms")),
        None if row.by_time() => (ms, format!("{ms:.2} ms each")),
        None if to_others < 0.95 * rate => (to_others, format!("{to_others:.0} of {rate:.0}/s")),
        None => (to_others, format!("{rate:.0} locks/s")),
    };
    Bar { label: row.name(), value, text, ours: true }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use gaggle_cli::workloads::Broken;

    use super::*;
    use crate::cluster::{Setup, StrategyName};

    fn spread(scale: f64) -> Spread {
        let [mean, p50, p99, p999, max] = [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| scale * x);
        Spread { mean: Some(mean), p50, p99, p999, max }
    }

    /// A row whose figures all differ.
    fn row(workload: &'static str, pairs: u64) -> Row {
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
        Row { setup, workload, figures, rounds }
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
    fn percentiles_of_too_few_locks_are_not_shown() {
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

    #[test]
    fn bar_of_a_rate_is_the_part_of_other_tasks() {
        let bar = bar(&row("handoff", 4000), None);
        assert_eq!((bar.value, bar.text.as_str()), (750.0, "750 of 1500/s"));
    }

    #[test]
    fn bar_of_the_contended_case_is_what_the_lock_adds() {
        let mut baseline = row("sequential", 40);
        baseline.figures.ms_per_pair = 0.42;
        let bar = bar(&row("gaggle1-contended", 40), Some(&baseline));
        assert!((bar.value - 0.25).abs() < 1e-9, "{}", bar.value);
        assert_eq!(bar.text, "+0.25 ms");
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args
    }

    /// As wide as rows can be: the longest names, seven-digit rates, waits of a minute.
    fn widest() -> Vec<Row> {
        let workloads =
            ["handoff", "uncontended, slowest", "busy", "gaggle1-contended", "sequential"];
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
        let plan = &Plan::new(&args);
        let report = Report { args: &args, plan, rows: &rows, busy_share: 0.99, ended_early: None };
        let text = report.text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        for part in ["handoff (4096 tasks)", "gaggle/memory, slowest", "no lock, 1 task", "±450 %"]
        {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn one_member_and_a_busy_machine_are_stated() {
        let args = args("bench --members 1");
        let plan = &Plan::new(&args);
        let report = Report { args: &args, plan, rows: &[], busy_share: 0.34, ended_early: None };
        let [machine, members] = report.setting();
        assert!(machine.ends_with(", 34 % used by other programs"), "{machine}");
        assert_eq!(members, "1 member in one process, one round");
    }

    #[test]
    fn only_a_lock_that_breaks_a_promise_has_failed() {
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

    #[test]
    fn figures_of_a_row_are_the_median_of_its_rounds() {
        let setup = row("fan", 1).setup;
        let mut rows = Vec::new();
        for pairs in [30, 10, 20] {
            Row::add_round(&mut rows, setup, "fan", row("fan", pairs).figures);
            Row::add_round(&mut rows, setup, "busy", row("busy", 5).figures);
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
}
