//! One table with a column for each way in which the same is measured: `gaggle bench`, all columns in turn,
//! round by round.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use gaggle::bench::Figures;
use gaggle_channels::testing::RedisServer;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::{contenders::Failed, machine, ours, targets::number};

/// What is measured: its name, the words of a `gaggle bench`, and its workloads. Where the words speak of
/// Redis, it has a server of its own, so that nobody finds what another left behind.
pub(crate) type Setup = (&'static str, &'static [&'static str], &'static [&'static str]);

/// One way of measuring.
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) what: String,
    pub(crate) gaggle: PathBuf,
    /// Work of the least priority keeps every core awake.
    pub(crate) awake: bool,
}

/// A page and the file of its figures.
pub(crate) struct Page<'a> {
    /// The files' name without what is behind the point.
    pub(crate) name: &'a str,
    pub(crate) head: &'a str,
    pub(crate) setups: &'a [Setup],
    pub(crate) columns: Vec<Column>,
    pub(crate) rounds: usize,
}

/// How long each workload runs that has no end of its own.
const WINDOW: &str = "1s";

/// What one workload of one setup came to.
#[derive(Serialize, Deserialize)]
struct Row {
    setup: String,
    workload: String,
    /// By column, in their order: the rounds.
    columns: Vec<Vec<Figures>>,
}

impl Page<'_> {
    /// Measures, and writes the page to `out`.
    pub(crate) fn measure(&self, out: &Path) -> Result<(), Failed> {
        if self.rounds == 0 || self.columns.is_empty() {
            return Err("a comparison has a round and a column at least".into());
        }
        fs::create_dir_all(out)?;
        let about = machine::describe();
        let rows = machine::runtime().block_on(self.rows())?;
        let columns = self.columns.iter().map(|column| (column.name.clone(), column.what.clone()));
        let measured = Measured { about, rounds: self.rounds, columns: columns.collect(), rows };
        let document = serde_json::to_value(&measured)?;
        fs::write(out.join(format!("{}.json", self.name)), format!("{document:#}\n"))?;
        fs::write(
            out.join(format!("{}.md", self.name)),
            self.head.to_owned() + &measured.markdown(),
        )?;
        Ok(())
    }

    async fn rows(&self) -> Result<Vec<Row>, Failed> {
        let (rounds, count) = (self.rounds, self.columns.len());
        let mut rows: Vec<Row> = Vec::new();
        for round in 0..rounds {
            for &(setup, words, workloads) in self.setups {
                // None is always the first, which finds caches cold and a processor at rest.
                for turn in 0..count {
                    let place = (turn + round) % count;
                    let column = &self.columns[place];
                    eprintln!("round {} of {rounds}: {setup}, {}", round + 1, column.name);
                    let measured = column.bench(words, workloads).await;
                    let measured = measured.map_err(|error| format!("{setup}: {error}"))?;
                    for (workload, figures) in measured {
                        let is_it = |row: &Row| row.setup == setup && row.workload == workload;
                        let at = rows.iter().position(is_it).unwrap_or_else(|| {
                            let columns = vec![Vec::new(); count];
                            rows.push(Row {
                                setup: setup.into(),
                                workload: workload.clone(),
                                columns,
                            });
                            rows.len() - 1
                        });
                        rows[at].columns[place].push(figures);
                    }
                }
            }
        }
        Ok(rows)
    }
}

/// What a page shows.
#[derive(Serialize, Deserialize)]
struct Measured {
    about: Vec<(String, String)>,
    rounds: usize,
    columns: Vec<(String, String)>,
    rows: Vec<Row>,
}

/// Writes a page once more, from its file of figures.
pub(crate) fn redraw(name: &str, head: &str, out: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(out.join(format!("{name}.json")))?;
    let measured: Measured = serde_json::from_str(&text)?;
    Ok(fs::write(out.join(format!("{name}.md")), head.to_owned() + &measured.markdown())?)
}

