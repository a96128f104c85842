//! What is shown and written: a table, bars, JSON and SVG.

use std::{io::IsTerminal, time::Duration};

use comfy_table::{CellAlignment, Table, presets};
use gaggle::strategies::{BootClock, Clock as _};
use gaggle_cli::workloads::{Bar, BarChart, Figures, Series, Spread};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::{args::Args, row::Row};
use crate::failure::Failure;

/// The progress of all runs, on a terminal only.
pub(super) fn bar(args: &Args, expected: Duration) -> ProgressBar {
    if args.json.as_deref() == Some("-") || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}% {elapsed} {msg}")
        .expect("the template is right");
    let target = ProgressDrawTarget::stderr();
    let bar = ProgressBar::with_draw_target(Some(bar_ms(expected)), target);
    bar.set_style(style);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The bar's unit.
pub(super) fn bar_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Everything, for programs.
/// Where a failure ended it early, it says which.
pub(super) fn json(args: &Args, rows: &[Row], ended_early: Option<&str>) -> String {
    let document = json!({
        "gaggle": env!("CARGO_PKG_VERSION"),
        "seconds_since_1970": since_1970(),
        "duration_s": args.duration.map(|duration| duration.as_secs_f64()),
        "cores": cores(),
        "members": args.members,
        "processes": args.processes,
        "rounds": args.rounds(),
        "ended_early": ended_early,
        "runs": rows.iter().map(Row::json).collect::<Vec<_>>(),
    });
    format!("{document:#}")
}

const HEADER: [&str; 15] = [
    "workload",
    "lock",
    "pairs",
    "pairs/s",
    "ms each",
    "lock p50 µs",
    "p99",
    "p99.9",
    "worst",
    "hand-off p50 µs",
    "p99",
    "handed over",
    "streak",
    "Jain",
    "broken",
];

/// All rows, for people.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(HEADER);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n{WORDS}")
}

/// What the table's words mean.
const WORDS: &str = "
pair         one lock taken and given back
lock         what taking it took, in µs
hand-off     from `unlock` called by one task until `lock` returned to another, which waited
handed over  how many pairs came after one of another task
streak       how many pairs one task made in a row, at the most
Jain         how evenly the pairs are spread: 1 is even, 1 ÷ tasks is all to one
broken       how often two held a key, an update was lost, or a token did not grow
–            was not measured, or from too few pairs to say anything
";

fn cells(row: &Row) -> [String; 15] {
    let Figures { pairs, pairs_per_s, ms_per_pair, lock_us, handoff_us, .. } = row.figures;
    // One of a hundred, or of a thousand, can be told from the worst where there are twice as many.
    let tail = |of: u64, count: f64, us: Option<f64>| {
        or_dash(us.filter(|_| count >= 2.0 * of as f64).map(micros))
    };
    let (all, handed) = (pairs as f64, pairs as f64 * row.figures.handed_over.unwrap_or(0.0));
    let handoff = |field: fn(Spread) -> f64| handoff_us.map(field);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let broken = row.figures.broken;
    let faults = broken.overlaps + broken.lost_updates + broken.stale_tokens;
    [
        row.workload.to_owned(),
        row.name(),
        pairs.to_string(),
        format!("{pairs_per_s:.0}"),
        if ms_per_pair < 0.01 { "–".into() } else { format!("{ms_per_pair:.2}") },
        micros(lock_us.p50),
        tail(100, all, Some(lock_us.p99)),
        tail(1000, all, Some(lock_us.p999)),
        micros(lock_us.max),
        or_dash(handoff(|spread| spread.p50).map(micros)),
        tail(100, handed, handoff(|spread| spread.p99)),
        or_dash(row.figures.handed_over.map(percent)),
        or_dash(row.figures.longest_streak.map(|streak| streak.to_string())),
        // Where each makes a fixed number of them, all get as many, however long some starve.
        if row.by_time() { "–".into() } else { format!("{:.3}", row.figures.jain) },
        if faults == 0 { "no".into() } else { format!("{faults} times") },
    ]
}

