//! How members learn of a commit: by the append itself where two are a majority, by an
//! advertisement of the leader if they wait for it, and by the next entry or heartbeat otherwise.

use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::{Group, Output, RaftMessage};

impl Group {
    /// Of three voters two are a majority: an entry of the leader's own term (Raft §5.4.2) is
    /// committed as soon as one other voter has it. That voter need not wait for the leader to
    /// advertise the commit.
    pub(super) fn commit_at_once(&self, message: &mut Message) {
        let own = |last: &&Entry| last.term == message.term || planted!(EarlierTermCommitted);
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

    /// Advertises the commit index to these peers, unless it was sent to them already.
    pub(in crate::member) fn advertise_commit(&mut self, peers: impl IntoIterator<Item = u64>) {
        let committed = self.raw.raft.raft_log.committed;
        for peer in peers {
            let behind = self.advertised_commit.get(&peer).is_none_or(|sent| *sent < committed);
            if behind && peer != self.me && self.raw.raft.prs().get(peer).is_some() {
                self.raw.raft.send_append(peer);
            }
        }
    }

    /// Takes the messages of the engine, and notes the commit index that each peer learns from
    /// them.
    pub(super) fn collect(&mut self, mut messages: Vec<Message>, out: &mut Output) {
        for message in messages.iter_mut().filter(|m| m.msg_type == MessageType::MsgAppend) {
            self.align(message);
            let own = message.entries.last().filter(|entry| entry.term == message.term);
            let at_once = own.filter(|_| self.is_voter(message.to) && self.pairs_commit());
            let known = at_once.map_or(message.commit, |entry| entry.index);
            let sent = self.advertised_commit.entry(message.to).or_default();
            *sent = known.max(*sent);
        }
        out.messages.extend(messages.into_iter().filter_map(RaftMessage::of));
    }

    /// Lets an append begin where its entries do: the engine adds them to an older empty append,
    /// also if they do not follow it. The log of a leader only grows: it still has what the
    /// entries follow.
    fn align(&self, message: &mut Message) {
        let raft = &self.raw.raft;
        let Some(before) = message.entries.first().map(|entry| entry.index - 1) else { return };
        if before != message.index
            && self.is_leader()
            && message.term == raft.term
            && let Ok(term) = raft.raft_log.term(before)
        {
            (message.index, message.log_term) = (before, term);
        }
    }
}

fn is_command(entry: &Entry) -> bool {
    entry.entry_type == EntryType::EntryNormal
}
