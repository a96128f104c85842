//! Goal: the pages are short, their links lead somewhere, their events and metrics are those of the
//! code, and examples can be pasted. Method: the files are read line by line.

#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{
    fs,
    path::{Path, PathBuf},
};

const README_LINES_MAX: usize = 120;
/// The most words of a page, its tables included.
const PAGE_WORDS_MAX: usize = 1_500;
/// The most words of all pages.
const WORDS_MAX: usize = 23_200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The pages of the book, the generated ones among them.
fn pages() -> Vec<PathBuf> {
    let folders = ["docs", "docs/benchmarks"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut pages: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The pages, and the files for readers in the root.
fn all() -> Vec<PathBuf> {
    let names = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];
    names.iter().map(|name| root().join(name)).chain(pages()).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines outside code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    };
    text.lines().filter(outside).collect()
}

/// The anchors of the headings, after the `#` of links: lower case, `-` for spaces, no punctuation.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// The targets of `[text](target)`, also where the text is broken over lines.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text).join("\n");
    let targets = prose.split("](").skip(1);
    targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// Why a link of the file at `path` is broken.
fn broken(path: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, it)| (file, Some(it)));
    let target = if file.is_empty() { path.to_owned() } else { path.parent().unwrap().join(file) };
    if !target.exists() {
        return Some(format!("{}: {link}: no such file", path.display()));
    }
    if path.starts_with(root().join("docs")) && file.starts_with("..") {
        return Some(format!("{}: {link}: outside of the book", path.display()));
    }
    let anchor = anchor?;
    let found = anchors(&read(&target)).iter().any(|known| known == anchor);
    (!found).then(|| format!("{}: {link}: no such heading", path.display()))
}

#[test]
fn links_lead_to_files_and_headings() {
    let broken: Vec<String> = all()
        .iter()
        .flat_map(|path| links(&read(path)).into_iter().filter_map(|link| broken(path, &link)))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn readme_and_pages_are_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= README_LINES_MAX, "README.md: {lines} lines, {README_LINES_MAX} at most");
    let mut all = 0;
    for path in pages() {
        let is_word = |word: &&str| word.contains(char::is_alphanumeric);
        let words = read(&path).split_whitespace().filter(is_word).count();
        assert!(words <= PAGE_WORDS_MAX, "{}: {words} words", path.display());
        all += words;
    }
    assert!(all <= WORDS_MAX, "all pages: {all} words, {WORDS_MAX} at most");
}

/// The text of all Rust files below.
fn sources(directory: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Texts of tests are no events.
            if !path.ends_with("testing") && !path.ends_with("tests") {
                text += &sources(&path);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &read(&path);
        }
    }
    text
}

/// The rows of the tables of events: those with a level.
#[test]
fn events_in_the_docs_are_those_of_the_code() {
    let code: String =
        ["src", "strategies/src", "channels/src"].map(|it| sources(&root().join(it))).concat();
    let mut events = 0;
    for page in ["docs/operations.md", "docs/redis.md"] {
        let text = read(&root().join(page));
        for row in text.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let is_level = |cell: &str| matches!(cell, "error" | "warn" | "info" | "debug");
            let Some(level) = cells.iter().take(3).position(|cell| is_level(cell)) else {
                continue;
            };
            // The event stands next to its level, on either side.
            for event in cells[3 - level].split('`').skip(1).step_by(2) {
                assert!(code.contains(&format!("\"{event}")), "{page}: no event {event:?}");
                events += 1;
            }
        }
    }
    assert!(events > 25, "{events}");
}

/// The metrics of the page, of the dashboard and of the code are the same.
#[test]
fn metrics_in_the_docs_are_those_of_the_code() {
    let crates = ["src", "strategies/src", "channels/src", "server/src"];
    let code: String = crates.map(|it| sources(&root().join(it))).concat();
    let names = |text: &str, open: &str| -> std::collections::BTreeSet<String> {
        let name = |rest: &str| {
            rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap().to_owned()
        };
        text.split(&format!("{open}gaggle_")).skip(1).map(name).collect()
    };
    let mut counted = names(&code, "\"");
    counted.retain(|name| ["_total", "_seconds"].iter().any(|end| name.ends_with(end)));
    assert!(counted.len() > 7, "{counted:?}");
    let page = read(&root().join("docs/metrics.md"));
    assert_eq!(names(&page, "`"), counted, "the table");
    let dashboard = read(&root().join("docs/metrics/dashboard.json"));
    for text in [&page, &dashboard] {
        let unknown: Vec<_> = names(text, "").difference(&counted).cloned().collect();
        assert!(unknown.iter().all(|name| name.ends_with("_count")), "{unknown:?}");
    }
}

/// The hidden lines of the examples in `text`, whose lines begin with `prefix`.
fn hidden<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut in_code = false;
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(prefix));
    let lines = lines.filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        in_code && !fence
    });
    lines.filter_map(|line| line.trim_start().strip_prefix("# ")).collect()
}

/// What docs.rs shows can be pasted into a `main`.
#[test]
fn examples_hide_only_main() {
    let is_main = |line: &str| {
        line.starts_with("#[tokio::main")
            || line.contains("fn main() ")
            || line.starts_with("Ok(())")
            || line.starts_with("Ok::<")
            || line == "}"
    };
    let code = ["src", "strategies/src", "channels/src"].map(|it| sources(&root().join(it)));
    let code = code.concat() + &sources(&root().join("strategies/src/testing"));
    let all: Vec<&str> = ["/// ", "//! "].iter().flat_map(|prefix| hidden(&code, prefix)).collect();
    assert!(all.len() > 50, "{all:?}");
    let more: Vec<_> = all.into_iter().filter(|line| !is_main(line.trim())).collect();
    assert!(more.is_empty(), "hidden lines that a reader needs: {more:#?}");
}
