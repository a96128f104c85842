//! The results: everything as JSON, the targets as Markdown; rows and tables are printed.

use std::{fs, path::Path};

use gaggle_workloads::Figures;

use crate::{
    contenders::BoxError,
    data::{Data, Row},
    settings::{SINGLES, Settings, is_named},
    tables,
    targets::{self, Target, number},
};

/// The name in `results.json` and on the command line, and what runs.
const WORKLOADS: [(&str, &str); 6] = [
    ("uncontended", "one task, nothing inside"),
    ("fan", "64 tasks, a key each, nothing inside"),
    ("handoff", "8 tasks, nothing inside"),
    ("busy", "8 tasks, 5 ms inside and 5 ms away"),
    ("gaggle1-contended", "five members, one key, four steps of 15 ms"),
    ("gaggle1-uncontended", "the same on a key each"),
];

/// Writes the tables again from the measured data.
pub(crate) fn redraw(directory: &Path) -> Result<(), BoxError> {
    files(directory, &measured(directory)?)
}

fn measured(directory: &Path) -> Result<Data, BoxError> {
    let text = fs::read_to_string(directory.join("results.json"))?;
    let mut document: serde_json::Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(document["measured"].take())?)
}

pub(crate) fn write(settings: &Settings, data: &Data) -> Result<(), BoxError> {
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

fn files(directory: &Path, data: &Data) -> Result<(), BoxError> {
    // If the single figures failed, this directory does not exist yet.
    fs::create_dir_all(directory)?;
    let targets = targets::all(data);
    let document = serde_json::json!({ "measured": data.medians(), "targets": targets });
    fs::write(directory.join("results.json"), format!("{document:#}\n"))?;
    fs::write(directory.join("results.md"), results(data, &targets))?;
    println!("{}", rows(data));
    tables::write(directory, data)?;
    let met = targets.iter().filter(|target| target.met).count();
    println!("{met} of {} targets met; see {}", targets.len(), directory.display());
    Ok(())
}

fn results(data: &Data, targets: &[Target]) -> String {
    let mut text =
        String::from("# Results\n\nWritten by `benches/competitors/run`; not edited.\n\n");
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
    text
}

/// The rows of all workloads, a table each.
fn rows(data: &Data) -> String {
    let mut text = String::new();
    for (name, about) in WORKLOADS {
        text += &format!("\n`{name}`: {about}.\n\n");
        text += "| lock | pairs/s | ms each | lock p50 / p99 / p99.9 / worst, µs \
                 | hand-off p50 / p99, µs | means: lock / unlock / hand-off, µs | hand-off share \
                 | longest streak | Jain |\n|---|---|---|---|---|---|---|---|---|\n";
        for row in data.rows.iter().filter(|row| row.workload == name) {
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

#[cfg(test)]
mod tests {
    use std::{env, path::Path, process};

    use super::*;

    #[test]
    fn committed_results_give_the_committed_files() {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let drawn = env::temp_dir().join(format!("gaggle-redraw-{}", process::id()));
        let data = measured(&committed).unwrap();
        files(&drawn, &data).unwrap();
        let differs = |file: &&str| {
            fs::read(committed.join(file)).unwrap() != fs::read(drawn.join(file)).unwrap()
        };
        let different: Vec<_> =
            ["results.json", "results.md"].into_iter().filter(differs).collect();
        fs::remove_dir_all(&drawn).unwrap();
        assert!(different.is_empty(), "{different:?} differ");
        tables::tests::assert_shown(&committed.join("../benchmarks.md"), &data);
    }
}
