//! The state of a group between two turns.

use raft::{Storage, eraftpb::Entry};

use super::{
    Group, MemberChange,
    apply::{Payload, read},
};
use crate::{
    lock_table::{ClusterTime, Command},
    member::entry::CommandEntry,
};

/// A member's group between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The group's random id.
    pub id: u128,
    /// This member's incarnation: its Raft id.
    pub me: u64,
    /// The term.
    pub term: u64,
    /// Whether this member leads.
    pub leads: bool,
    /// Whether this member votes.
    pub votes: bool,
    /// The greatest committed index.
    pub commit: u64,
    /// The greatest applied index.
    pub applied: u64,
    /// The index and term before the first entry kept.
    pub start: (u64, u64),
    /// The index and term of the last entry.
    pub last: (u64, u64),
}

/// An entry of a member's log.
#[derive(Clone, Copy, Debug)]
pub struct LogEntry<'a>(&'a Entry);

impl LogEntry<'_> {
    /// The term in which it was appended.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// Whether it changes the members.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(self.payload(), Payload::Change(_))
    }

    /// Whether it puts one incarnation in another's place.
    #[must_use]
    pub fn is_replacement(&self) -> bool {
        matches!(self.payload(), Payload::Change(Some(MemberChange::Replace { .. })))
    }

    /// The commands to the lock table, and their stamp; `None` for the engine's own entries.
    #[must_use]
    pub fn commands(&self) -> Option<(ClusterTime, Vec<Command>)> {
        match self.payload() {
            Payload::Commands(CommandEntry { stamp, commands }) => Some((stamp, commands)),
            _ => None,
        }
    }

    /// The bytes of the entry: the data and the context.
    #[must_use]
    pub fn bytes(&self) -> [&[u8]; 2] {
        [&self.0.data, &self.0.context]
    }

    fn payload(&self) -> Payload {
        read(self.0).expect("an entry of this build decodes")
    }
}

impl Group {
    /// The state of the group.
    #[must_use]
    pub fn view(&self) -> GroupView {
        let (store, raft) = (self.raw.store(), &self.raw.raft);
        let before = store.first_index().map_or(0, |first| first - 1);
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
            last: (raft.raft_log.last_index(), raft.raft_log.last_term()),
        }
    }

    /// The entry at `index`, unless it was compacted or does not exist.
    #[must_use]
    pub fn entry(&self, index: u64) -> Option<LogEntry<'_>> {
        self.raw.store().at(index).map(LogEntry)
    }
}
