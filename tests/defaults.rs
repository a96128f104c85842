//! Goal: every default that a page, a comment of the API or `--help` states is that of the code.
//! Method: the texts that repeat a default, with its name in the place of the number; and a search
//! for numbers that are called a default elsewhere.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gaggle::strategies::defaults;
use humantime::format_duration;

/// A default: its name in the texts below, the option that it is of, and its value.
const DEFAULTS: [(&str, &str, Duration); 10] = [
    ("LEASE", "duration", defaults::LEASE),
    ("MAX_WAIT", "max_wait", defaults::MAX_WAIT),
    ("REQUEST_TIMEOUT", "request_timeout", defaults::REQUEST_TIMEOUT),
    ("SERVED_TTL", "max_ttl", defaults::SERVED_TTL),
    ("WAITER_TTL", "waiter_ttl", defaults::WAITER_TTL),
    ("NONCE_MEMORY", "nonce_memory", defaults::NONCE_MEMORY),
    ("BUSY_POLL", "busy_poll", defaults::BUSY_POLL),
    ("CONNECT_TIMEOUT", "connect_timeout", defaults::CONNECT_TIMEOUT),
    ("HEARTBEAT", "heartbeat", defaults::HEARTBEAT),
    ("ELECTION_TIMEOUT", "election_timeout", defaults::ELECTION_TIMEOUT.0),
];

