//! The files: everything as JSON, the tables as Markdown, the picture as SVG.

use std::{fs, path::Path};

use gaggle_workloads::{Bar, BarChart, Figures, Series};

use crate::{
    contenders::Failed,
    data::{Data, Row},
    settings::{SINGLES, Settings, is_named},
    tables,
    targets::{self, Target, number},
};

/// The name in `results.json` and on the command line, the heading, and what runs.
const WORKLOADS: [(&str, &str, &str); 4] = [
    ("uncontended", "One uncontended key", "one task, nothing inside"),
    ("fan", "64 keys", "64 tasks, a key each, nothing inside"),
    ("handoff", "One contended key", "8 tasks, nothing inside"),
    ("busy", "One contended key, with work", "8 tasks, 5 ms inside and 5 ms away"),
];

const GAGGLE1: [(&str, &str, &str); 2] = [
    ("gaggle1-contended", "Contended", "five members, one key, four steps of 15 ms"),
    ("gaggle1-uncontended", "Uncontended", "the same on a key each"),
];

/// Writes the tables and the picture again from the measured data.
pub(crate) fn redraw(directory: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(directory.join("results.json"))?;
    let mut document: serde_json::Value = serde_json::from_str(&text)?;
    let data: Data = serde_json::from_value(document["measured"].take())?;
    files(directory, &data)
}

pub(crate) fn write(settings: &Settings, data: &Data) -> Result<(), Failed> {
    for only in settings.only.iter().filter(|only| *only != SINGLES) {
        if !data.rows.iter().any(|row| is_named(&row.lock.to_lowercase(), only)) {
            return Err(
                format!("nothing was measured of --only {only}; nothing was written").into()
            );
        }
    }
    files(&settings.out, data)?;
    let targets = targets::all(data).len();
    if settings.all() && targets != targets::COUNT {
        // Otherwise a missing or renamed row would not be noticed.
        return Err(format!("{targets} of {} targets could be computed", targets::COUNT).into());
    }
    Ok(())
}

fn files(directory: &Path, data: &Data) -> Result<(), Failed> {
    let targets = targets::all(data);
    let document = serde_json::json!({ "measured": data.medians(), "targets": targets });
    fs::write(directory.join("results.json"), format!("{document:#}\n"))?;
    // Three pages of the book, each within its limit of words.
    fs::write(directory.join("results.md"), results(data, &targets))?;
    fs::write(directory.join("workloads.md"), rows("Results by workload", data, &WORKLOADS))?;
    let gaggle1 = rows("Results of the Gaggle 1.x benchmark", data, &GAGGLE1);
    fs::write(directory.join("gaggle1.md"), gaggle1)?;
    fs::write(directory.join("chart.svg"), chart(data).svg())?;
    tables::write(directory, data)?;
    let met = targets.iter().filter(|target| target.met).count();
    println!("{met} of {} targets met; see {}", targets.len(), directory.display());
    Ok(())
}

/// A page of the book: its title, and under it what wrote it.
fn page(title: &str) -> String {
    format!("# {title}\n\nWritten by `benches/competitors/run`; not edited.\n")
}

fn results(data: &Data, targets: &[Target]) -> String {
    let mut text = page("Results") + "\n";
    for (what, value) in &data.about {
        let quote = if what == "command" { "`" } else { "" };
        text += &format!("- {what}: {quote}{value}{quote}\n");
    }
    text += &format!("- {}\n\n## Targets\n\n", data.settings);
    text += "| what | measured | target | |\n|---|---|---|---|\n";
    for Target { what, measured, target, met } in targets {
        let mark = if *met { "met" } else { "**missed**" };
        text += &format!("| {what} | {measured} | {target} | {mark} |\n");
    }
    text += "\n## Single figures\n\n\
             Those of engines and of the quorum floor: the median of the rounds. The others were \
             taken\nonce, after them.\n\n| figure | |\n|---|---|\n";
    for name in data.figures.keys() {
        let value = data.get(name).map(number).unwrap_or_default();
        text += &format!("| {} | {value} |\n", name.replace('_', " "));
    }
    text
}

/// The rows of some workloads, a section each.
fn rows(title: &str, data: &Data, workloads: &[(&str, &str, &str)]) -> String {
    let mut text = page(title);
    for (name, heading, about) in workloads {
        text += &format!("\n## {heading}\n\n`{name}`: {about}.\n\n");
        text += "| lock | pairs/s | ms each | lock p50 / p99 / p99.9 / worst, µs \
                 | hand-off p50 / p99, µs | means: lock / unlock / hand-off, µs | hand-off share \
                 | longest streak | Jain |\n|---|---|---|---|---|---|---|---|---|\n";
        for row in data.rows.iter().filter(|row| row.workload == *name) {
            text += &line(row);
        }
    }
    text
}

fn line(row: &Row) -> String {
    let Figures { pairs_per_s, ms_per_pair, lock_us, handoff_us, .. } = row.median();
    let lock = [lock_us.p50, lock_us.p99, lock_us.p999, lock_us.max].map(number).join(" / ");
    let handoff = handoff_us.map(|us| format!("{} / {}", number(us.p50), number(us.p99)));
    let figures = row.median();
    let means = [Some(lock_us.mean), figures.unlock_mean_us, handoff_us.map(|us| us.mean)];
    let means = means.map(|mean| mean.map_or_else(|| "–".into(), number)).join(" / ");
    let share = figures.handoff_share.map(|share| format!("{:.1} %", share * 100.0));
    let streak = figures.longest_streak.map(|streak| streak.to_string());
    let dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let name = if row.ours { format!("**{}**", row.lock) } else { row.lock.clone() };
    let each = if ms_per_pair < 0.1 { "–".into() } else { format!("{ms_per_pair:.2}") };
    format!(
        "| {name} | {} | {each} | {lock} | {} | {means} | {} | {} | {:.3} |\n",
        number(pairs_per_s),
        dash(handoff),
        dash(share),
        dash(streak),
        figures.jain,
    )
}

