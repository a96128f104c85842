//! The view of a group that a simulation has between turns.

use raft::Storage;

use super::{
    Group, LockTable, MemberChange,
    apply::{Payload, read},
};
use crate::{
    lock_table::{ClusterTime, Command},
    member::entry::Stamped,
};

/// A member's group between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupView {
    pub(crate) id: u128,
    /// This member's incarnation: its Raft id.
    pub(crate) me: u64,
    pub(crate) term: u64,
    pub(crate) leads: bool,
    pub(crate) votes: bool,
    pub(crate) commit: u64,
    pub(crate) applied: u64,
    /// The index and term before the first entry kept.
    pub(crate) start: (u64, u64),
    /// The index and term of the last entry.
    pub(crate) last: (u64, u64),
}

/// One entry of a member's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryView {
    pub(crate) term: u64,
    /// Whether it puts one incarnation in another's place.
    pub(crate) replaces: bool,
    /// Its commands to the lock table; `None` for the engine's own entries.
    pub(crate) commands: Option<(ClusterTime, Vec<Command>)>,
}

impl Group {
    pub(in crate::member) fn view(&self) -> GroupView {
        let (store, raft) = (self.raw.store(), &self.raw.raft);
        let before = store.first_index().map_or(0, |first| first - 1);
        let last = store.last_index().unwrap_or(before);
        let term = |index| store.term(index).unwrap_or(0);
        GroupView {
            id: self.id,
            me: self.me,
            term: raft.term,
            leads: self.is_leader(),
            votes: self.votes(),
            commit: raft.raft_log.committed,
            applied: raft.raft_log.applied,
            start: (before, term(before)),
            last: (last, term(last)),
        }
    }

    pub(in crate::member) fn entry(&self, index: u64) -> Option<EntryView> {
        let found = self.raw.store().at(index)?;
        let payload = read(found).expect("an entry of this build decodes");
        Some(EntryView {
            term: found.term,
            replaces: matches!(payload, Payload::Change(Some(MemberChange::Replace { .. }))),
            commands: match payload {
                Payload::Commands(Stamped { stamp, commands }) => Some((stamp, commands)),
                _ => None,
            },
        })
    }

    pub(in crate::member) fn term_at(&self, index: u64) -> Option<u64> {
        self.raw.store().term(index).ok()
    }

    pub(in crate::member) fn entry_digest(&self, index: u64) -> Option<(u64, u64)> {
        let found = self.raw.store().at(index)?;
        let kind = found.entry_type as u64;
        let digest = crate::member::digest::digest(&found.data)
            ^ crate::member::digest::digest(&found.context);
        Some((found.term, digest.rotate_left(1) ^ kind))
    }

    /// Replaces the table by the restored snapshot of itself. Returns whether rows were rebuilt.
    pub(in crate::member) fn restore_table(&mut self) -> bool {
        let before = self.table.keys().next().cloned();
        let bytes = self.table.snapshot();
        self.table = LockTable::restore(&bytes).expect("a table's own snapshot restores");
        let is_rebuilt = |key| {
            self.table.keys().any(|other| other == key && !std::sync::Arc::ptr_eq(other, key))
        };
        before.as_ref().is_some_and(is_rebuilt)
    }
}
