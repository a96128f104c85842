//! A member of a group: the engine, its volatile log, the lock table it feeds, the roster.
//!
//! Everything is driven: messages, ticks and commands in, messages and effects out. Time and
//! randomness are arguments.

mod append;
mod apply;
mod commits;
mod followers;
mod leader_clock;
mod validate;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use gaggle_channels::NodeName;
use raft::{
    ProgressState, RawNode, StateRole,
    eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2},
};

pub use self::view::{GroupView, LogEntry};
pub(super) use self::{apply::Output, validate::Invalid};
use self::{apply::SnapshotContent, leader_clock::LeaderClock};
use super::{
    entry::MemberChange,
    log_store::VolatileLog,
    options::{HEARTBEAT_TICKS, Timing},
    wire::{RaftMessage, encode},
};
use crate::{
    clock::Instant,
    lock_table::{Command, LockTable, TableConfig},
    random::mix,
};

/// Entries proposed and not committed, in bytes: beyond it the leader drops proposals, and their
/// senders retransmit.
const UNCOMMITTED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A member of a group.
pub struct Group {
    id: u128,
    me: u64,
    raw: RawNode<VolatileLog>,
    table: LockTable,
    /// Whose name each incarnation runs under; replicated.
    roster: BTreeMap<u64, NodeName>,
    clock: Option<LeaderClock>,
    /// Submitted commands.
    commands: Vec<Command>,
    /// The other incarnations whose calls completed, or whose locks ended, by entries that this
    /// leader applied.
    commit_recipients: BTreeSet<u64>,
    /// The highest commit index sent to each peer.
    advertised_commit: BTreeMap<u64, u64>,
    /// The peers to which this leader has sent a snapshot, and which are still behind.
    catching_up: BTreeSet<u64>,
    /// The commit index at the ends of the last two short election timeouts as leader, older first.
    commit_marks: [Option<u64>; 2],
    timing: Timing,
    /// Since when each peer has not acknowledged a snapshot that was sent whole.
    snapshot_since: BTreeMap<u64, Instant>,
    /// The bytes of the snapshot that was checked last in this turn, and its content.
    checked: Option<(Bytes, SnapshotContent)>,
}

impl Group {
    /// Founds a group with the others named in `roster`.
    pub(super) fn found(
        id: u128,
        me: u64,
        roster: BTreeMap<u64, NodeName>,
        table: &TableConfig,
        timing: &Timing,
    ) -> Self {
        let log = VolatileLog::founding(roster.keys().copied().collect());
        let config = TableConfig { group: id, ..table.clone() };
        Self::new(id, me, log, LockTable::new(config), roster, timing)
    }

    /// Joins an existing group: knows nothing until its leader sends a snapshot.
    pub(super) fn join(id: u128, me: u64, timing: &Timing) -> Self {
        let table = LockTable::new(timing.table.clone());
        Self::new(id, me, VolatileLog::joining(), table, BTreeMap::new(), timing)
    }

    fn new(
        id: u128,
        me: u64,
        log: VolatileLog,
        table: LockTable,
        roster: BTreeMap<u64, NodeName>,
        timing: &Timing,
    ) -> Self {
        let applied = raft::Storage::last_index(&log).expect("a volatile log can be read");
        let config = raft::Config {
            id: me,
            election_tick: timing.election_ticks.0,
            min_election_tick: timing.election_ticks.0,
            max_election_tick: timing.election_ticks.1,
            heartbeat_tick: HEARTBEAT_TICKS as usize,
            applied,
            max_size_per_msg: timing.append_bytes_max,
            max_inflight_msgs: 256,
            check_quorum: true,
            pre_vote: true,
            // The leader advertises a commit to waiters alone (`advertise_commit`). The others
            // learn of it with the next entry or heartbeat: their replies would only load the
            // leader.
            skip_bcast_commit: true,
            max_uncommitted_size: UNCOMMITTED_BYTES_MAX,
            ..raft::Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).expect("the timing was validated");
        let mut group = Self {
            id,
            me,
            raw,
            table,
            roster,
            clock: None,
            commands: Vec::new(),
            commit_recipients: BTreeSet::new(),
            advertised_commit: BTreeMap::new(),
            catching_up: BTreeSet::new(),
            commit_marks: [None; 2],
            timing: timing.clone(),
            snapshot_since: BTreeMap::new(),
            checked: None,
        };
        group.pin_election_timeout();
        group
    }

    pub(super) fn id(&self) -> u128 {
        self.id
    }

    /// The lock table as of the entries that were applied.
    #[must_use]
    pub fn table(&self) -> &LockTable {
        &self.table
    }

    pub(super) fn log_len(&self) -> usize {
        self.raw.store().len()
    }

    pub(super) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// The incarnations that are in the configuration, with the names.
    pub(super) fn roster(&self) -> &BTreeMap<u64, NodeName> {
        &self.roster
    }

    /// The members, an incarnation that is being replaced before its replacement.
    pub(super) fn members_oldest_first(&self) -> Vec<(u64, &NodeName)> {
        let state = self.raw.store().conf_state();
        let mut members: Vec<_> = self.roster.iter().map(|(id, name)| (*id, name)).collect();
        members.sort_by_key(|(id, _)| (state.learners.contains(id), state.voters.contains(id)));
        members
    }

