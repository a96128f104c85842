//! Goal: names, comments and pages keep to the vocabulary of docs/glossary.md. Method: reads every
//! source and page as text; the words it rejects stand in that page's last section.
#![allow(clippy::unwrap_used)] // a test that meets an error has failed

use std::{fs, path::Path};

/// Quote the rejected words.
const QUOTING: [&str; 3] = ["tests/language.rs", "docs/glossary.md", "CHANGELOG.md"];

/// A rejected word in the files whose path starts so: a word of the protocol with Redis' scripts.
const ALLOWED: [(&str, &str); 2] = [
    ("gone", "strategies/src/redis/"),
    ("gone", "strategies/src/testing/simulator/invariants/scripts.rs"),
];

/// The endings of the files that are read, beside scripts, which have none.
const READ: [&str; 5] = [".rs", ".md", ".lua", ".toml", ".judged"];

/// Phrases that a reader has to translate; at most one comment in fifty may contain one.
const RARE: &str = "what is, what was, what comes, what came, what has, what waits, who is, \
    who was, who asks, who waits, who comes, who goes, who has, those that, one that, is told, \
    was told, are told";
const RARE_SHARE: usize = 50;

/// Where durations are shown, but for the function that shows them and a test of options; and what
/// stands in a line with one as options take it.
const SHOWN: [&str; 5] = ["src/", "channels/src/", "strategies/src/", "workloads/src/", "cli/src/"];
const NOT_SHOWN: [&str; 2] = ["strategies/src/prose.rs", "src/open/effects.rs"];
const TAKEN: [&str; 3] = ["default_value", "such as", "with its unit"];
/// Names of durations; `in_prose` shows them.
const DURATIONS: &str = "duration, elapsed, heartbeat, lease, overdue, patience, pause, timeout, \
    took, wait, within";

const TEST_NAME_MAX: usize = 60;
const TEST_NAME_MEDIAN_MAX: usize = 35;
const COLUMNS_MAX: usize = 100;

/// Every source and page: its path from the root, and its text.
fn files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let from_root = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "corpus"].contains(&name) {
                    folders.push(path);
                }
            } else if READ.iter().any(|end| name.ends_with(end)) {
                files.push((from_root, fs::read_to_string(&path).unwrap()));
            } else if !name.contains('.')
                && let Ok(text) = fs::read_to_string(&path)
                && text.starts_with("#!")
            {
                files.push((from_root, text));
            }
        }
    }
    for expected in ["README.md", "test", "Cargo.toml", "scripts/matrix"] {
        assert!(files.iter().any(|(path, _)| path == expected), "{expected} is not read");
    }
    files.retain(|(path, _)| !QUOTING.contains(&path.as_str()));
    files
}

/// The words of a text in lower case, with spaces around each: `LockTable` is ` lock table `.
fn words(text: &str) -> String {
    let (mut words, mut after_lower) = (String::from(" "), false);
    for letter in text.chars() {
        if !words.ends_with(' ')
            && (!letter.is_alphabetic() || after_lower && letter.is_uppercase())
        {
            words.push(' ');
        }
        after_lower = letter.is_lowercase();
        words.extend(letter.to_lowercase().filter(|lower| lower.is_alphabetic()));
    }
    words.trim_end().to_owned() + " "
}

/// The phrases of a comma-separated list that a text contains.
fn found<'a>(list: &'a str, text: &str) -> Vec<&'a str> {
    let text = words(text);
    list.split(',').map(str::trim).filter(|phrase| text.contains(&format!(" {phrase} "))).collect()
}

/// The last two paragraphs of the glossary: comma-separated lists of the words rejected everywhere,
/// and of those rejected in names.
fn rejected() -> [String; 2] {
    let glossary = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/glossary.md");
    let text = fs::read_to_string(glossary).unwrap();
    let section = text.split("## Rejected words").nth(1).unwrap();
    let list = |paragraph: &str| {
        let list = paragraph.split(':').nth(1).unwrap().replace('\n', " ");
        list.trim().trim_end_matches('.').to_owned()
    };
    let lists: Vec<_> = section.trim().split("\n\n").map(list).collect();
    lists.try_into().unwrap()
}

/// The names of a line of code: without its comment, and without its strings on that line.
fn names(line: &str) -> String {
    let outside_strings: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    outside_strings.split("//").next().unwrap().to_owned()
}

/// The start of a file's comments; nothing for a page, which is all prose.
fn comment_start(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap() {
        "rs" => "//",
        "lua" => "--",
        "md" => "",
        _ => "#",
    }
}

/// The comment blocks of a source, or the paragraphs of a page, each with its first line's number.
fn blocks(path: &str, text: &str) -> Vec<(usize, String)> {
    let comment = comment_start(path);
    let (mut blocks, mut inside) = (Vec::<(usize, String)>::new(), false);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let continues = inside;
        inside = line.starts_with(comment) && !line.is_empty();
        match blocks.last_mut().filter(|_| continues) {
            Some((_, block)) if inside => *block += &format!("\n{line}"),
            _ if inside => blocks.push((number, line.to_owned())),
            _ => {}
        }
    }
    blocks
}

/// Whether a string of a source shows a duration with its unit close to it, as in `5s`.
fn shows_a_close_unit(string: &str) -> bool {
    let is_close = |word: &str| {
        let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
        unit.len() < word.len() && ["us", "µs", "ms", "s", "h"].contains(&unit)
    };
    let by_debug = string.split('{').filter_map(|part| part.split_once(":?}"));
    string.split(|letter: char| !letter.is_alphanumeric()).any(is_close)
        || by_debug.into_iter().any(|(name, _)| !found(DURATIONS, name).is_empty())
}

