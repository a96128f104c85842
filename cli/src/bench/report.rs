use std::{io::IsTerminal, time::Duration};

use comfy_table::{CellAlignment, Table, presets};
use gaggle::strategies::{BootClock, Clock as _};
use gaggle_cli::workloads::{Bar, BarChart, Figures, Series, Spread};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::args::Args;
use crate::{
    cluster::{ChannelName, Setup},
    failure::Failure,
};

/// All rounds of one workload on one setup.
#[derive(Debug)]
pub(super) struct Row {
    /// None for the baseline.
    pub(super) setup: Option<Setup>,
    pub(super) workload: &'static str,
    /// The median of the rounds.
    pub(super) figures: Figures,
    rounds: Vec<Figures>,
}

impl Row {
    /// Adds one round to the row it belongs to.
    pub(super) fn note(
        rows: &mut Vec<Self>,
        setup: Option<Setup>,
        workload: &'static str,
        figures: Figures,
    ) {
        match rows.iter_mut().find(|row| row.setup == setup && row.workload == workload) {
            Some(row) => row.rounds.push(figures),
            None => {
                let rounds = vec![figures.clone()];
                rows.push(Self { setup, workload, figures, rounds });
            }
        }
    }

    /// Takes the median, once all rounds are there.
    pub(super) fn conclude(&mut self) {
        self.figures = Figures::median(&self.rounds);
    }

    fn name(&self) -> String {
        self.setup.map_or_else(|| "no lock, one task".into(), |setup| setup.to_string())
    }

    /// The seed's workloads are told by the time of one operation, the others by their number.
    fn by_time(&self) -> bool {
        matches!(self.workload, "worst" | "best" | "sequential")
    }

    fn json(&self) -> Value {
        let strategy = self.setup.map(|setup| setup.strategy.as_str());
        let channel = self.setup.and_then(|setup| setup.channel).map(ChannelName::as_str);
        json!({
            "workload": self.workload,
            "strategy": strategy,
            "channel": channel,
            "median": self.figures,
            "rounds": self.rounds,
        })
    }
}

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

/// All rows, for people.
pub(super) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
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
    ]);
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
