//! Members agree on committed entries.

use gaggle_strategies::{
    lock_table::{ClusterTime, Command},
    member::GroupView,
};

use super::log::Mirror;
use crate::simulator::machine::Member;

/// The index of a group's first entry: founders begin as after a snapshot at index 1.
const FIRST: u64 = 2;

/// Committed entries never change (state machine safety, Raft §5.4.3), and every leader of a later
/// term has them (leader completeness, Raft §5.4).
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Term and digest of each committed entry.
    entries: Vec<(u64, u64)>,
    /// The term in which each was first seen committed.
    seen_in: Vec<u64>,
}

/// An entry that was seen committed for the first time.
pub(super) struct NewlyCommitted {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) replaces: bool,
    pub(super) commands: Option<(ClusterTime, Vec<Command>)>,
}

impl NewlyCommitted {
    /// The commands to the lock table, in order.
    pub(super) fn stamped(&self) -> impl Iterator<Item = (ClusterTime, &Command)> {
        let commands = self.commands.iter();
        commands.flat_map(|(stamp, commands)| commands.iter().map(|command| (*stamp, command)))
    }
}

impl Committed {
    /// The index of the last entry that any member has committed.
    pub(super) fn last(&self) -> u64 {
        FIRST + self.entries.len() as u64 - 1
    }

    fn at(&self, index: u64) -> Option<(u64, u64)> {
        let place = index.checked_sub(FIRST)?;
        self.entries.get(usize::try_from(place).ok()?).copied()
    }

    /// Compares this member's entries committed since `checked` with those of the others, and
    /// returns entries that no other member had. In a turn that begins in the same term
    /// (`same_term`), the last of them is of that term: earlier entries are committed with one of
    /// the leader's own, never by counting (Raft §5.4.2).
    pub(super) fn check(
        &mut self,
        checked: u64,
        mirror: &Mirror,
        machine: &Member,
        view: &GroupView,
        same_term: bool,
    ) -> Vec<NewlyCommitted> {
        let mut new = Vec::new();
        let view_term = view.term;
        let (start, term) = mirror.start();
        if start > checked && start >= FIRST {
            let (known, _) = self.at(start).expect("a snapshot holds only what was committed");
            assert_eq!(
                known, term,
                "committed entries: a snapshot ends at {start} in another term"
            );
        }
        for index in checked.max(start).max(FIRST - 1) + 1..=view.commit {
            let entry = mirror.at(index).expect("what is committed is in the log");
            match self.at(index) {
                Some(known) => assert_eq!(
                    known, entry,
                    "committed entries: index {index} was committed with another entry"
                ),
                None => {
                    assert_eq!(index, self.last() + 1, "entries are committed in order");
                    self.entries.push(entry);
                    self.seen_in.push(view_term);
                    let entry = machine.entry(index).expect("what was mirrored is there");
                    let (term, replaces) = (entry.term(), entry.is_replacement());
                    let commands = entry.commands();
                    new.push(NewlyCommitted { index, term, replaces, commands });
                }
            }
        }
        if let Some(last) = new.last().filter(|_| same_term) {
            assert_eq!(
                last.term, view_term,
                "commit by counting: index {} of an earlier term is the last committed",
                last.index
            );
        }
        new
    }

    /// A leader of a new term has every entry that was committed in terms before.
    pub(super) fn check_leader(&self, mirror: &Mirror, view: &GroupView) {
        let before = self.seen_in.iter().rposition(|term| *term < view.term);
        let Some(place) = before else { return };
        let (index, (term, _)) = (FIRST + place as u64, self.entries[place]);
        let has = mirror.start().0 >= index || mirror.term(index) == Some(term);
        assert!(
            has,
            "leader completeness: the leader of term {} lacks index {index} of term {term}",
            view.term
        );
    }
}
