//! An abstract Raft: terms, votes, logs. A message and its answer are one atomic step; that they
//! can be lost or late is that the step may never come, or come later.

use std::hash::{Hash, Hasher};

/// The members of the group. With three, a quorum is a leader and one follower.
pub(crate) const NODES: usize = 3;
/// Entries that a log can hold; a configuration may allow fewer.
const CAPACITY: usize = 10;

/// What an entry asks of the lock table, with the client it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cmd {
    #[default]
    Noop,
    /// `seen`: the newest cluster time, in ticks, that the client knew when it sent.
    Lock {
        client: u8,
        seen: u8,
    },
    Unlock(u8),
    Extend(u8),
    Gone(u8),
}

/// A log entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) term: u8,
    /// Cluster time in ticks.
    pub(crate) stamp: u8,
    pub(crate) cmd: Cmd,
}

impl Cmd {
    /// The client it is for.
    pub(crate) fn client(self) -> Option<u8> {
        match self {
            Self::Noop => None,
            Self::Lock { client, .. }
            | Self::Unlock(client)
            | Self::Extend(client)
            | Self::Gone(client) => Some(client),
        }
    }

    fn client_mut(&mut self) -> Option<&mut u8> {
        match self {
            Self::Noop => None,
            Self::Lock { client, .. }
            | Self::Unlock(client)
            | Self::Extend(client)
            | Self::Gone(client) => Some(client),
        }
    }
}

impl Entry {
    fn code(self) -> u32 {
        let (kind, client, seen) = match self.cmd {
            Cmd::Noop => (0, 0, 0),
            Cmd::Lock { client, seen } => (1, client, seen),
            Cmd::Unlock(client) => (2, client, 0),
            Cmd::Extend(client) => (3, client, 0),
            Cmd::Gone(client) => (4, client, 0),
        };
        u32::from_be_bytes([self.term, self.stamp, kind << 4 | client, seen])
    }
}

/// A log without heap memory: states are cloned by the million.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Log {
    len: u8,
    /// Those beyond the length are the default.
    entries: [Entry; CAPACITY],
}

impl Log {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..usize::from(self.len)]
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries[self.len()] = entry;
        self.len += 1;
    }

    pub(crate) fn prefix(&self, len: usize) -> Self {
        let mut prefix = Self::default();
        prefix.entries[..len].copy_from_slice(&self.entries[..len]);
        prefix.len = u8::try_from(len).unwrap();
        prefix
    }

    pub(crate) fn starts_with(&self, prefix: &Self) -> bool {
        self.entries().starts_with(prefix.entries())
    }

    /// How many entries both have in common from the beginning.
    pub(crate) fn common(&self, other: &Self) -> usize {
        self.entries()
            .iter()
            .zip(other.entries())
            .take_while(|(ours, theirs)| ours == theirs)
            .count()
    }

    /// Gives each client the name that stands at its present one. Returns whether that changed
    /// anything.
    pub(crate) fn rename(&mut self, names: [u8; 3]) -> bool {
        let before = *self;
        let clients = self.entries.iter_mut().filter_map(|entry| entry.cmd.client_mut());
        clients.for_each(|client| *client = names[usize::from(*client)]);
        *self != before
    }

    pub(crate) fn last(&self) -> Entry {
        self.entries().last().copied().unwrap_or_default()
    }

    /// Raft §5.4.1: the later last term wins, then the longer log.
    fn up_to_date(&self) -> (u8, u8) {
        (self.last().term, self.len)
    }
}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.len);
        for entry in self.entries() {
            state.write_u32(entry.code());
        }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Entry { term, stamp, cmd } in self.entries() {
            write!(f, "[{term}@{stamp} {cmd:?}]")?;
        }
        Ok(())
    }
}

/// One member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) term: u8,
    /// Whether it voted in its term. A vote is counted at once, so its candidate is not kept.
    pub(crate) voted: bool,
    pub(crate) leads: bool,
    /// A leader's cluster time, in ticks: it continues from the last stamp in the leader's log.
    /// Zero for others, so that equivalent states are equal.
    pub(crate) clock: u8,
    pub(crate) log: Log,
}

impl Node {
    /// Whether it gives its vote in `term` to one whose log is `log`.
    pub(crate) fn would_vote(&self, term: u8, log: &Log, forgets: bool, compares: bool) -> bool {
        let free = self.term < term || (self.term == term && (!self.voted || forgets));
        free && (!compares || log.up_to_date() >= self.log.up_to_date())
    }

    /// It gives the vote.
    pub(crate) fn vote(&mut self, term: u8) {
        self.follow(term);
        self.voted = true;
    }

    /// It hears of a term, its own or a later one, in which it does not lead.
    pub(crate) fn follow(&mut self, term: u8) {
        if self.term < term {
            self.voted = false;
        }
        self.term = term;
        self.leads = false;
        self.clock = 0;
    }

    /// It wins `term`, and appends a NOOP of it: what earlier terms left is committed with that.
    pub(crate) fn win(&mut self, term: u8) {
        self.vote(term);
        self.leads = true;
        self.clock = self.log.last().stamp;
    }

    /// Takes over one entry more of the leader's log, dropping what contradicts it. Returns how
    /// many entries it now has in common with the leader, and whether it dropped any.
    pub(crate) fn take_next(&mut self, leader: &Log) -> (usize, bool) {
        let common = self.log.common(leader);
        let Some(next) = leader.entries().get(common) else { return (common, false) };
        let dropped = self.log.len() > common;
        self.log = self.log.prefix(common);
        self.log.push(*next);
        (common + 1, dropped)
    }
}
