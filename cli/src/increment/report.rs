//! The report of `gaggle increment`: a table, or JSON.

use gaggle_workloads::Keys;
use humantime::format_duration;
use indicatif::ProgressBar;
use serde_json::json;

use super::{args::Args, figures::Figures};
use crate::{
    cluster::{self, Setup, StrategyName},
    output::{self, Column, NONE, count},
};

/// One run, as it is shown.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) setup: Setup,
    pub(super) figures: Figures,
}

impl Row {
    /// Whether a lock lost an update. Without a lock that is expected.
    pub(super) fn has_failed(&self) -> bool {
        self.setup.strategy != StrategyName::Noop && self.figures.lost > 0
    }

    fn name(&self) -> String {
        match self.setup.strategy {
            StrategyName::Noop => "no lock".into(),
            _ => self.setup.to_string(),
        }
    }
}

/// The progress of one run.
pub(super) fn bar(args: &Args, strategy: StrategyName) -> ProgressBar {
    let total = u64::from(args.members) * u64::from(args.increments);
    let is_shown = !args.json && args.verbosity.shows_bar();
    let bar = output::bar(is_shown, "{msg:8} {bar:40} {pos}/{len} {elapsed}", total);
    bar.set_message(cluster::name(strategy));
    bar
}

/// One JSON object.
pub(super) fn json(args: &Args, row: &Row) -> String {
    let figures = &row.figures;
    json!({
        "strategy": cluster::name(row.setup.strategy),
        "channel": row.setup.channel.map(cluster::name),
        "members": args.members,
        "processes": args.processes,
        "expected": figures.increments,
        "got": figures.counted,
        "lost": figures.lost,
        "ms_per_increment": rounded(figures.ms_per_increment, 1e3),
        "handoff_p50_us": figures.handoff_p50_us.map(|us| rounded(us, 1e1)),
        "handoff_p99_us": figures.handoff_p99_us.map(|us| rounded(us, 1e1)),
        "longest_streak": figures.longest_streak,
    })
    .to_string()
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

const COLUMNS: [Column<Row>; 5] = [
    ("lock", Row::name),
    ("increments", |row| row.figures.increments.to_string()),
    ("counted", |row| row.figures.counted.to_string()),
    ("lost", |row| row.figures.lost.to_string()),
    ("time per increment", |row| ms(row.figures.ms_per_increment)),
];

const DETAILS: [Column<Row>; 5] = [
    ("lock", Row::name),
    ("ideal", |row| ms(row.figures.ideal_ms)),
    ("hand-off p50", |row| micros(row.figures.handoff_p50_us)),
    ("hand-off p99", |row| micros(row.figures.handoff_p99_us)),
    ("longest streak", |row| {
        row.figures.longest_streak.map_or_else(|| NONE.into(), |streak| streak.to_string())
    }),
];

/// Explains the columns of [`DETAILS`].
const LEGEND: &str = "\
ideal           the time per increment of a lock that takes no time
hand-off        from `unlock` called until `lock` returned to a waiter
longest streak  the most increments in a row by one member
";

fn ms(ms: f64) -> String {
    format!("{ms:.2} ms")
}

fn micros(us: Option<f64>) -> String {
    us.map_or_else(|| NONE.into(), |us| format!("{us:.0} µs"))
}

/// All runs, as text.
pub(super) fn text(args: &Args, rows: &[Row]) -> String {
    let mut text = output::table(&COLUMNS, rows);
    if args.details {
        let details = output::table(&DETAILS, rows);
        text += &format!("\n\n{details}\n\n{}", output::legend(LEGEND, &details));
    } else {
        text += "\n";
    }
    text += &format!("\n{}\n{}\n", setting(args), counter(args));
    for row in rows {
        let Figures { lost, increments, .. } = row.figures;
        let name = row.name();
        text += &match lost {
            0 => format!("\n{name}: no update lost"),
            lost => format!("\n{name}: {lost} of {} lost", count(increments, "update")),
        };
    }
    text
}

fn setting(args: &Args) -> String {
    let who = count(args.members, if args.processes { "process" } else { "member" });
    let keys = match args.keys {
        Keys::Same => "under one key",
        Keys::Distinct => "under a key each",
    };
    let (increments, work) = (count(args.increments, "increment"), format_duration(args.work));
    format!("{who} × {increments} {keys}, {work} of work in each")
}

/// Where the counter is, which is not where the lock is.
fn counter(args: &Args) -> String {
    match (&args.redis, args.processes) {
        (Some(redis), _) => format!("counter: a key in the Redis at {}", redis.address()),
        (None, true) => "counter: a file in the temporary directory".into(),
        (None, false) => "counter: in the memory of this process".into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;
    use crate::cluster::ChannelName;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args
    }

    fn row(strategy: StrategyName, lost: u64) -> Row {
        let figures = Figures {
            increments: 200,
            counted: 200 - lost,
            lost,
            ms_per_increment: 15.1234,
            ideal_ms: 15.0,
            handoff_p50_us: Some(21.04),
            handoff_p99_us: Some(97.46),
            longest_streak: Some(7),
        };
        Row { setup: Setup { strategy, channel: Some(ChannelName::Tcp) }, figures }
    }

    #[test]
    fn json_shows_each_figure_under_its_name() {
        let json = json(&args("increment --members 3 --processes"), &row(StrategyName::Raft, 12));
        let found: Value = serde_json::from_str(&json).expect("it is JSON");
        let expected = serde_json::json!({
            "strategy": "raft",
            "channel": "tcp",
            "members": 3,
            "processes": true,
            "expected": 200,
            "got": 188,
            "lost": 12,
            "ms_per_increment": 15.123,
            "handoff_p50_us": 21.0,
            "handoff_p99_us": 97.5,
            "longest_streak": 7,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn table_shows_each_figure_in_its_column() {
        let text = text(&args("increment --details"), &[row(StrategyName::Raft, 12)]);
        let line = |number| {
            let line: &str = text.lines().nth(number).expect("a row");
            line.split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line(1), ["raft/tcp", "200", "188", "12", "15.12", "ms"], "{text}");
        let details = ["raft/tcp", "15.00", "ms", "21", "µs", "97", "µs", "7"];
        assert_eq!(line(4), details, "{text}");
        assert!(text.contains("\nlongest streak  the most"), "{text}");
        assert!(text.contains("raft/tcp: 12 of 200 updates lost"), "{text}");
    }

    #[test]
    fn widest_figures_fit_80_columns() {
        let mut widest = row(StrategyName::Gaggle, 200);
        widest.figures.lost = 31_000_000;
        widest.figures.counted = 31_000_000;
        widest.setup.channel = Some(ChannelName::Memory);
        widest.figures.increments = 31_000_000;
        widest.figures.ms_per_increment = 60_000.0;
        widest.figures.handoff_p99_us = Some(60_000_000.0);
        let text = text(&args("increment --details"), &[widest]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn setting_of_one_member_is_singular() {
        let one = setting(&args("increment --members 1 --increments 1"));
        assert!(one.starts_with("1 member × 1 increment under one key"), "{one}");
    }

    #[test]
    fn only_lost_updates_are_a_failure() {
        assert!(row(StrategyName::Local, 1).has_failed());
        assert!(!row(StrategyName::Local, 0).has_failed());
        assert!(!row(StrategyName::Noop, 1).has_failed());
    }
}
