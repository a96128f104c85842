//! What the library's own steps brought: builds of chosen commits, each by its own `gaggle bench`, in turn in
//! one run. Started by `benches/peers/history`, which builds them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gaggle::bench::Figures;
use gaggle_channels::testing::RedisServer;
use serde::Serialize;

use crate::{contenders::Failed, machine, ours, targets::number};

/// How a setup is measured, each workload for so long.
const WINDOW: &str = "1s";

/// What is measured of every step: the words of a `gaggle bench`. Where nothing is said of members there is
/// one process with one handle.
const SETUPS: [(&str, &[&str], &[&str]); 5] = [
    ("Local", &["--strategy", "local"], &["uncontended", "fan", "handoff"]),
    (
        "Gaggle over Memory, three members in one process",
        &["--strategy", "gaggle", "--channel", "memory", "--members", "3"],
        &["uncontended", "fan", "handoff"],
    ),
    (
        "Gaggle over TCP, three processes",
        &["--strategy", "gaggle", "--channel", "tcp", "--members", "3", "--processes"],
        &["uncontended", "fan", "handoff"],
    ),
    (REDIS, &["--strategy", "redis", "--members", "1"], &["uncontended", "fan", "handoff"]),
    (
        "Redis, eight processes",
        &["--strategy", "redis", "--members", "8", "--processes"],
        &["handoff"],
    ),
];
const REDIS: &str = "Redis, one process";

/// A commit and the `gaggle` built from it.
struct Step {
    revision: String,
    binary: PathBuf,
    what: String,
}

impl Step {
    /// `REVISION=BINARY=WHAT`.
    fn parse(word: &str) -> Result<Self, Failed> {
        let mut parts = word.splitn(3, '=');
        let (Some(revision), Some(binary), Some(what)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("{word:?} is not REVISION=BINARY=WHAT").into());
        };
        let binary = PathBuf::from(binary);
        if !binary.is_file() {
            return Err(format!("{} is no file", binary.display()).into());
        }
        Ok(Self { revision: revision.into(), binary, what: what.into() })
    }
}

/// What one workload of one setup came to, by step.
#[derive(Serialize)]
struct Row {
    setup: &'static str,
    workload: String,
    /// By step, in their order: the rounds.
    steps: Vec<Vec<Figures>>,
}

/// Measures the steps `rounds` times in turn, and writes `history.json` and `history.md` to `out`.
pub(crate) fn measure(out: &Path, rounds: &str, steps: &[&str]) -> Result<(), Failed> {
    let rounds: usize = rounds.parse().map_err(|error| format!("rounds {rounds:?}: {error}"))?;
    let steps: Vec<Step> = steps.iter().map(|word| Step::parse(word)).collect::<Result<_, _>>()?;
    if rounds == 0 || steps.is_empty() {
        return Err("a history has a round and a step at least".into());
    }
    fs::create_dir_all(out)?;
    let about = machine::describe();
    let mut rows: Vec<Row> = Vec::new();
    machine::runtime().block_on(async {
        for round in 0..rounds {
            for (setup, words, workloads) in SETUPS {
                // None is always the first, which finds caches cold and a processor at rest.
                for turn in 0..steps.len() {
                    let place = (turn + round) % steps.len();
                    let step = &steps[place];
                    eprintln!("round {} of {rounds}: {setup}, {}", round + 1, step.revision);
                    let measured = bench(&step.binary, words, workloads).await;
                    let measured = measured.map_err(|error| format!("{setup}: {error}"))?;
                    for (workload, figures) in measured {
                        note(&mut rows, setup, workload, place, steps.len(), figures);
                    }
                }
            }
        }
        Ok::<(), Failed>(())
    })?;
    let named: Vec<_> = steps.iter().map(|step| (&step.revision, &step.what)).collect();
    let document =
        serde_json::json!({ "about": about, "rounds": rounds, "steps": named, "rows": rows });
    fs::write(out.join("history.json"), format!("{document:#}\n"))?;
    fs::write(out.join("history.md"), markdown(&about, rounds, &steps, &rows))?;
    Ok(())
}

async fn bench(
    gaggle: &Path,
    setup: &[&str],
    workloads: &[&str],
) -> Result<Vec<(String, Figures)>, Failed> {
    let mut words = vec!["--duration", WINDOW];
    words.extend(setup);
    workloads.iter().for_each(|workload| words.extend(["--workload", workload]));
    if !setup.contains(&"redis") {
        return ours::measured_by(gaggle, &words).await;
    }
    // A server of its own, so that no step finds what another left behind.
    let server = RedisServer::start();
    let url = server.url();
    words.extend(["--redis", &url]);
    ours::measured_by(gaggle, &words).await
}

fn note(
    rows: &mut Vec<Row>,
    setup: &'static str,
    workload: String,
    place: usize,
    steps: usize,
    figures: Figures,
) {
    let found = rows.iter().position(|row| row.setup == setup && row.workload == workload);
    let at = found.unwrap_or_else(|| {
        rows.push(Row { setup, workload, steps: vec![Vec::new(); steps] });
        rows.len() - 1
    });
    rows[at].steps[place].push(figures);
}

fn markdown(about: &[(String, String)], rounds: usize, steps: &[Step], rows: &[Row]) -> String {
    let mut text = String::from(
        "# The library's own steps\n\nWritten by `benches/peers/history`; not edited. Each step is a commit, built as \
         it was, and measured by its own `gaggle bench`;\nall in turn, round by round.\n\n",
    );
    // The versions of the peers are no part of this.
    for (what, value) in about.iter().filter(|(what, _)| {
        ["date", "machine", "kernel", "load before", "rustc", "redis"].contains(&what.as_str())
    }) {
        text += &format!("- {what}: {value}\n");
    }
    text += &format!(
        "- median of {rounds} rounds of {WINDOW} each\n\n| step | what it has that the one before had not |\n|---|---|\n"
    );
    for step in steps {
        text += &format!("| {} | {} |\n", step.revision, step.what);
    }
    for (setup, ..) in SETUPS {
        text += &format!("\n## {setup}\n\n| |");
        steps.iter().for_each(|step| text += &format!(" {} |", step.revision));
        text += &format!("\n|---|{}\n", "---|".repeat(steps.len()));
        for row in rows.iter().filter(|row| row.setup == setup) {
            let name = &row.workload;
            text += &line(&format!("{name}, pairs/s"), row, |figures| Some(figures.pairs_per_s));
            if row.workload.starts_with("uncontended") {
                text += &line(&format!("{name}, lock p50, µs"), row, |f| Some(f.lock_us.p50));
            } else {
                text += &line(&format!("{name}, lock p99, µs"), row, |f| Some(f.lock_us.p99));
            }
            text += &line(&format!("{name}, hand-off p50, µs"), row, |f| Some(f.handoff_us?.p50));
        }
    }
    text
}

/// A line of a table, unless no step has the figure.
fn line(name: &str, row: &Row, of: impl Fn(&Figures) -> Option<f64>) -> String {
    let medians = |rounds: &Vec<Figures>| {
        let measured = !rounds.is_empty();
        measured.then(|| of(&Figures::median(rounds))).flatten()
    };
    let values: Vec<Option<f64>> = row.steps.iter().map(medians).collect();
    if values.iter().all(Option::is_none) {
        return String::new();
    }
    let cell = |value: &Option<f64>| value.map_or("–".into(), number);
    let cells: Vec<String> = values.iter().map(cell).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}