/// The texts that repeat defaults. `{LEASE}` stands for `10 s`, `[LEASE]` for `10s`.
const TEXTS: &[(&str, &[&str])] = &[
    ("README.md", &["The call waits {MAX_WAIT} at most, and the guard holds the key for {LEASE}"]),
    (
        "src/lib.rs",
        &["a lease of {LEASE}, after a wait of at most {MAX_WAIT}", "by default after {LEASE}"],
    ),
    (
        "src/locker.rs",
        &[
            "a lease of {LEASE}, after a wait of at most {MAX_WAIT}",
            "for a lease of {LEASE}, waiting at most {MAX_WAIT}",
            "request timeouts ({REQUEST_TIMEOUT} each)",
        ],
    ),
    ("src/acquire.rs", &["request timeout ({REQUEST_TIMEOUT} by default)"]),
    ("src/guard.rs", &["request timeout ({REQUEST_TIMEOUT} by default)"]),
    (
        "strategies/src/options.rs",
        &["// {LEASE} and {MAX_WAIT}", "to 24 h, {LEASE} by default", "{MAX_WAIT} by default"],
    ),
    (
        "strategies/src/redis/options.rs",
        &[
            "1 ms to 1 h, {REQUEST_TIMEOUT} by default",
            "1 ms to 1 h, {CONNECT_TIMEOUT} by default",
            "100 ms to 1 h, {WAITER_TTL} by default",
            "1 s to 1 h, {NONCE_MEMORY} by default",
            "to 1 ms, {BUSY_POLL} by default",
        ],
    ),
    ("strategies/src/http.rs", &["`waiter_ttl` of {WAITER_TTL}"]),
    (
        "strategies/src/http/options.rs",
        &["1 ms to 1 h, {REQUEST_TIMEOUT} by default", "1 ms to 1 h, {CONNECT_TIMEOUT} by default"],
    ),
    (
        "strategies/src/member/options.rs",
        &[
            "campaigns: {ELECTION_TIMEOUT} by default",
            "5 ms to 1 s, {HEARTBEAT} by default",
            "1 ms to 1 h, {REQUEST_TIMEOUT} by default",
            "are dropped: {WAITER_TTL} by default",
            "the default of {LEASE}",
            "to 1 ms, {BUSY_POLL} by default",
        ],
    ),
    ("strategies/src/lock_table/config.rs", &["in milliseconds; {NONCE_MEMORY} by default"]),
    ("docs/contract.md", &["(default {LEASE})", "(default {MAX_WAIT})"]),
    (
        "docs/quick-start.md",
        &["`duration`, {LEASE} by default", "`max_wait`, {MAX_WAIT} by default"],
    ),
    ("docs/coming-from.md", &["waits {MAX_WAIT}, holds {LEASE}"]),
    ("docs/fencing-tokens.md", &["Its lease of {LEASE} ends"]),
    ("docs/serving.md", &["grants nothing for `--max-ttl`, {SERVED_TTL} by default"]),
    ("docs/operations.md", &["is shorter than the lease ({LEASE})"]),
    ("docs/recipes.md", &["timeouts ({REQUEST_TIMEOUT} each)"]),
    (
        "docs/scheduled-jobs.md",
        &[
            "a group grants {SERVED_TTL} by default",
            "| `--max-wait` | {MAX_WAIT}; {REQUEST_TIMEOUT} with `--try`",
        ],
    ),
    ("cli/src/run/args.rs", &["[default: [MAX_WAIT]; [REQUEST_TIMEOUT] with --try]"]),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `10 s`, and `150 to 300 ms` for a range.
fn in_prose(name: &str, value: Duration) -> String {
    let spaced = |value: Duration| {
        let text = format_duration(value).to_string().replace("us", "µs");
        let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap();
        format!("{} {}", &text[..unit_at], &text[unit_at..])
    };
    match name {
        "ELECTION_TIMEOUT" => {
            let (min, max) = defaults::ELECTION_TIMEOUT;
            format!("{} to {}", min.as_millis(), spaced(max))
        }
        _ => spaced(value),
    }
}

/// The form that an option takes.
fn as_option(name: &str, value: Duration) -> String {
    match name {
        "ELECTION_TIMEOUT" => {
            let (min, max) = defaults::ELECTION_TIMEOUT;
            format!("{}..{}", format_duration(min), format_duration(max))
        }
        _ => format_duration(value).to_string(),
    }
}

/// The text of a file, without marks of comments, its white space single spaces.
fn text(path: &Path) -> String {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = |line: &str| {
        let line = line.trim();
        let marks = ["///", "//!"];
        marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim().to_owned()
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join(" ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The pages, and the sources that have an API or options.
fn all() -> Vec<PathBuf> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = ["testing", "tests", "tests.rs"].iter().any(|it| path.ends_with(it));
            if path.is_dir() && !is_test {
                collect(&path, found);
            } else if !is_test && path.extension().is_some_and(|it| it == "rs" || it == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    for folder in ["docs", "src", "strategies/src", "channels/src", "cli/src"] {
        collect(&root().join(folder), &mut found);
    }
    found
}

/// The number and unit at the end of a text, or at its begin.
fn duration_in(text: &str, at_end: bool) -> Option<&str> {
    let words: Vec<&str> = match at_end {
        true => text.rsplitn(3, ' ').take(2).collect(),
        false => text.splitn(3, ' ').take(2).collect(),
    };
    let (number, unit) =
        if at_end { (words.get(1)?, words.first()?) } else { (words.first()?, words.get(1)?) };
    let unit = unit.trim_matches(|c: char| !c.is_alphabetic());
    let number = number.trim_matches(|c: char| !c.is_ascii_digit());
    let is_duration = ["ns", "µs", "ms", "s", "min", "h"].contains(&unit);
    (is_duration && !number.is_empty()).then_some(text)
}

#[test]
fn texts_state_the_defaults_of_the_code() {
    let mut wrong = Vec::new();
    for (file, phrases) in TEXTS {
        let text = text(&root().join(file));
        for phrase in *phrases {
            let mut expected = (*phrase).to_owned();
            for (name, _, value) in DEFAULTS {
                expected = expected.replace(&format!("{{{name}}}"), &in_prose(name, value));
                expected = expected.replace(&format!("[{name}]"), &as_option(name, value));
            }
            if !text.contains(&expected) {
                wrong.push(format!("{file}: expected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An example is "`max_wait` (5 s)".
#[test]
fn number_behind_an_option_is_its_default() {
    let (mut found, mut wrong) = (0, Vec::new());
    for path in all() {
        let text = text(&path);
        for (name, option, value) in DEFAULTS {
            for behind in text.split(&format!("`{option}` (")).skip(1) {
                let inside = behind.split([')', ';', ',']).next().unwrap();
                if duration_in(inside, false) == Some(inside) && inside.matches(' ').count() == 1 {
                    let expected = in_prose(name, value);
                    if inside != expected {
                        let file = path.display();
                        wrong.push(format!("{file}: `{option}` ({inside}): expected {expected}"));
                    }
                    found += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 5, "{found}");
}

/// In tables with a column `default`.
#[test]
fn tables_state_the_defaults_of_the_code() {
    let (mut found, mut wrong) = (0, Vec::new());
    for path in all() {
        let text = fs::read_to_string(&path).unwrap();
        let mut column = None;
        for line in text.lines() {
            let line = line.trim_start_matches("/// ").trim_start_matches("//! ");
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if cells.len() < 4 {
                column = None;
                continue;
            }
            if let Some(at) = cells.iter().position(|cell| *cell == "default") {
                column = Some(at);
                continue;
            }
            let Some(cell) = column.and_then(|at| cells.get(at)) else { continue };
            for (name, option, value) in DEFAULTS {
                let is_named = [format!("`{option}`"), format!("`--{}`", option.replace('_', "-"))];
                if is_named.iter().any(|it| cells[1] == it) {
                    let expected = [in_prose(name, value), as_option(name, value)];
                    let shown = cell.trim_matches('`');
                    let is_right = expected.iter().any(|it| shown.starts_with(it.as_str()));
                    if !is_right {
                        wrong.push(format!("{}: {line}: expected {expected:?}", path.display()));
                    }
                    found += 1;
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 7, "{found}");
}

/// A number that is called a default is in the table above.
#[test]
fn every_stated_default_is_known() {
    let mut unknown = Vec::new();
    for path in all() {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let mut rest = text(&path);
        for phrase in TEXTS.iter().filter(|(it, _)| *it == file).flat_map(|(_, phrases)| *phrases) {
            let mut known = (*phrase).to_owned();
            for (name, _, value) in DEFAULTS {
                known = known.replace(&format!("{{{name}}}"), &in_prose(name, value));
            }
            rest = rest.replace(&known, "");
        }
        for (at, word) in rest.match_indices("default") {
            let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
            let before_by = before.strip_suffix("by ").unwrap_or("").trim_end();
            let behind = behind.trim_start_matches(" of").trim_start_matches(" after").trim_start();
            if duration_in(before_by, true).is_some() || duration_in(behind, false).is_some() {
                let end = rest[at..].char_indices().nth(40).map_or(rest.len(), |(it, _)| at + it);
                let begin = rest[..at].char_indices().rev().nth(40).map_or(0, |(it, _)| it);
                unknown.push(format!("{file}: …{}…", &rest[begin..end]));
            }
        }
    }
    assert!(unknown.is_empty(), "add to TEXTS:\n{}", unknown.join("\n"));
}
