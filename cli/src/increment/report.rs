//! What is shown: a table, or JSON.

use std::{fmt::Write, io::IsTerminal, time::Duration};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::{
    args::{Args, Keys},
    stats::Figures,
};
use crate::cluster::{ChannelName, StrategyName};

/// One run, as it is shown.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) strategy: StrategyName,
    pub(super) channel: Option<ChannelName>,
    pub(super) figures: Figures,
}

impl Row {
    /// Whether a lock lost an update. Without a lock that is what is shown.
    pub(super) fn has_failed(&self) -> bool {
        self.strategy != StrategyName::Noop && self.figures.lost > 0
    }
}

/// The progress of one run, on a terminal only.
pub(super) fn bar(args: &Args, strategy: StrategyName) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let total = u64::from(args.members) * u64::from(args.increments);
    let style = ProgressStyle::with_template("{msg:8} {bar:40} {pos}/{len} {elapsed}")
        .expect("the template is right");
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar.set_message(strategy.as_str());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// One object, for programs.
pub(super) fn json(args: &Args, row: &Row) -> String {
    let figures = &row.figures;
    json!({
        "strategy": row.strategy.as_str(),
        "channel": row.channel.map(ChannelName::as_str),
        "members": args.members,
        "processes": args.processes,
        "expected": figures.expected,
        "got": figures.got,
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

/// All runs, for people.
pub(super) fn table(args: &Args, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "strategy",
        "channel",
        "expected",
        "got",
        "lost",
        "ms/increment",
        "ideal",
        "hand-off p50 µs",
        "p99 µs",
        "longest streak",
    ]);
    for row in rows {
        let figures = &row.figures;
        let micros = |us: Option<f64>| us.map_or_else(|| "–".into(), |us| format!("{us:.0}"));
        table.add_row([
            row.strategy.as_str().to_owned(),
            row.channel.map_or("–", ChannelName::as_str).to_owned(),
            figures.expected.to_string(),
            figures.got.to_string(),
            figures.lost.to_string(),
            format!("{:.2}", figures.ms_per_increment),
            format!("{:.2}", figures.ideal_ms),
            micros(figures.handoff_p50_us),
            micros(figures.handoff_p99_us),
            figures.longest_streak.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n\n{}\n{}", setting(args), verdict(rows))
}

fn setting(args: &Args) -> String {
    let who = if args.processes { "processes" } else { "members" };
    let keys = match args.keys {
        Keys::Same => "on one key",
        Keys::Distinct => "on a key each",
    };
    let (members, increments, work) = (args.members, args.increments, args.work);
    format!("{members} {who} × {increments} increments {keys}, {work:?} of work in each")
}

fn verdict(rows: &[Row]) -> String {
    let mut verdict = String::new();
    for row in rows {
        let Figures { lost, expected, .. } = row.figures;
        let name = match row.strategy {
            StrategyName::Noop => "no lock",
            strategy => strategy.as_str(),
        };
        let _ = match lost {
            0 => writeln!(verdict, "{name}: no update lost"),
            lost => writeln!(verdict, "{name}: {lost} of {expected} updates lost"),
        };
    }
    verdict
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Line::try_parse_from(line.split_whitespace()).expect("the line is one").args
    }

    fn row(strategy: StrategyName, lost: u64) -> Row {
        let figures = Figures {
            expected: 200,
            got: 200 - lost,
            lost,
            ms_per_increment: 15.1234,
            ideal_ms: 15.0,
            handoff_p50_us: Some(21.04),
            handoff_p99_us: Some(97.46),
            longest_streak: 7,
        };
        Row { strategy, channel: Some(ChannelName::Tcp), figures }
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
        let table = table(&args("increment"), &[row(StrategyName::Raft, 12)]);
        let cells: Vec<_> = table.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(
            cells,
            ["raft", "tcp", "200", "188", "12", "15.12", "15.00", "21", "97", "7"],
            "{table}"
        );
        assert!(table.contains("raft: 12 of 200 updates lost"), "{table}");
    }

    #[test]
    fn only_a_lock_that_loses_updates_has_failed() {
        assert!(row(StrategyName::Local, 1).has_failed());
        assert!(!row(StrategyName::Local, 0).has_failed());
        assert!(!row(StrategyName::Noop, 1).has_failed());
    }
}
