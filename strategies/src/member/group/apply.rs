//! Stores and applies what the engine has ready, and snapshots of the result.

use std::collections::BTreeMap;

use bytes::Bytes;
use gaggle_channels::NodeName;
use raft::{
    Progress, ProgressState, Storage,
    eraftpb::{Entry, EntryType, Message, Snapshot},
};
use serde::{Deserialize, Serialize};

use super::{
    Group, Invalid, LeaderClock, MemberChange, RaftMessage, StateRole, conf_change, encode,
};
use crate::{
    clock::Instant,
    lock_table::{ClusterTime, Effect, LockTable},
    member::entry::CommandEntry,
};

/// The bytes of all entries beyond which a log is compacted.
const LOG_BYTES_MAX: usize = 1 << 20;
/// A leader keeps entries for receivers of snapshots up to this multiple of both limits. Receivers
/// have seconds to catch up, and a silent one costs bounded memory.
const KEPT_LOGS: u64 = 32;

/// The output of a group in one round.
#[derive(Debug, Default)]
pub(in crate::member) struct Output {
    pub(in crate::member) messages: Vec<RaftMessage>,
    pub(in crate::member) effects: Vec<Effect>,
    /// A snapshot was installed: effects were skipped, so pending requests must be sent again.
    pub(in crate::member) installed: bool,
    /// The configuration changed.
    pub(in crate::member) reconfigured: bool,
}

/// The state machine, as a snapshot carries it. Ordered: equal states give equal bytes.
#[derive(Serialize, Deserialize)]
struct State {
    table: Vec<u8>,
    roster: Vec<(u64, String)>,
}

/// The table and the roster of a snapshot.
pub(super) type SnapshotContent = (LockTable, BTreeMap<u64, NodeName>);

impl State {
    fn read(bytes: &[u8]) -> Option<SnapshotContent> {
        let Self { table, roster } = postcard::from_bytes(bytes).ok()?;
        let named = |(id, name)| Some((id, NodeName::new(name).ok()?));
        let names = roster.into_iter().map(named).collect::<Option<_>>()?;
        Some((LockTable::restore(&table).ok()?, names))
    }
}

