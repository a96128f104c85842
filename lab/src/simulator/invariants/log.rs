//! Logs match.

use std::collections::{BTreeMap, VecDeque};

use gaggle_strategies::member::{GroupView, LogEntry};

use crate::simulator::{digest::digest, machine::Member};

/// Log matching (Raft §5.3): two entries with the same index and term are the same entry, and so
/// are all before them.
#[derive(Debug, Default)]
pub(super) struct LogMatching {
    /// Group, index, term: the digest of the entry, and the term of the one before it.
    entries: BTreeMap<(u128, u64, u64), (u64, u64)>,
}

/// A member's log as it was after its last turn.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    group: u128,
    me: u64,
    start: (u64, u64),
    /// Term and digest of each entry after the start.
    entries: VecDeque<(u64, u64)>,
}

/// The change of a member's log in a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogChange {
    pub(super) overwritten: bool,
    pub(super) compacted: bool,
    pub(super) installed: bool,
}

impl Mirror {
    pub(super) fn at(&self, index: u64) -> Option<(u64, u64)> {
        let place = index.checked_sub(self.start.0 + 1)?;
        self.entries.get(usize::try_from(place).ok()?).copied()
    }

    pub(super) const fn start(&self) -> (u64, u64) {
        self.start
    }

    /// The term of the entry at `index`, also of the one before the first that is kept.
    pub(super) fn term(&self, index: u64) -> Option<u64> {
        if index == self.start.0 {
            Some(self.start.1)
        } else {
            self.at(index).map(|(term, _)| term)
        }
    }

    fn last(&self) -> u64 {
        self.start.0 + self.entries.len() as u64
    }
}

impl LogMatching {
    /// Brings the mirror up to the member's log, and checks every entry that is new to it.
    pub(super) fn check(
        &mut self,
        mirror: &mut Mirror,
        machine: &Member,
        view: &GroupView,
    ) -> LogChange {
        let mut change = LogChange::default();
        if (mirror.group, mirror.me) != (view.id, view.me) {
            *mirror = Mirror { group: view.id, me: view.me, ..Mirror::default() };
            mirror.start = view.start;
        }
        if view.start.0 > mirror.start.0 {
            let kept = mirror.at(view.start.0).is_some_and(|(term, _)| term == view.start.1);
            // The entries after an installed snapshot are dropped.
            change.installed = !kept || view.last.0 < mirror.last();
            change.compacted = !change.installed;
            let dropped =
                if kept { view.start.0 - mirror.start.0 } else { mirror.entries.len() as u64 };
            mirror.entries.drain(..usize::try_from(dropped).expect("a log fits the memory"));
            mirror.start = view.start;
        }
        assert!(view.start.0 >= mirror.start.0, "a log's beginning never goes back");
        let known = |mirror: &Mirror, index| {
            index <= mirror.start.0
                || mirror.at(index).map(|(term, _)| term) == term_at(machine, view, index)
        };
        if mirror.last() == view.last.0 && known(mirror, view.last.0) {
            return change;
        }
        let mut same = mirror.last().min(view.last.0);
        while !known(mirror, same) {
            same -= 1;
        }
        change.overwritten = mirror.last() > same && !change.installed;
        mirror.entries.truncate(usize::try_from(same - mirror.start.0).expect("it fits"));
        for index in same + 1..=view.last.0 {
            let entry = machine.entry(index).expect("what is in the log is there");
            let (term, digest) = (entry.term(), digest_of(&entry));
            let before = mirror.term(index - 1).expect("a log has no gap");
            let first = *self.entries.entry((view.id, index, term)).or_insert((digest, before));
            assert!(
                first == (digest, before),
                "log matching: two entries of index {index} and term {term} differ"
            );
            mirror.entries.push_back((term, digest));
        }
        change
    }
}

/// The term of the entry at `index`, also of the one before the first.
fn term_at(machine: &Member, view: &GroupView, index: u64) -> Option<u64> {
    if index == view.start.0 {
        return Some(view.start.1);
    }
    machine.entry(index).map(|entry| entry.term())
}

fn digest_of(entry: &LogEntry<'_>) -> u64 {
    let [data, context] = entry.bytes();
    (digest(data) ^ digest(context)).rotate_left(1) ^ u64::from(entry.is_change())
}
