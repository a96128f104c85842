//! The tables of `docs/benchmarks.md`: printed, and written into the page where the results go to
//! `docs/benchmarks`.

use std::{fs, path::Path};

use crate::{contenders::BoxError, data::Data, targets::number};

const BEGIN: &str = "<!-- Written by benches/competitors/run from here on -->\n";
const END: &str = "<!-- to here -->\n";

pub(crate) fn write(directory: &Path, data: &Data) -> Result<(), BoxError> {
    let text = tables(data);
    println!("{text}");
    if !directory.ends_with("docs/benchmarks") {
        return Ok(());
    }
    let path = directory.join("../benchmarks.md");
    let page = fs::read_to_string(&path)?;
    let [before, _, after] = parts(&page)?;
    fs::write(path, format!("{before}{BEGIN}{text}{END}{after}"))?;
    Ok(())
}

/// What stands before the tables, the tables, and what follows.
fn parts(page: &str) -> Result<[&str; 3], BoxError> {
    let (before, rest) = page.split_once(BEGIN).ok_or("the page has no beginning of the tables")?;
    let (shown, after) = rest.split_once(END).ok_or("the tables have no end")?;
    Ok([before, shown, after])
}

fn tables(data: &Data) -> String {
    let about = |what: &str| {
        let found = data.about.iter().find(|(name, _)| name == what);
        found.map_or("?", |(_, value)| value.as_str())
    };
    let mut text = format!(
        "{}, {}, `{}`;\n{}.\n\n",
        about("machine"),
        about("date"),
        about("command"),
        data.settings,
    );
    text += "| | one uncontended key, pairs/s | 64 keys, pairs/s | one contended key, pairs/s | hand-off share | hand-off p50 / p99, µs | wait p99 / worst, ms | \
             longest streak | Jain |\n\
             |---|---|---|---|---|---|---|---|---|\n";
    let rows = [
        ("`Local`, without guards", "Local", "Local"),
        ("`Redis`, without guards", "Redis", "Redis"),
        ("`Redis`, 8 processes, with guards", "", "Redis, 8 processes"),
        ("rslock, on the same Redis", "rslock", "rslock"),
        ("PostgreSQL advisory locks", "PostgreSQL", "PostgreSQL"),
        ("PostgreSQL, 8 processes", "", "PostgreSQL, 8 processes"),
        (
            "`Gaggle` over TCP, 3 processes, with guards; one task at the leader",
            "Gaggle, TCP, 3 processes, leader",
            "Gaggle, TCP, 3 processes",
        ),
        ("etcd, 3 nodes", "etcd, 3 nodes", "etcd, 3 nodes"),
    ];
    for (name, alone, many) in rows {
        let rate =
            |workload, lock| whole(data.of(workload, lock).map(|figures| figures.pairs_per_s));
        let hot = data.of("handoff", many);
        let share = hot.as_ref().and_then(|hot| hot.handoff_share).map(|share| share * 100.0);
        let share = share.map_or("–".into(), |share| {
            if share > 99.95 { "100 %".into() } else { format!("{share:.1} %") }
        });
        let both = |pair: Option<(f64, f64)>| {
            pair.map_or("–".into(), |(a, b)| format!("{} / {}", whole(Some(a)), whole(Some(b))))
        };
        let handoff = hot.as_ref().and_then(|hot| hot.handoff_us);
        let handoff = both(handoff.map(|us| (us.p50, us.p99)));
        let waits = both(hot.as_ref().map(|hot| (hot.lock_us.p99 / 1e3, hot.lock_us.max / 1e3)));
        let streak = hot.as_ref().and_then(|hot| hot.longest_streak);
        let streak = streak.map_or("–".into(), |streak| streak.to_string());
        let jain = hot.as_ref().map_or("–".into(), |hot| format!("{:.2}", hot.jain));
        text += &format!(
            "| {name} | {} | {} | {} | {share} | {handoff} | {waits} | {streak} | {jain} |\n",
            rate("uncontended", alone),
            rate("fan", many),
            rate("handoff", many)
        );
    }
    if let Some(streak) = data.of("handoff", "rslock").and_then(|figures| figures.longest_streak) {
        text += &format!(
            "\nA lock that polls looks fast on one key: it grants it to one task up to {} times in a row.\n",
            whole(Some(streak as f64))
        );
    }
    text += &format!("\nAll clients are built with {}.\n", about("build"));
    text
}

/// Without decimals where they do not matter.
fn whole(value: Option<f64>) -> String {
    match value {
        None => "–".into(),
        Some(value) if value < 100.0 => number(value),
        Some(value) if value < 1000.0 => format!("{value:.0}"),
        Some(value) => number(value.round()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Panics unless the page shows the tables of `data`.
    pub(crate) fn assert_shown(page: &Path, data: &Data) {
        let page = fs::read_to_string(page).unwrap();
        assert_eq!(parts(&page).unwrap()[1], tables(data));
    }
}