    /// The leader's incarnation, as far as this member knows.
    pub(super) fn leader(&self) -> Option<u64> {
        Some(self.raw.raft.leader_id).filter(|&id| id != raft::INVALID_ID)
    }

    pub(super) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether this leader has applied an entry of its present term: then its roster names each
    /// member that an earlier leader has admitted.
    pub(super) fn leads_applied(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        self.is_leader() && log.term(log.applied) == Ok(self.term())
    }

    /// Whether this member votes, by the configuration it has applied.
    pub(super) fn votes(&self) -> bool {
        self.halves().any(|voters| voters.contains(&self.me))
    }

    /// The voters: one set, or both halves of a joint configuration.
    pub(super) fn halves(&self) -> impl Iterator<Item = &[u64]> {
        let state = self.raw.store().conf_state();
        [state.voters.as_slice(), state.voters_outgoing.as_slice()]
            .into_iter()
            .filter(|voters| !voters.is_empty())
    }

    /// Whether the applied configuration is not joint. In a joint one the loss of a member of
    /// either half counts.
    pub(super) fn is_settled(&self) -> bool {
        self.halves().count() == 1
    }

    pub(super) fn is_voter(&self, id: u64) -> bool {
        self.halves().any(|voters| voters.contains(&id))
    }

    pub(super) fn learners(&self) -> &[u64] {
        &self.raw.store().conf_state().learners
    }

    /// Takes a message of a peer. The engine panics on broken invariants, so a message that breaks
    /// a rule is refused before the engine sees it.
    pub(super) fn step(&mut self, message: RaftMessage) -> Result<(), Invalid> {
        let mut message = message.into_message();
        validate::check(&self.raw.raft, self.me, &message)?;
        self.check_payloads(&message)?;
        self.commit_at_once(&mut message);
        // A message that the engine refuses (a response of a removed peer) needs no reply.
        let _ = self.raw.step(message);
        self.pin_election_timeout();
        Ok(())
    }

    /// Stands for election at once. The coordinator of a forming does so.
    pub(super) fn campaign(&mut self) {
        let _ = self.raw.campaign();
        self.pin_election_timeout();
    }

    /// Runs ticks of the engine.
    pub(super) fn tick(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.raw.tick();
            self.mark_commit();
        }
        self.pin_election_timeout();
    }

    /// How many of the engine's next ticks only count. A leader must act at its next heartbeat or
    /// check of its quorum, a follower when it may miss its leader. A member that sleeps longer
    /// cannot distinguish a silent leader from its own standstill.
    pub(super) fn quiet_ticks(&self) -> u32 {
        let raft = &self.raw.raft;
        let sends_snapshot = || raft.prs().iter().any(|(_, p)| p.state == ProgressState::Snapshot);
        let next = match raft.state {
            StateRole::Follower => {
                let late = raft.heartbeat_timeout() + 2;
                late.min(raft.randomized_election_timeout()).saturating_sub(raft.election_elapsed)
            }
            StateRole::Leader if raft.lead_transferee.is_none() && !sends_snapshot() => {
                let heard = raft.heartbeat_timeout().saturating_sub(raft.heartbeat_elapsed());
                heard.min(raft.election_timeout().saturating_sub(raft.election_elapsed))
            }
            _ => 0,
        };
        u32::try_from(next.saturating_sub(1)).unwrap_or(0)
    }

    /// Proposes a change of members, unless one is in progress.
    pub(super) fn propose_change(&mut self, change: &MemberChange) -> bool {
        if !self.is_leader() || self.raw.raft.has_pending_conf() || self.halves().count() > 1 {
            return false;
        }
        self.raw.propose_conf_change(encode(change), conf_change(Some(change))).is_ok()
    }

    /// The engine takes its election timeout from the thread's random source at each change of
    /// term. Here it is a pure function of incarnation, term and role. The seed determines the
    /// incarnation, so that a seed replays.
    fn pin_election_timeout(&mut self) {
        let raft = &mut self.raw.raft;
        let (min, max) = self.timing.election_ticks;
        let number = mix(&[self.me, raft.term, raft.state as u64]);
        let span = (max - min) as u64;
        let timeout = min + usize::try_from(number % span).expect("below a span of ticks");
        raft.set_randomized_election_timeout(timeout);
    }
}

/// The engine's form of a change; `None` leaves a joint configuration.
fn conf_change(change: Option<&MemberChange>) -> ConfChangeV2 {
    let single = |change_type, node_id| ConfChangeSingle {
        change_type,
        node_id,
        ..ConfChangeSingle::default()
    };
    let changes = match change {
        None => vec![],
        Some(MemberChange::Learn { id, .. }) => {
            vec![single(ConfChangeType::AddLearnerNode, *id)]
        }
        Some(MemberChange::Replace { old, new }) => {
            vec![single(ConfChangeType::AddNode, *new), single(ConfChangeType::RemoveNode, *old)]
        }
        Some(MemberChange::Forget { id }) => vec![single(ConfChangeType::RemoveNode, *id)],
    };
    ConfChangeV2 { changes: changes.into(), ..ConfChangeV2::default() }
}
