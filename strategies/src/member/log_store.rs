//! The log of a member, in memory, as the engine reads it.

use std::{cell::Cell, collections::VecDeque};

use raft::{
    GetEntriesContext, RaftState, Storage, StorageError,
    eraftpb::{ConfState, Entry, HardState, Snapshot},
    util::limit_size,
};

/// The volatile log of one incarnation of a member. The log lives and dies with its Raft id, so
/// nothing that was promised under that id can be forgotten and promised again.
///
/// Snapshots are built when a follower needs one, not at every compaction: the engine asks,
/// [`snapshot_wanted`](Self::snapshot_wanted) says so, the core provides.
#[derive(Debug, Default)]
pub(super) struct VolatileLog {
    hard_state: HardState,
    conf_state: ConfState,
    /// The index and term before the first entry kept.
    start: (u64, u64),
    entries: VecDeque<Entry>,
    /// The bytes of data and context in all entries.
    bytes: usize,
    snapshot: Option<Snapshot>,
    wanted: Cell<bool>,
}

impl VolatileLog {
    /// The log of a founding member: as if a snapshot at index 1, term 1 had set the voters.
    pub(super) fn founding(voters: Vec<u64>) -> Self {
        let mut log = Self::joining();
        log.start = (1, 1);
        log.hard_state.term = 1;
        log.hard_state.commit = 1;
        log.conf_state.voters = voters;
        log
    }

    /// The log of a member that joins: empty, with no configuration until the first snapshot.
    pub(super) fn joining() -> Self {
        Self::default()
    }

    pub(super) fn conf_state(&self) -> &ConfState {
        &self.conf_state
    }

    /// Sets the configuration, and drops a snapshot of the former one. A follower that the snapshot
    /// does not name would refuse it, and be sent it again indefinitely.
    pub(super) fn set_conf_state(&mut self, conf_state: ConfState) {
        self.conf_state = conf_state;
        self.snapshot = None;
    }

    pub(super) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    pub(super) fn set_commit(&mut self, commit: u64) {
        self.hard_state.commit = commit;
    }

    /// How many entries are kept.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The bytes that they carry.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends, replacing the suffix that the new entries contradict (Raft §5.3).
    pub(super) fn append(&mut self, entries: Vec<Entry>) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.start.0, "the log is compacted only below what is applied");
        let keep = first.index - self.start.0 - 1;
        assert!(keep <= self.entries.len() as u64, "the engine leaves no gap in the log");
        let keep = usize::try_from(keep).expect("a log fits the memory");
        self.bytes -= self.entries.drain(keep..).map(|entry| payload_bytes(&entry)).sum::<usize>();
        self.bytes += entries.iter().map(payload_bytes).sum::<usize>();
        self.entries.extend(entries);
    }

    /// Replaces everything by a snapshot that the leader sent.
    pub(super) fn install(&mut self, snapshot: &Snapshot) {
        let metadata = snapshot.get_metadata();
        self.start = (metadata.index, metadata.term);
        self.conf_state = metadata.get_conf_state().clone();
        self.hard_state.term = self.hard_state.term.max(metadata.term);
        self.hard_state.commit = metadata.index;
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = None;
    }

    /// Forgets entries up to and including `index`, and a snapshot that no longer meets the log.
    pub(super) fn compact(&mut self, index: u64) {
        while let Some(entry) = self.entries.front()
            && entry.index <= index
        {
            self.start = (entry.index, entry.term);
            self.bytes -= payload_bytes(entry);
            self.entries.pop_front();
        }
        if self.snapshot.as_ref().is_some_and(|s| s.get_metadata().index < self.start.0) {
            self.snapshot = None;
        }
    }

    /// Whether the engine asked for a snapshot that is not there; reading resets it.
    pub(super) fn snapshot_wanted(&self) -> bool {
        self.wanted.replace(false)
    }

    pub(super) fn provide_snapshot(&mut self, snapshot: Snapshot) {
        self.snapshot = Some(snapshot);
    }

    pub(super) fn at(&self, index: u64) -> Option<&Entry> {
        let position = index.checked_sub(self.start.0 + 1)?;
        self.entries.get(usize::try_from(position).ok()?)
    }
}

fn payload_bytes(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len()
}

