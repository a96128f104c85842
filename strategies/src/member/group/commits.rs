//! How members learn of a commit. In a group where two are a majority, the append itself shows it.
//! The leader advertises it to members that wait for it. Others learn it by the next entry or
//! heartbeat.

use std::mem;

use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::{Group, RaftMessage};
use crate::lock_table::Effect;

impl Group {
    /// Commits an entry at once in a group of three, where two voters are a majority. An entry of
    /// the leader's own term (Raft §5.4.2) is committed as soon as one other voter has it. That
    /// voter need not wait for the leader to advertise the commit.
    pub(super) fn commit_at_once(&self, message: &mut Message) {
        let own = |last: &&Entry| last.term == message.term;
        let Some(last) = message.entries.last().filter(own) else { return };
        if message.msg_type == MessageType::MsgAppend
            && message.entries.iter().all(is_command)
            && self.is_voter(self.me)
            && self.is_voter(message.from)
            && self.pairs_commit()
        {
            message.commit = last.index;
        }
    }

    /// Whether any two voters are certainly a majority. A change of members that is in the log and
    /// not applied, or a snapshot that is not installed, may bring other voters.
    fn pairs_commit(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        let stored = (log.applied + 1..log.unstable.offset).filter_map(|at| log.store.at(at));
        let few = self.halves().all(|voters| voters.len() <= 3);
        self.is_settled()
            && few
            && log.unstable.snapshot.is_none()
            && stored.chain(&log.unstable.entries).all(is_command)
    }

    /// Notes which other members wait for these effects, or lost a lock by them. Only a leader
    /// advertises commits.
    pub(super) fn note_commit_recipients(&mut self, effects: &[Effect]) {
        if self.is_leader() {
            let processes = effects.iter().filter_map(Effect::process).map(|process| process.0);
            self.commit_recipients.extend(processes.filter(|id| *id != self.me));
        }
    }

    pub(in crate::member) fn has_commit_recipients(&self) -> bool {
        !self.commit_recipients.is_empty()
    }

    /// Advertises the commit index to its recipients, unless it was sent to them already.
    pub(in crate::member) fn advertise_commit(&mut self) {
        let committed = self.raw.raft.raft_log.committed;
        for peer in mem::take(&mut self.commit_recipients) {
            let behind = self.advertised_commit.get(&peer).is_none_or(|sent| *sent < committed);
            if behind && self.raw.raft.prs().get(peer).is_some() {
                self.raw.raft.send_append(peer);
            }
        }
    }

    /// Takes the messages of the engine, and notes the commit index that each peer learns from
    /// them.
    pub(super) fn collect(&mut self, messages: Vec<Message>, out: &mut Vec<RaftMessage>) {
        for message in messages.iter().filter(|m| m.msg_type == MessageType::MsgAppend) {
            let own = message.entries.last().filter(|entry| entry.term == message.term);
            let at_once = own.filter(|_| self.is_voter(message.to) && self.pairs_commit());
            let known = at_once.map_or(message.commit, |entry| entry.index);
            let sent = self.advertised_commit.entry(message.to).or_default();
            *sent = known.max(*sent);
        }
        out.extend(messages.into_iter().filter_map(RaftMessage::of));
    }
}

fn is_command(entry: &Entry) -> bool {
    entry.entry_type == EntryType::EntryNormal
}
