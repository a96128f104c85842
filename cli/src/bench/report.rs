//! The report of `gaggle bench`: tables and JSON.

mod increment;
#[cfg(test)]
mod tests;

use gaggle::strategies::clock::{BootClock, Clock as _};
use gaggle_workloads::Spread;
use serde_json::json;

pub(super) use self::increment::IncrementReport;
use super::{
    args::Args,
    cpu,
    plan::{Case, Plan},
    row::Row,
};
use crate::{
    failure::Failure,
    output::{self, Column, NONE, count},
};

/// The results of a benchmark, and the conditions of the measurement.
pub(super) struct Report<'a> {
    pub(super) args: &'a Args,
    pub(super) plan: &'a Plan<'a>,
    /// The rows by workload, the best first.
    pub(super) rows: &'a [Row],
    /// The share of the machine that other programs used.
    pub(super) busy_share: f64,
    /// The failure that ended the benchmark early.
    pub(super) ended_early: Option<&'a str>,
}

impl Report<'_> {
    /// The text for standard output.
    pub(super) fn output(&self) -> String {
        if self.args.json.as_deref() == Some("-") { self.json() } else { self.text() }
    }

    /// The results as one JSON object.
    fn json(&self) -> String {
        let args = self.args;
        let document = json!({
            "gaggle": env!("CARGO_PKG_VERSION"),
            "seconds_since_1970": BootClock.wall_nanos() / 1_000_000_000,
            "duration_s": args.duration.map(|duration| duration.as_secs_f64()),
            "cores": cpu::cores(),
            "busy_share": self.busy_share,
            "members": args.setup.members,
            "processes": args.setup.processes,
            "rounds": self.plan.rounds,
            "ended_early": self.ended_early,
            "runs": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        });
        format!("{document:#}")
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for case in &self.plan.cases {
            let rows = self.rows.iter().filter(|row| Plan::has(case, row)).cloned();
            let rows = rows.collect::<Vec<_>>();
            if rows.iter().any(|row| row.setup.is_some()) {
                text += &self.section(case, &rows);
            }
        }
        text += &output::legend(LEGEND, &text);
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
        if self.args.setup.details {
            section += &format!("{}\n\n", output::table(&LATENCIES, rows));
            if is_contended {
                section += &format!("{}\n\n", output::table(&HANDOFFS, rows));
            }
        }
        section
    }

    /// The conditions of the measurement, in two short lines.
    fn setting(&self) -> [String; 2] {
        let args = &self.args.setup;
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
        let cores = count(cpu::cores() as u64, "core");
        let busy = match self.busy_share > cpu::BUSY {
            true => format!(", {:.0} % used by other programs", self.busy_share * 100.0),
            false => String::new(),
        };
        [format!("gaggle {}, {cores}{busy}", crate::VERSION), format!("{who}, {rounds}")]
    }

    /// Writes the file of `--json`.
    pub(super) fn save(&self) -> Result<(), Failure> {
        let Some(path) = self.args.json_file() else { return Ok(()) };
        let written = std::fs::write(path, self.json() + "\n");
        let failed =
            |error| Failure::new(format!("cannot write {}", path.display())).because(&error);
        written.map_err(failed)
    }
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
    // The index is 1 if each task makes the same number of pairs, although some starve.
    ("Jain", |row| match row.by_time() {
        true => NONE.into(),
        false => format!("{:.3}", row.figures.jain),
    }),
];

/// Explains the columns of all tables, and the dash in them.
const LEGEND: &str = "\
locks/s    lock and unlock pairs a second; most grants to other tasks on top
ms each    the time of one increment; the least on top
spread     half the distance of its best and its worst round
max wait   the longest time that `lock` took
hand-off   from `unlock` called until `lock` returned to a waiter (median)
to others  the share of grants that went to another task than the last holder
broken     how often two tasks held a key, an update was lost, or a token fell
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