/// Fails with every line of the list.
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "{}\n{} problems", problems.join("\n"), problems.len());
}

#[test]
fn rejected_words_do_not_occur() {
    let ([rejected, _], mut problems) = (rejected(), Vec::new());
    for (path, text) in files().iter().filter(|(_, text)| !found(&rejected, text).is_empty()) {
        for (number, line) in (1..).zip(text.lines()) {
            let mut found = found(&rejected, line);
            found.retain(|word| {
                !ALLOWED.iter().any(|(allowed, file)| word == allowed && path.starts_with(file))
            });
            problems.extend(found.iter().map(|word| format!("{path}:{number}: {word}: {line}")));
        }
    }
    assert_none(&problems);
}

#[test]
fn names_use_the_terms_of_the_glossary() {
    let ([_, rejected], mut problems) = (rejected(), Vec::new());
    for (path, text) in files().iter().filter(|(path, _)| path.ends_with(".rs")) {
        for (number, line) in (1..).zip(text.lines()) {
            let found = found(&rejected, &names(line)).join(", ");
            if !found.is_empty() {
                problems.push(format!("{path}:{number}: {found}: {line}"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn comments_need_no_translation() {
    let (mut count, mut problems) = (0, Vec::new());
    for (path, text) in files() {
        let blocks = blocks(&path, &text);
        count += blocks.len();
        for (line, block) in blocks {
            let found = found(RARE, &block);
            problems
                .extend(found.first().map(|phrase| format!("{path}:{line}: {phrase}\n{block}")));
        }
    }
    let (found, limit) = (problems.len(), count / RARE_SHARE);
    assert!(found <= limit, "{}\n{found} of {count}, at most {limit}", problems.join("\n"));
}

#[test]
fn durations_have_a_space_before_their_unit() {
    let is_shown = |path: &str| SHOWN.iter().any(|folder| path.starts_with(folder));
    let is_test = |path: &str| path.contains("/test") || NOT_SHOWN.contains(&path);
    let mut problems = Vec::new();
    for (path, text) in files().iter().filter(|(path, _)| is_shown(path) && !is_test(path)) {
        let shown = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for (number, line) in (1..).zip(shown.lines()) {
            let mut strings = line.split('"').skip(1).step_by(2);
            let is_taken = TAKEN.iter().any(|words| line.contains(words));
            if !line.trim().starts_with("//") && !is_taken && strings.any(shows_a_close_unit) {
                problems.push(format!("{path}:{number}: {line}"));
            }
        }
    }
    assert_none(&problems);
    assert!(shows_a_close_unit("within 5s") && shows_a_close_unit("after {timeout:?}"));
    assert!(!shows_a_close_unit("within 5 s, {address:?}"));
}

#[test]
fn test_names_are_short() {
    let (mut lengths, mut problems) = (Vec::new(), Vec::new());
    for (path, text) in files().iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[") {
                is_test |= ["#[test]", "#[tokio::test"].iter().any(|test| line.starts_with(test));
            } else if let Some((_, rest)) = line.split_once("fn ") {
                let name = rest.split('(').next().unwrap();
                lengths.extend(is_test.then_some(name.len()));
                if is_test && name.len() > TEST_NAME_MAX {
                    problems.push(format!("{path}: {name}: {} characters", name.len()));
                }
                is_test = false;
            }
        }
    }
    assert_none(&problems);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= TEST_NAME_MEDIAN_MAX, "the median is {median} characters");
}

#[test]
fn comments_end_at_column_100() {
    let mut problems = Vec::new();
    for (path, text) in files().iter().filter(|(path, _)| !path.ends_with(".md")) {
        for (number, line) in (1..).zip(text.lines()) {
            let comment = line.trim_start().starts_with(comment_start(path));
            let breakable = !line.contains("://") && !line.contains("//! |");
            let columns = line.chars().count();
            if comment && breakable && columns > COLUMNS_MAX {
                problems.push(format!("{path}:{number}: {columns} columns"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn sources_say_first_what_they_are() {
    let opens = |text: &str| text.starts_with("//!");
    let sources = files().into_iter().filter(|(path, _)| path.ends_with(".rs"));
    let silent = sources.filter(|(path, text)| !path.ends_with("tests.rs") && !opens(text));
    assert_none(&silent.map(|(path, _)| path).collect::<Vec<_>>());
}

/// A module is `name.rs` beside its folder. Cargo would run `tests/support.rs` as a test of its own.
#[test]
fn modules_have_one_style() {
    let is_test_support = |path: &str| path.split('/').rev().nth(2) == Some("tests");
    let others = files().into_iter().map(|(path, _)| path);
    let others = others.filter(|path| path.ends_with("/mod.rs") && !is_test_support(path));
    assert_none(&others.collect::<Vec<_>>());
}

#[test]
fn words_end_at_capitals_and_underscores() {
    assert_eq!(words("is_told: LockTable, X2"), " is told lock table x ");
    assert_eq!(found("is told, anew", "// Nothing is\n/// told."), ["is told"]);
    assert_eq!(found("stir", "fn stir_all()"), ["stir"]);
    assert!(found("told, mend", "retold, recommend").is_empty());
    assert_eq!(names(r#"let the_name = "a string"; // comment"#), "let the_name =  ; ");
}
