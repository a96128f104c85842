//! The survivors that were judged: `survivors.md` names each with a verdict and its reason.
//!
//! ```text
//! ## `member/node.rs`
//!
//! - `replace < with <= in Node::lead` – cost – a millisecond later
//! - `replace && with || in Node::flush` 1, 3 of 4 – equivalent – …
//! ```
//!
//! Lines move, so a mutant is known by its file, by what it does, and, where several in one file do the
//! same, by its place among them. If there are more or fewer of them than when it was judged, the
//! judgement names none: it must be judged anew.

use std::collections::{BTreeMap, BTreeSet};

use crate::{mutant::Mutant, unplaced};

/// The sources, to which the headings are relative.
const SOURCES: &str = "strategies/src/";
/// What a judgement may come to.
const VERDICTS: [&str; 4] = ["equivalent", "guarded", "cost", "elsewhere"];

/// A mutant without its line: file, what it does, its place among those that do the same, and how many
/// those are.
type Key = (String, String, usize, usize);

/// What the list says of what was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Survivors that are not in the list.
    pub(crate) unjudged: Vec<String>,
    /// Lines of the list that name no mutant.
    pub(crate) stale: Vec<String>,
}

/// Compares the survivors, by their whole names, with the `list` of those that were judged.
pub(crate) fn judge(mutants: &[Mutant], missed: &BTreeSet<&str>, list: &str) -> Judged {
    let keys = keys(mutants);
    let files: BTreeSet<&str> = keys.values().map(|key| key.0.as_str()).collect();
    let existing: BTreeSet<&Key> = keys.values().collect();
    let (mut listed, mut judged) = (BTreeSet::new(), Judged::default());
    for (line, found) in read(list) {
        // Another slice may have its file.
        if found.first().is_some_and(|key| !files.contains(key.0.as_str())) {
            continue;
        }
        if found.is_empty() || !found.iter().all(|key| existing.contains(key)) {
            judged.stale.push(line.to_owned());
        }
        listed.extend(found);
    }
    let survivors =
        missed.iter().filter(|name| keys.get(**name).is_none_or(|key| !listed.contains(key)));
    judged.unjudged = survivors.map(|name| (*name).to_owned()).collect();
    judged
}

/// The keys of all mutants by their names.
fn keys(mutants: &[Mutant]) -> BTreeMap<&str, Key> {
    let mut alike = BTreeMap::<(&str, &str), Vec<&Mutant>>::new();
    for mutant in mutants {
        alike.entry(unplaced(&mutant.name)).or_default().push(mutant);
    }
    let mut keys = BTreeMap::new();
    for ((file, what), mut group) in alike {
        group.sort_by_key(|mutant| mutant.place());
        let count = group.len();
        let file = file.strip_prefix(SOURCES).unwrap_or(file);
        for (mutant, number) in group.into_iter().zip(1..) {
            keys.insert(&*mutant.name, (file.to_owned(), what.to_owned(), number, count));
        }
    }
    keys
}

/// Each line of the list that judges, with the mutants that it names; none if it cannot be read.
fn read(list: &str) -> Vec<(&str, Vec<Key>)> {
    let (mut file, mut all) = (None, Vec::new());
    for line in list.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            file = heading.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
        } else if let (Some(file), Some(entry)) = (file, line.strip_prefix("- `")) {
            all.push((line, named(file, entry).unwrap_or_default()));
        }
    }
    all
}

/// The mutants that a line names: ``what` 1, 3 of 4 – verdict – reason`.
fn named(file: &str, entry: &str) -> Option<Vec<Key>> {
    let (what, rest) = entry.split_once('`')?;
    let (which, judgement) = rest.split_once(" – ")?;
    let (verdict, reason) = judgement.split_once(" – ")?;
    if !VERDICTS.contains(&verdict) || reason.is_empty() {
        return None;
    }
    let (numbers, count) = match which.trim() {
        "" => (vec![1], 1),
        which => {
            let (numbers, count) = which.split_once(" of ")?;
            let numbers = numbers.split(", ").map(|number| number.parse().ok());
            (numbers.collect::<Option<Vec<_>>>()?, count.parse().ok()?)
        }
    };
    let key = |number| (file.to_owned(), what.to_owned(), number, count);
    Some(numbers.into_iter().map(key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants at these lines of `node.rs` that do the same.
    fn alike(lines: &[usize]) -> Vec<Mutant> {
        let mutant = |line: &usize| {
            let file = "strategies/src/member/node.rs";
            let name = format!("{file}:{line}:1: replace && with || in Node::flush");
            let place = format!(r#"{{"line": {line}, "column": 1}}"#);
            let json = format!(
                r#"{{"name": "{name}", "file": "{file}", "genre": "BinaryOperator",
                "replacement": "||", "span": {{"start": {place}, "end": {place}}}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        lines.iter().map(mutant).collect()
    }

    fn judged(mutants: &[Mutant], missed: &[usize], list: &str) -> Judged {
        let name = |place: &usize| &*mutants[*place].name;
        let list = format!("## `member/node.rs`\n\n- `replace && with || in Node::flush`{list}\n");
        judge(mutants, &missed.iter().map(name).collect(), &list)
    }

    #[test]
    fn a_survivor_is_known_by_what_it_does_wherever_it_stands() {
        for line in [3, 99] {
            let one = alike(&[line]);
            assert_eq!(judged(&one, &[0], " – equivalent – why"), Judged::default());
        }
    }

    #[test]
    fn of_several_that_do_the_same_only_those_named_are_judged() {
        let three = alike(&[30, 9, 20]);
        assert_eq!(judged(&three, &[1, 0], " 1, 3 of 3 – cost – why"), Judged::default());
        let found = judged(&three, &[2], " 1, 3 of 3 – cost – why");
        assert_eq!(found.unjudged, [three[2].name.as_str()]);
    }

    #[test]
    fn with_one_more_or_less_the_judgement_is_void() {
        let found = judged(&alike(&[1, 2]), &[0], " 1 of 3 – cost – why");
        assert_eq!((found.unjudged.len(), found.stale.len()), (1, 1));
    }

    #[test]
    fn a_line_without_verdict_or_reason_judges_nothing() {
        for line in [" – why", " – fine – why", " – cost – ", " 0 – cost – why"] {
            let found = judged(&alike(&[1]), &[0], line);
            assert_eq!((found.unjudged.len(), found.stale.len()), (1, 1), "{line}");
        }
    }

    #[test]
    fn what_is_judged_of_another_slice_is_left_alone() {
        let list = "## `deadline.rs`\n\n- `replace a with b` – cost – why\n";
        assert_eq!(judge(&alike(&[1]), &BTreeSet::new(), list), Judged::default());
    }
}