impl Group {
    /// Does all the work that is ready: stores, applies, and collects what must be sent.
    pub(in crate::member) fn drain(&mut self, now: Instant) -> Output {
        let mut out = Output::default();
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            self.collect(ready.take_messages(), &mut out.messages);
            if !ready.snapshot().is_empty() {
                let snapshot = ready.snapshot().clone();
                self.install(&snapshot, &mut out);
            }
            let committed = ready.take_committed_entries();
            self.apply_all(&committed, &mut out);
            self.raw.mut_store().append(ready.take_entries());
            if let Some(hard_state) = ready.hs() {
                self.raw.mut_store().set_hard_state(hard_state.clone());
            }
            self.collect(ready.take_persisted_messages(), &mut out.messages);
            let mut light = self.raw.advance(ready);
            if let Some(commit) = light.commit_index() {
                self.raw.mut_store().set_commit(commit);
            }
            self.collect(light.take_messages(), &mut out.messages);
            self.apply_all(&light.take_committed_entries(), &mut out);
            self.raw.advance_apply();
            self.pin_election_timeout();
        }
        self.checked = None;
        self.follow_role(now);
        self.provide_snapshot();
        self.note_commit_recipients(&out.effects);
        out
    }

    /// Whether there is anything to be done.
    pub(in crate::member) fn has_ready(&self) -> bool {
        self.raw.has_ready()
    }

    fn apply_all(&mut self, entries: &[Entry], out: &mut Output) {
        for entry in entries {
            match read(entry).expect("entries are checked before they enter the log") {
                Payload::Nothing => {}
                Payload::Commands(CommandEntry { stamp, commands }) => {
                    out.effects.reserve(commands.len());
                    for command in &commands {
                        self.table.apply(stamp, command, &mut out.effects);
                    }
                }
                Payload::Change(change) => self.apply_change(change.as_ref(), out),
            }
        }
    }

    fn apply_change(&mut self, change: Option<&MemberChange>, out: &mut Output) {
        if let Some(MemberChange::Learn { id, name }) = change {
            self.roster.insert(*id, NodeName::new(name).expect("read with its change"));
        }
        match self.raw.apply_conf_change(&conf_change(change)) {
            Ok(state) => self.raw.mut_store().set_conf_state(state),
            Err(error) => tracing::warn!(%error, ?change, "a change of members was void"),
        }
        let state = self.raw.store().conf_state().clone();
        let sets = [state.voters, state.voters_outgoing, state.learners, state.learners_next];
        self.roster.retain(|id, _| sets.iter().any(|set| set.contains(id)));
        self.advertised_commit.retain(|id, _| self.roster.contains_key(id));
        let member = sets.iter().any(|set| set.contains(&self.me));
        if !member && self.raw.raft.state == StateRole::Leader {
            // Raft §6. No leader of ours removes itself. The engine would let it lead on, and panic
            // at the next reply. Its unsent messages as a leader are dropped: the engine asserts
            // that as well.
            let term = self.raw.raft.term;
            self.raw.raft.become_follower(term, raft::INVALID_ID);
            self.raw.raft.msgs.clear();
        }
        out.reconfigured = true;
    }

    fn install(&mut self, snapshot: &Snapshot, out: &mut Output) {
        // Pointers suffice: a snapshot that was checked last is the same bytes, not equal ones.
        let is_same = |bytes: &Bytes| bytes.as_ptr() == snapshot.data.as_ptr();
        (self.table, self.roster) = match self.checked.take() {
            Some((bytes, restored)) if is_same(&bytes) => restored,
            _ => State::read(&snapshot.data).expect("snapshots are checked when they arrive"),
        };
        self.raw.mut_store().install(snapshot);
        out.installed = true;
        out.reconfigured = true;
    }

    /// Refuses a message whose entries or snapshot do not decode. An entry is decoded again when it
    /// is applied. A decoded snapshot is kept until the turn installs it, because a large table
    /// takes long to decode.
    pub(super) fn check_payloads(&mut self, message: &Message) -> Result<(), Invalid> {
        if message.get_entries().iter().any(|entry| read(entry).is_none()) {
            return Err(Invalid::Payload);
        }
        let snapshot = message.get_snapshot();
        if !snapshot.is_empty() {
            let restored = State::read(&snapshot.data).ok_or(Invalid::Payload)?;
            self.checked = Some((snapshot.data.clone(), restored));
        }
        Ok(())
    }

    /// Begins a clock when this member becomes the leader. Drops it, with the commands that were
    /// not appended, when it no longer leads.
    fn follow_role(&mut self, now: Instant) {
        match (self.raw.raft.state == StateRole::Leader, &self.clock) {
            (true, None) => {
                self.clock = Some(LeaderClock::new(self.greatest_stamp(), now));
            }
            (false, Some(_)) => {
                self.clock = None;
                self.commands.clear();
                self.advertised_commit.clear();
                self.commit_recipients.clear();
                self.commit_marks = [None; 2];
            }
            _ => {}
        }
    }

    /// The greatest stamp in the log, uncommitted tail included. Stamps never fall along a log, so
    /// it is the last one.
    fn greatest_stamp(&self) -> ClusterTime {
        let store = self.raw.store();
        let last = store.last_index().unwrap_or(0);
        let entries = (self.raw.raft.raft_log.applied + 1..=last).rev();
        let stamp =
            entries.filter_map(|index| store.at(index)).find_map(|entry| match read(entry) {
                Some(Payload::Commands(stamped)) => Some(stamped.stamp),
                _ => None,
            });
        stamp.unwrap_or_default().max(self.table.now())
    }

    fn provide_snapshot(&mut self) {
        if !self.raw.store().snapshot_wanted() {
            return;
        }
        let roster = self.roster.iter().map(|(id, name)| (*id, name.to_string())).collect();
        let state = State { table: self.table.snapshot(), roster };
        let index = self.raw.raft.raft_log.applied;
        let data = encode(&state).into();
        let mut snapshot = Snapshot { data, ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        metadata.index = index;
        metadata.term = self.raw.store().term(index).expect("the last applied entry is kept");
        metadata.set_conf_state(self.raw.store().conf_state().clone());
        self.raw.mut_store().provide_snapshot(snapshot);
    }

    /// Keeps a tail, so that a follower slightly behind needs no snapshot. A log of long entries is
    /// compacted before it has as many as it may. A leader also keeps what follows a snapshot until
    /// its receiver has caught up: otherwise that one needs another snapshot.
    pub(in crate::member) fn compact(&mut self) {
        let (applied, leads) = (self.raw.raft.raft_log.applied, self.is_leader());
        let (prs, log) = (self.raw.raft.prs(), self.raw.store());
        let (first, bytes) = (log.first_index().unwrap_or(0), log.bytes());
        let tail = applied.saturating_sub(self.timing.compact_keep);
        let kept = KEPT_LOGS.saturating_mul(self.timing.compact_after);
        let oldest = first.max(applied.saturating_sub(kept));
        let has = |p: &Progress| p.matched.max(p.pending_snapshot);
        let needs_log = |p: &Progress| {
            has(p) + 1 >= oldest && (p.state != ProgressState::Replicate || has(p) < tail)
        };
        let receivers = prs.iter().filter(|(_, p)| p.state == ProgressState::Snapshot);
        self.catching_up.extend(receivers.map(|(id, _)| *id));
        self.catching_up.retain(|id| {
            let may_keep = leads && bytes / KEPT_LOGS as usize <= LOG_BYTES_MAX;
            may_keep && prs.get(*id).is_some_and(needs_log)
        });
        if applied.saturating_sub(first) >= self.timing.compact_after || bytes >= LOG_BYTES_MAX {
            let progress = self.catching_up.iter().filter_map(|id| prs.get(*id));
            let end = progress.map(has).fold(tail, u64::min);
            self.raw.mut_store().compact(end);
        }
    }
}