fn micros(us: f64) -> String {
    if us < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

/// A series of bars for each workload, the worst first as in the seed.
pub(super) fn series(rows: &[Row]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    let baseline = rows.iter().find(|row| row.workload == "sequential");
    for row in rows.iter().filter(|row| row.workload != "sequential") {
        let series = match all.iter().position(|series| series.title == row.workload) {
            Some(known) => &mut all[known],
            None => {
                all.push(begin_series(row, baseline));
                all.last_mut().expect("it was just added")
            }
        };
        series.bars.push(bar_of(row, baseline));
    }
    for series in &mut all {
        series.bars.sort_by(|a, b| b.value.total_cmp(&a.value));
    }
    all
}

fn begin_series(row: &Row, baseline: Option<&Row>) -> Series {
    let worst = baseline.filter(|_| row.workload == "worst");
    let note = match worst {
        Some(baseline) => {
            let ms = baseline.figures.ms_per_pair;
            format!("ms an increment over the {ms:.2} of one task without a lock; less is better")
        }
        None if row.by_time() => match baseline {
            Some(baseline) => {
                let ms = baseline.figures.ms_per_pair;
                format!("one task without a lock takes {ms:.2} ms for each; less is better")
            }
            None => "less is better".into(),
        },
        None if row.figures.handed_over.is_some() => {
            "how many times a second another task gets it; more is better".into()
        }
        None => "more is better".into(),
    };
    Series { title: row.workload.into(), note, bars: Vec::new(), limit: None }
}

/// Of the worst case what the lock adds, beside which the work that is in all of it hides everything; of
/// a rate the part that was handed over: what one task takes while others starve is no merit.
fn bar_of(row: &Row, baseline: Option<&Row>) -> Bar {
    let Figures { ms_per_pair: ms, pairs_per_s: rate, handed_over, .. } = row.figures;
    let handed = rate * handed_over.unwrap_or(1.0);
    let (value, text) = match baseline {
        Some(baseline) if row.workload == "worst" => {
            let over = ms - baseline.figures.ms_per_pair;
            (over.max(0.0), format!("{over:+.2} ms"))
        }
        _ if row.by_time() => (ms, format!("{ms:.2} ms an increment")),
        _ if handed < 0.95 * rate => (handed, format!("{handed:.0} of {rate:.0} pairs/s")),
        _ => (handed, format!("{rate:.0} pairs/s")),
    };
    Bar { label: row.name(), value, text, ours: row.setup.is_some() }
}

/// Under which conditions the figures were taken, in one line.
pub(super) fn setting(args: &Args, rows: &[Row]) -> String {
    let members = args.members;
    let who = if args.processes { "processes" } else { "members in one process" };
    let who = if members == 1 {
        who.replace("processes", "process").replace("members", "member")
    } else {
        who.into()
    };
    // A run that ended early has made fewer of some rows, or of all.
    let measured = || rows.iter().map(|row| row.rounds.len());
    let rounds = match (measured().min().unwrap_or(0), measured().max().unwrap_or(0)) {
        (_, 0 | 1) => "one round".into(),
        (least, most) if least == most => format!("median of {most} rounds"),
        (least, most) => format!("median of {least} to {most} rounds"),
    };
    format!("gaggle {}, {} cores, {members} {who}, {rounds}", env!("CARGO_PKG_VERSION"), cores())
}

/// When it was measured, for whoever keeps several of them.
fn since_1970() -> u64 {
    BootClock.wall_nanos() / 1_000_000_000
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// Writes the files asked for.
pub(super) fn save(args: &Args, rows: &[Row], ended_early: Option<&str>) -> Result<(), Failure> {
    let write = |path: &std::path::Path, text: String| {
        let failed = |error| Failure::new(format!("{}", path.display())).because(&error);
        std::fs::write(path, text).map_err(failed)
    };
    if let Some(path) = args.json.as_deref().filter(|path| *path != "-") {
        write(path.as_ref(), json(args, rows, ended_early) + "\n")?;
    }
    if let Some(path) = &args.chart {
        let title = "gaggle bench".into();
        let chart = BarChart { title, subtitle: setting(args, rows), series: series(rows) };
        write(path, chart.svg())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gaggle_cli::workloads::Broken;

    use super::*;
    use crate::cluster::{Setup, StrategyName};

    fn spread(scale: f64) -> Spread {
        let [mean, p50, p99, p999, max] = [1.0, 2.0, 3.0, 4.0, 5.0].map(|x| scale * x);
        Spread { mean: Some(mean), p50, p99, p999, max }
    }

    /// A row of figures that all differ.
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
            handed_over: Some(0.5),
            longest_streak: Some(9),
            jain: 0.875,
            broken: Broken { overlaps: 1, lost_updates: 20, stale_tokens: 300 },
        };
        let setup = Some(Setup { strategy: StrategyName::Redis, channel: None });
        let rounds = vec![figures.clone()];
        Row { setup, workload, figures, rounds }
    }

    fn cell(row: &Row, name: &str) -> String {
        let mut columns = HEADER.iter().zip(cells(row));
        columns.find(|(header, _)| **header == name).expect("a column").1
    }

    #[test]
    fn every_figure_stands_in_its_column() {
        let shown: Vec<_> = HEADER.into_iter().zip(cells(&row("handoff", 4000))).collect();
        let expected = [
            ("workload", "handoff"),
            ("lock", "redis"),
            ("pairs", "4000"),
            ("pairs/s", "1500"),
            ("ms each", "0.67"),
            ("lock p50 µs", "20"),
            ("p99", "30"),
            ("p99.9", "40"),
            ("worst", "50"),
            ("hand-off p50 µs", "200"),
            ("p99", "300"),
            ("handed over", "50.0 %"),
            ("streak", "9"),
            ("Jain", "0.875"),
            ("broken", "321 times"),
        ];
        assert_eq!(shown, expected.map(|(header, cell)| (header, cell.to_owned())));
    }

    #[test]
    fn percentiles_of_too_few_pairs_are_not_shown() {
        for (pairs, p99, p999) in [(199, "–", "–"), (200, "30", "–"), (2000, "30", "40")] {
            let cells = cells(&row("handoff", pairs));
            assert_eq!((cells[6].as_str(), cells[7].as_str()), (p99, p999), "{pairs}");
        }
        // Half of the pairs were handed over.
        assert_eq!(cells(&row("handoff", 399))[10], "–");
        assert_eq!(cells(&row("handoff", 400))[10], "300");
    }

    #[test]
    fn what_a_row_does_not_have_is_a_dash() {
        let mut lone = row("uncontended", 4000);
        lone.figures.handoff_us = None;
        lone.figures.handed_over = None;
        lone.figures.longest_streak = None;
        lone.figures.broken = Broken::default();
        for name in ["hand-off p50 µs", "handed over", "streak"] {
            assert_eq!(cell(&lone, name), "–", "{name}");
        }
        assert_eq!(cell(&lone, "broken"), "no");
        assert_eq!(cell(&row("worst", 40), "Jain"), "–", "each makes as many as the others");
    }

    #[test]
    fn bar_of_a_rate_is_the_part_that_was_handed_over() {
        let bar = bar_of(&row("handoff", 4000), None);
        assert_eq!((bar.value, bar.text.as_str()), (750.0, "750 of 1500 pairs/s"));
    }

    #[test]
    fn bar_of_the_worst_case_is_what_the_lock_adds() {
        let mut baseline = row("sequential", 40);
        baseline.figures.ms_per_pair = 0.42;
        let bar = bar_of(&row("worst", 40), Some(&baseline));
        assert!((bar.value - 0.25).abs() < 1e-9, "{}", bar.value);
        assert_eq!(bar.text, "+0.25 ms");
    }

    #[test]
    fn only_a_lock_that_breaks_a_promise_has_failed() {
        let broken = row("worst", 40);
        assert!(broken.has_failed());
        let noop = Some(Setup { strategy: StrategyName::Noop, channel: None });
        for setup in [noop, None] {
            assert!(!Row { setup, ..row("worst", 40) }.has_failed(), "{setup:?}");
        }
        let mut sound = row("worst", 40);
        sound.figures.broken = Broken::default();
        assert!(!sound.has_failed());
    }

    #[test]
    fn rounds_of_one_row_come_to_their_median() {
        let setup = row("fan", 1).setup;
        let mut rows = Vec::new();
        for pairs in [30, 10, 20] {
            Row::note(&mut rows, setup, "fan", row("fan", pairs).figures);
            Row::note(&mut rows, setup, "busy", row("busy", 5).figures);
        }
        rows.iter_mut().for_each(Row::conclude);
        let found: Vec<_> = rows.iter().map(|row| (row.workload, row.figures.pairs)).collect();
        assert_eq!(found, [("fan", 20), ("busy", 5)]);
        let json = rows[0].json();
        assert_eq!(json["rounds"].as_array().map(Vec::len), Some(3));
        assert_eq!(json["median"]["pairs"], 20);
    }
}
