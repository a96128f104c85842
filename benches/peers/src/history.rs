//! What the library's own steps brought: builds of chosen commits, each by its own `gaggle bench`. Started by
//! `benches/peers/history`, which builds them.

use std::path::{Path, PathBuf};

use crate::{
    columns::{self, Column, Page, Setup},
    contenders::Failed,
};

const SETUPS: [Setup; 5] = [
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
    (
        "Redis, one process",
        &["--strategy", "redis", "--members", "1"],
        &["uncontended", "fan", "handoff"],
    ),
    (
        "Redis, eight processes",
        &["--strategy", "redis", "--members", "8", "--processes"],
        &["handoff"],
    ),
];

const HEAD: &str = "# The library's own steps\n\nWritten by `benches/peers/history`; not edited. Each column is a commit, built as it was \
                    and measured by its own `gaggle bench`,\nall in turn, round by round.\n\n";

/// Measures the steps `rounds` times in turn, and writes `history.json` and `history.md` to `out`.
pub(crate) fn measure(out: &Path, rounds: &str, steps: &[&str]) -> Result<(), Failed> {
    let rounds = rounds.parse().map_err(|error| format!("rounds {rounds:?}: {error}"))?;
    let columns = steps.iter().map(|word| step(word)).collect::<Result<_, _>>()?;
    Page { name: "history", head: HEAD, setups: &SETUPS, columns, rounds }.measure(out)
}

/// `REVISION=BINARY=WHAT`.
fn step(word: &str) -> Result<Column, Failed> {
    let mut parts = word.splitn(3, '=');
    let (Some(name), Some(gaggle), Some(what)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{word:?} is not REVISION=BINARY=WHAT").into());
    };
    let gaggle = PathBuf::from(gaggle);
    if !gaggle.is_file() {
        return Err(format!("{} is no file", gaggle.display()).into());
    }
    Ok(Column { name: name.into(), what: what.into(), gaggle, awake: false })
}

/// Writes `history.md` once more, from `history.json`.
pub(crate) fn redraw(out: &Path) -> Result<(), Failed> {
    columns::redraw("history", HEAD, out)
}