impl Measured {
    fn markdown(&self) -> String {
        let mut text = String::new();
        // The versions of the peers are no part of this.
        let told = ["date", "machine", "kernel", "load before", "rustc", "redis"];
        for (what, value) in self.about.iter().filter(|(what, _)| told.contains(&what.as_str())) {
            text += &format!("- {what}: {value}\n");
        }
        let rounds = self.rounds;
        text += &format!(
            "- median of {rounds} rounds of {WINDOW} each; the seed's cases take 20 increments a member\n\n"
        );
        text += "| column | |\n|---|---|\n";
        for (name, what) in &self.columns {
            text += &format!("| {name} | {what} |\n");
        }
        let mut setup = "";
        for row in &self.rows {
            if row.setup != setup {
                setup = &row.setup;
                text += &format!("\n## {setup}\n\n| |");
                self.columns.iter().for_each(|(name, _)| text += &format!(" {name} |"));
                text += &format!("\n|---|{}\n", "---|".repeat(self.columns.len()));
            }
            text += &lines(row);
        }
        text
    }
}

impl Column {
    async fn bench(
        &self,
        setup: &[&str],
        workloads: &[&str],
    ) -> Result<Vec<(String, Figures)>, Failed> {
        let mut words = setup.to_vec();
        workloads.iter().for_each(|workload| words.extend(["--workload", workload]));
        // The seed's cases have as many increments as the seed's.
        if !workloads.iter().any(|workload| ["worst", "best"].contains(workload)) {
            words.extend(["--duration", WINDOW]);
        }
        let _spinners = if self.awake { spinners()? } else { Vec::new() };
        if !setup.contains(&"redis") {
            return ours::measured_by(&self.gaggle, &words).await;
        }
        let server = RedisServer::start();
        let url = server.url();
        words.extend(["--redis", &url]);
        ours::measured_by(&self.gaggle, &words).await
    }
}

/// For each core a process that runs where nobody else wants to, so that none goes to sleep. They end with
/// their owner.
fn spinners() -> Result<Vec<Child>, Failed> {
    let cores = std::thread::available_parallelism()?.get();
    let spinner = || {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()
    };
    Ok((0..cores).map(|_| spinner()).collect::<Result<_, _>>()?)
}

type Figure = fn(&Figures) -> Option<f64>;

fn lines(row: &Row) -> String {
    let name = &row.workload;
    let waits = !name.starts_with("uncontended") && !name.starts_with("best");
    let seeds = is_seeds(name);
    let sleeps = seeds || name.starts_with("busy");
    // Each with whether it tells something of this workload. A throughput alone cannot see starvation.
    let figures: [(&str, Figure, bool); 13] = [
        ("ms an increment", |figures| Some(figures.ms_per_pair), seeds),
        ("pairs/s", |figures| Some(figures.pairs_per_s), !seeds),
        ("lock p50, µs", |figures| Some(figures.lock_us.p50), !waits),
        ("lock mean, µs", |figures| figures.lock_us.mean, sleeps && !waits),
        ("unlock mean, µs", |figures| figures.unlock_mean_us, sleeps),
        ("lock p99, µs", |figures| Some(figures.lock_us.p99), true),
        ("worst wait, µs", |figures| Some(figures.lock_us.max), true),
        ("hand-off p50, µs", |figures| Some(figures.handoff_us?.p50), waits),
        ("hand-off mean, µs", |figures| figures.handoff_us?.mean, waits),
        ("hand-off p99, µs", |figures| Some(figures.handoff_us?.p99), waits),
        ("handed over, %", |figures| Some(figures.handed_over? * 100.0), waits),
        ("longest streak", |figures| Some(figures.longest_streak? as f64), waits),
        ("Jain's index", |figures| Some(figures.jain), true),
    ];
    let shown = figures.into_iter().filter(|(.., shown)| *shown);
    shown.map(|(what, of, _)| line(&format!("{name}: {what}"), row, of)).collect()
}

fn is_seeds(workload: &str) -> bool {
    workload.starts_with("worst") || workload.starts_with("best")
}

/// A line of a table, unless no column has the figure.
fn line(name: &str, row: &Row, of: impl Fn(&Figures) -> Option<f64>) -> String {
    let median = |rounds: &Vec<Figures>| {
        let measured = !rounds.is_empty();
        measured.then(|| of(&Figures::median(rounds))).flatten()
    };
    let values: Vec<Option<f64>> = row.columns.iter().map(median).collect();
    if values.iter().all(Option::is_none) {
        return String::new();
    }
    let cell = |value: &Option<f64>| match value {
        // What decides is behind the point.
        Some(value) if name.ends_with("increment") => format!("{value:.3}"),
        value => value.map_or("–".into(), number),
    };
    let cells: Vec<String> = values.iter().map(cell).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}
