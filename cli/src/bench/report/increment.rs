//! The report of `gaggle increment`: a table, or a line of JSON for each run.

use gaggle_workloads::Keys;
use humantime::format_duration;
use serde_json::json;

use super::{HANDOFFS, LATENCIES, LEGEND};
use crate::{
    bench::{args::IncrementArgs, row::Row},
    cluster,
    output::{self, Column, count},
};

/// The results of all runs, in their order.
pub(crate) struct IncrementReport<'a> {
    pub(crate) args: &'a IncrementArgs,
    pub(crate) rows: &'a [Row],
}

const COLUMNS: [Column<Row>; 5] = [
    ("lock", Row::name),
    ("increments", |row| row.figures.pairs.to_string()),
    ("counted", |row| row.counted.unwrap_or_default().to_string()),
    ("lost", |row| row.lost().to_string()),
    ("time per increment", |row| format!("{:.2} ms", row.figures.ms_per_pair)),
];

impl IncrementReport<'_> {
    /// The text for standard output.
    pub(crate) fn output(&self) -> String {
        if self.args.json { self.json() } else { self.text() }
    }

    fn json(&self) -> String {
        let lines: Vec<_> = self.rows.iter().map(|row| self.json_line(row)).collect();
        lines.join("\n")
    }

    fn json_line(&self, row: &Row) -> String {
        let (figures, setup) = (&row.figures, row.setup.expect("increment has no baseline"));
        json!({
            "strategy": cluster::name(setup.strategy),
            "channel": setup.channel.map(cluster::name),
            "members": self.args.setup.members,
            "processes": self.args.setup.processes,
            "expected": figures.pairs,
            "got": row.counted,
            "lost": row.lost(),
            "ms_per_increment": rounded(figures.ms_per_pair, 1e3),
            "handoff_p50_us": figures.handoff_us.map(|us| rounded(us.p50, 1e1)),
            "handoff_p99_us": figures.handoff_us.map(|us| rounded(us.p99, 1e1)),
            "longest_streak": figures.longest_streak,
        })
        .to_string()
    }

    fn text(&self) -> String {
        let mut text = output::table(&COLUMNS, self.rows) + "\n";
        if self.args.setup.details {
            let tables =
                [output::table(&LATENCIES, self.rows), output::table(&HANDOFFS, self.rows)];
            let tables = tables.join("\n\n");
            text += &format!("\n{tables}\n\n{}", output::legend(LEGEND, &tables));
        }
        text += &format!("\n{}\n{}\n", self.setting(), self.counter());
        for row in self.rows {
            text += &match row.lost() {
                0 => format!("\n{}: no update lost", row.name()),
                lost => format!("\n{}: {lost} of {} lost", row.name(), updates(row)),
            };
        }
        text
    }

    fn setting(&self) -> String {
        let IncrementArgs { setup, increments, work, keys, .. } = self.args;
        let who = count(setup.members, if setup.processes { "process" } else { "member" });
        let keys = match keys {
            Keys::Same => "under one key",
            Keys::Distinct => "under a key each",
        };
        let (increments, work) = (count(*increments, "increment"), format_duration(*work));
        format!("{who} × {increments} {keys}, {work} of work in each")
    }

    /// The place of the counter, which is not that of the lock.
    fn counter(&self) -> String {
        match (&self.args.setup.redis, self.args.setup.processes) {
            (Some(redis), _) => format!("counter: a key in the Redis at {}", redis.address()),
            (None, true) => "counter: a file in the temporary directory".into(),
            (None, false) => "counter: in the memory of this process".into(),
        }
    }
}

fn updates(row: &Row) -> String {
    count(row.figures.pairs, "update")
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::Value;

    use super::{super::tests::row as any_row, *};
    use crate::cluster::{ChannelName, Setup, StrategyName};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: IncrementArgs,
    }

    fn args(line: &str) -> IncrementArgs {
        Line::try_parse_from(line.split_whitespace()).expect("valid arguments").args
    }

    fn row(strategy: StrategyName, lost: u64) -> Row {
        let mut row = any_row("increment", 200);
        row.setup = Some(Setup { strategy, channel: Some(ChannelName::Tcp) });
        row.counted = Some(200 - lost);
        row.figures.ms_per_pair = 15.1234;
        row.figures.broken = Default::default();
        row
    }

    fn report(line: &str, row: Row) -> String {
        IncrementReport { args: &args(line), rows: &[row] }.output()
    }

    #[test]
    fn json_shows_each_figure_under_its_name() {
        let json = report("increment --members 3 --processes --json", row(StrategyName::Raft, 12));
        let found: Value = serde_json::from_str(&json).expect("one object");
        let expected = serde_json::json!({
            "strategy": "raft",
            "channel": "tcp",
            "members": 3,
            "processes": true,
            "expected": 200,
            "got": 188,
            "lost": 12,
            "ms_per_increment": 15.123,
            "handoff_p50_us": 200.0,
            "handoff_p99_us": 300.0,
            "longest_streak": 9,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn table_shows_each_figure_in_its_column() {
        let text = report("increment --details", row(StrategyName::Raft, 12));
        let line: Vec<_> = text.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(line, ["raft/tcp", "200", "188", "12", "15.12", "ms"], "{text}");
        assert!(text.contains("\nstreak     the most"), "{text}");
        assert!(text.contains("raft/tcp: 12 of 200 updates lost"), "{text}");
    }

    #[test]
    fn widest_figures_fit_80_columns() {
        let mut widest = row(StrategyName::Gaggle, 200);
        widest.setup.as_mut().expect("a setup").channel = Some(ChannelName::Memory);
        widest.figures.pairs = 31_000_000;
        widest.counted = Some(0);
        widest.figures.ms_per_pair = 60_000.0;
        let text = report("increment --details", widest);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn setting_of_one_member_is_singular() {
        let args = args("increment --members 1 --increments 1");
        let one = IncrementReport { args: &args, rows: &[] }.setting();
        assert!(one.starts_with("1 member × 1 increment under one key"), "{one}");
    }

    #[test]
    fn only_lost_updates_are_a_failure() {
        assert!(row(StrategyName::Local, 1).has_failed());
        assert!(!row(StrategyName::Local, 0).has_failed());
        assert!(!row(StrategyName::Noop, 1).has_failed());
    }
}
