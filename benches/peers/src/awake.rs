//! What cores that sleep cost: the rows that miss their target by the waking of cores, as they are and with
//! every core kept awake by work of the least priority.

use std::path::Path;

use crate::{
    columns::{self, Column, Page, Setup},
    contenders::Failed,
};

const SEEDS: &[&str] = &["best", "worst"];
const SETUPS: [Setup; 9] = [
    ("The seed's cases without a lock", &["--strategy", "noop"], &["best"]),
    ("The seed's cases, Redis", &["--strategy", "redis"], SEEDS),
    ("The seed's cases, Gaggle over TCP", &["--strategy", "gaggle", "--channel", "tcp"], SEEDS),
    ("The seed's cases, Gaggle over Redis", &["--strategy", "gaggle", "--channel", "redis"], SEEDS),
    ("The seed's cases, Raft over TCP", &["--strategy", "raft", "--channel", "tcp"], &["best"]),
    ("The seed's cases, Raft over Redis", &["--strategy", "raft", "--channel", "redis"], &["best"]),
    (
        "Eight tasks on one key: Redis, eight processes",
        &["--strategy", "redis", "--members", "8", "--processes"],
        &["handoff", "busy"],
    ),
    ("One task, Redis", &["--strategy", "redis", "--members", "1"], &["uncontended"]),
    (
        "Gaggle over TCP, three processes",
        &["--strategy", "gaggle", "--channel", "tcp", "--members", "3", "--processes"],
        &["uncontended", "handoff"],
    ),
];

const HEAD: &str = "# What cores that sleep cost\n\nWritten by `gaggle-peers awake`; not edited. Each row twice in turn, round by round: as it \
                    is, and with every core kept awake by\na process of the least priority (`chrt --idle`), which gives way to any other.\n\n";

/// Measures `rounds` times in turn, and writes `awake.json` and `awake.md` to `out`.
pub(crate) fn measure(out: &Path, gaggle: &str, rounds: &str) -> Result<(), Failed> {
    let rounds = rounds.parse().map_err(|error| format!("rounds {rounds:?}: {error}"))?;
    let column = |name: &str, what: &str, awake| Column {
        name: name.into(),
        what: what.into(),
        gaggle: gaggle.into(),
        awake,
    };
    let columns = vec![
        column("as it is", "a core with nothing to do sleeps", false),
        column("awake", "none does", true),
    ];
    Page { name: "awake", head: HEAD, setups: &SETUPS, columns, rounds }.measure(out)
}

/// Writes `awake.md` once more, from `awake.json`.
pub(crate) fn redraw(out: &Path) -> Result<(), Failed> {
    columns::redraw("awake", HEAD, out)
}