impl Storage for VolatileLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf_state.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        let mut found: Vec<Entry> =
            (low..high).map_while(|index| self.at(index).cloned()).collect();
        if found.len() as u64 != high - low {
            return Err(StorageError::Unavailable.into());
        }
        limit_size(&mut found, max_size.into());
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.start.0 {
            return Ok(self.start.1);
        }
        if index < self.start.0 {
            return Err(StorageError::Compacted.into());
        }
        self.at(index).map(|entry| entry.term).ok_or_else(|| StorageError::Unavailable.into())
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.start.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.start.0 + self.entries.len() as u64)
    }

    /// No member calls `request_snapshot`, so the index is always 0.
    fn snapshot(&self, _request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        self.wanted.set(self.snapshot.is_none());
        self.snapshot.clone().ok_or_else(|| StorageError::SnapshotTemporarilyUnavailable.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, ..Entry::default() }
    }

    #[test]
    fn contradicted_suffix_is_replaced() {
        let mut log = VolatileLog::founding(vec![1]);
        log.append(vec![entry(2, 1), entry(3, 1), entry(4, 1)]);
        log.append(vec![entry(3, 2)]);
        assert_eq!(log.last_index().unwrap(), 3);
        assert_eq!(log.term(3).unwrap(), 2);
    }

    #[test]
    fn compaction_keeps_the_previous_term() {
        let mut log = VolatileLog::founding(vec![1]);
        log.append((2..10).map(|i| entry(i, 3)).collect());
        log.compact(6);
        assert_eq!((log.first_index().unwrap(), log.len()), (7, 3));
        assert_eq!(log.term(6).unwrap(), 3);
        assert_eq!(log.term(5), Err(StorageError::Compacted.into()));
        assert_eq!(log.term(10), Err(StorageError::Unavailable.into()));
    }

    #[test]
    fn bytes_are_those_of_the_kept_entries() {
        let carrying = |index: u64, bytes: usize| Entry {
            data: vec![7; bytes].into(),
            context: vec![7].into(),
            ..entry(index, 3)
        };
        let mut log = VolatileLog::founding(vec![1]);
        log.append((2..6).map(|index| carrying(index, 10)).collect());
        assert_eq!(log.bytes(), 44);
        log.append(vec![carrying(4, 100)]);
        assert_eq!(log.bytes(), 2 * 11 + 101, "a suffix was replaced");
        log.compact(2);
        assert_eq!(log.bytes(), 11 + 101);
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = 20;
        log.install(&snapshot);
        assert_eq!(log.bytes(), 0);
        log.append(vec![carrying(21, 5)]);
        assert_eq!(log.bytes(), 6);
    }

    #[test]
    fn missing_snapshot_is_wanted_once() {
        let log = VolatileLog::founding(vec![1]);
        assert!(log.snapshot(0, 2).is_err());
        assert!(log.snapshot_wanted());
        assert!(!log.snapshot_wanted());
    }

    #[test]
    fn snapshot_with_a_gap_is_dropped() {
        let mut log = VolatileLog::founding(vec![1]);
        let mut snapshot = Snapshot::default();
        snapshot.mut_metadata().index = 4;
        log.provide_snapshot(snapshot);
        log.append((2..10).map(|i| entry(i, 3)).collect());
        log.compact(4);
        assert!(log.snapshot(0, 2).is_ok());
        log.compact(5);
        assert!(log.snapshot(0, 2).is_err());
    }

    #[test]
    fn initial_state_has_the_commit_index() {
        let mut log = VolatileLog::founding(vec![1]);
        log.set_commit(7);
        assert_eq!(log.initial_state().unwrap().hard_state.commit, 7);
    }

    #[test]
    fn entries_are_read_within_the_log_only() {
        let mut log = VolatileLog::founding(vec![1]);
        log.append((2..10).map(|i| entry(i, 3)).collect());
        log.compact(4);
        let read = |low, high| {
            let entries = log.entries(low, high, None, GetEntriesContext::empty(false));
            entries.map(|entries| entries.iter().map(|entry| entry.index).collect::<Vec<_>>())
        };
        assert_eq!(read(5, 8).unwrap(), [5, 6, 7]);
        assert_eq!(read(9, 10).unwrap(), [9]);
        assert_eq!(read(7, 7).unwrap(), [0_u64; 0]);
        assert_eq!(read(4, 6), Err(StorageError::Compacted.into()));
        assert_eq!(read(8, 11), Err(StorageError::Unavailable.into()), "no part of the range");
    }

    #[test]
    fn compacted_log_replaces_its_suffix() {
        let mut log = VolatileLog::founding(vec![1]);
        log.append((2..10).map(|i| entry(i, 3)).collect());
        log.compact(4);
        log.append(vec![entry(7, 4)]);
        assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (5, 7));
        assert_eq!((log.term(6).unwrap(), log.term(7).unwrap()), (3, 4));
    }

    #[test]
    fn snapshot_replaces_all_and_keeps_term() {
        for (own, expected) in [(9, 9), (1, 3)] {
            let mut log = VolatileLog::founding(vec![1]);
            log.append((2..10).map(|i| entry(i, 1)).collect());
            log.set_hard_state(HardState { term: own, ..HardState::default() });
            let mut snapshot = Snapshot::default();
            let metadata = snapshot.mut_metadata();
            (metadata.index, metadata.term) = (20, 3);
            metadata.mut_conf_state().voters = vec![4, 5];
            log.install(&snapshot);
            let state = log.initial_state().unwrap();
            assert_eq!((state.hard_state.term, state.hard_state.commit), (expected, 20));
            assert_eq!(log.conf_state().voters, [4, 5]);
            assert_eq!((log.first_index().unwrap(), log.len()), (21, 0));
            assert_eq!(log.term(20).unwrap(), 3);
        }
    }
}