/// The content of an entry.
pub(super) enum Payload {
    /// The engine's own entry at the start of a term, or a change that it voided.
    Nothing,
    Commands(CommandEntry),
    /// `None` leaves a joint configuration.
    Change(Option<MemberChange>),
}

/// Reads an entry, before it enters the log and when it is applied; `None` if it does not decode.
pub(super) fn read(entry: &Entry) -> Option<Payload> {
    Some(match entry.entry_type {
        EntryType::EntryNormal if entry.data.is_empty() => Payload::Nothing,
        EntryType::EntryNormal => Payload::Commands(CommandEntry::decode(&entry.data)?),
        _ if entry.context.is_empty() => Payload::Change(None),
        _ => {
            let change = postcard::from_bytes(&entry.context).ok()?;
            if let MemberChange::Learn { name, .. } = &change {
                NodeName::new(name).ok()?;
            }
            Payload::Change(Some(change))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use raft::eraftpb::MessageType;

    use super::*;
    use crate::{
        lock::Nonce,
        lock_table::{Command, LockRequest, ProcessId, Seen, TableConfig, Wait},
        member::{MemberOptions, options::RunOptions},
    };

    /// A member that joins, and was sent a snapshot with these bytes.
    fn sent(data: Vec<u8>) -> Group {
        let timing = MemberOptions::named("c", []).timing(64 * 1024, &RunOptions::new(1));
        let mut group = Group::join(7, 2, &timing);
        let mut snapshot = Snapshot { data: data.into(), ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (5, 1);
        (metadata.mut_conf_state().voters, metadata.mut_conf_state().learners) = (vec![1], vec![2]);
        let msg_type = MessageType::MsgSnapshot;
        let mut message = Message { msg_type, from: 1, to: 2, term: 1, ..Message::default() };
        message.set_snapshot(snapshot);
        group.step(RaftMessage::of(message).unwrap()).unwrap();
        group
    }

    /// A snapshot of a large table takes long to decode.
    #[test]
    fn checked_snapshot_is_not_decoded_again() {
        let roster = vec![(1, "a".into()), (2, "b".into())];
        let mut held = LockTable::new(TableConfig::default());
        let lock = LockRequest {
            key: "k".into(),
            nonce: Nonce::from_u128(1),
            process: ProcessId(1),
            duration_ms: 1_000,
            wait: Wait::No,
            seen: Seen::Now,
            owner: Arc::default(),
        };
        held.apply(ClusterTime(1), &Command::Lock(lock), &mut Vec::new());
        let state = State { table: held.snapshot(), roster };
        let mut group = sent(encode(&state));
        let (_, (table, _)) = group.checked.as_ref().unwrap();
        let checked = table.keys().next().unwrap().clone();
        assert!(group.drain(Instant::default()).installed);
        assert!(Arc::ptr_eq(&checked, group.table.keys().next().unwrap()), "the same row");
        assert!(group.checked.is_none(), "it is kept until it is installed");
    }
}