fn chart(data: &Data) -> BarChart {
    let about = |what: &str| {
        let found = data.about.iter().find(|(name, _)| *name == what);
        found.map_or("", |(_, value)| value.as_str())
    };
    // The first clause of the settings: no more fits.
    let settings = data.settings.split(';').next().unwrap_or_default();
    let subtitle = format!("{} · {} · {settings}", about("date"), about("machine"));
    let all = [
        over_no_lock(data),
        waits(data),
        Series {
            limit: quorums(
                data,
                1.0,
                "a majority over TCP, asleep between: a quorum round trip each",
            ),
            ..rates(data, "handoff", "one key, eight tasks: times a second that another gets it")
        },
        Series {
            limit: quorums(
                data,
                2.0,
                "a majority over TCP, asleep between: two quorum round trips",
            ),
            ..rates(data, "uncontended", "one key, one task: locks a second")
        },
        Series { limit: engine(data), ..rates(data, "fan", "64 keys, 64 tasks: locks a second") },
    ];
    let series = all.into_iter().filter(|series| !series.bars.is_empty()).collect();
    BarChart { title: "What a lock costs".into(), subtitle, series }
}

/// What the picture of Gaggle 1.x showed, without the work that is in all of it.
fn over_no_lock(data: &Data) -> Series {
    let sequential =
        data.of("gaggle1-contended", "sequential").map_or(0.0, |figures| figures.ms_per_pair);
    let bar = |row: &Row| {
        let over = row.median().ms_per_pair - sequential;
        let value = over.max(0.0);
        let mut text = format!("{over:+.2} ms");
        if let Some(streak) = row.median().longest_streak.filter(|streak| *streak > 1) {
            text += &format!(", {streak} in a row");
        }
        Bar { label: row.lock.clone(), value, text, ours: row.ours }
    };
    let shown = |row: &&Row| row.lock != "sequential";
    let rows = data.rows.iter().filter(|row| row.workload == "gaggle1-contended").filter(shown);
    let title = "Gaggle 1.x, contended: ms over no lock, and turns in a row".into();
    sorted(title, "less is better; 0 is the limit", rows.map(bar).collect())
}

fn waits(data: &Data) -> Series {
    let bar = |row: &Row| {
        let ms = row.median().lock_us.max / 1e3;
        let text = format!("{} ms", number(ms));
        Bar { label: row.lock.clone(), value: ms, text, ours: row.ours }
    };
    let rows = data.rows.iter().filter(|row| row.workload == "busy");
    let title = "one key, eight tasks, 5 ms inside and 5 ms away: the worst wait".into();
    // A task that returns after 5 ms finds a holder and six waiters. Timers wake a millisecond
    // late, which adds up to some 36 ms.
    let limit = Some((30.0, "limit: six others, 5 ms each".into()));
    Series { limit, ..sorted(title, "less is better", rows.map(bar).collect()) }
}

/// What no lock of a majority can beat: on a contended key an unlock is the next one's lock,
/// one commit; otherwise a lock is one, and an unlock another.
fn quorums(data: &Data, commits: f64, name: &str) -> Option<(f64, String)> {
    let floor_us = data.get("quorum_floor_p50_us")?;
    Some((1e6 / (commits * floor_us), name.into()))
}

/// What no lock on this engine can beat, without any network.
fn engine(data: &Data) -> Option<(f64, String)> {
    let commits_per_s = data.get("raft_64_per_s")?;
    Some((commits_per_s / 2.0, "limit of the bare engine in memory: two commits".into()))
}

/// Without locks of one process, which would dwarf all others. On a shared key, a repeated grant to
/// one task is not a hand-off.
fn rates(data: &Data, workload: &str, title: &str) -> Series {
    let bar = |row: &Row| {
        let figures = row.median();
        let share = figures.handoff_share.unwrap_or(1.0);
        let value = figures.pairs_per_s * share;
        let mut text = number(value);
        if share < 0.5 {
            text += &format!(" of {}", number(figures.pairs_per_s));
        }
        Bar { label: row.lock.clone(), value, text, ours: row.ours }
    };
    let remote = |row: &&Row| !row.lock.starts_with("Local") && !row.lock.starts_with("DashMap");
    let rows = data.rows.iter().filter(|row| row.workload == workload).filter(remote);
    let mut series = sorted(title.to_owned(), "more is better", rows.map(bar).collect());
    series.bars.reverse();
    series
}

/// The shortest first.
fn sorted(title: String, note: &str, mut bars: Vec<Bar>) -> Series {
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    Series { title, note: note.into(), bars, limit: None }
}

#[cfg(test)]
mod tests {
    use std::{env, path::Path, process};

    use super::*;

    #[test]
    fn committed_results_give_the_committed_files() {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let drawn = env::temp_dir().join(format!("gaggle-redraw-{}", process::id()));
        fs::create_dir(&drawn).unwrap();
        fs::copy(committed.join("results.json"), drawn.join("results.json")).unwrap();
        redraw(&drawn).unwrap();
        let differs = |file: &&str| {
            fs::read(committed.join(file)).unwrap() != fs::read(drawn.join(file)).unwrap()
        };
        let files =
            ["results.json", "results.md", "workloads.md", "gaggle1.md", "tables.md", "chart.svg"];
        let different: Vec<_> = files.into_iter().filter(differs).collect();
        fs::remove_dir_all(&drawn).unwrap();
        assert!(different.is_empty(), "{different:?} differ");
    }
}
