//! Who learns of a commit, and when: at once where two are a majority, from the leader who waits for
//! it, and with the next entry or heartbeat everybody else.

use raft::{
    Progress, ProgressState,
    eraftpb::{Entry, EntryType, Message, MessageType},
};

use super::{Group, Output, RaftMessage};
use crate::planted::{Bug, planted};

/// In the context of an append without entries, which the engine leaves empty. What the receiver has, its
/// answers to entries say, and where they are lost, to heartbeats.
const NO_ANSWER: &[u8] = b"c";

impl Group {
    /// Of three voters two are a majority: what a leader has and sends is committed as soon as one other
    /// has it as well, if it is of the leader's own term (Raft §5.4.2), and that one need not wait to be
    /// told.
    pub(super) fn commit_at_once(&self, message: &mut Message) {
        let own = |last: &&Entry| last.term == message.term || planted(Bug::EarlierTermCommitted);
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

    /// Whether any two voters are a majority, beyond doubt: a change of members that is in the log and
    /// not applied, or came with a snapshot that is not installed, may say that others count.
    fn pairs_commit(&self) -> bool {
        let log = &self.raw.raft.raft_log;
        let stored = (log.applied + 1..log.unstable.offset).filter_map(|at| log.store.at(at));
        let few = self.halves().all(|voters| voters.len() <= 3);
        self.is_settled()
            && few
            && log.unstable.snapshot.is_none()
            && stored.chain(&log.unstable.entries).all(is_command)
    }

    /// Tells these peers how far the log is committed, unless what was sent to them says so. Heartbeats find what is lost of it, so that nobody answers
    /// ([`step`](Self::step)).
    pub(in crate::member) fn advertise_commit(&mut self, peers: impl IntoIterator<Item = u64>) {
        let committed = self.raw.raft.raft_log.committed;
        for peer in peers {
            let behind = self.told.get(&peer).is_none_or(|told| *told < committed);
            if behind && peer != self.me && self.raw.raft.prs().get(peer).is_some() {
                self.raw.raft.send_append(peer);
                self.ask_no_answer(peer);
            }
        }
    }

    /// Marks the empty append that was just sent to a peer, unless the engine waits for its answer: while
    /// it looks for where the logs meet.
    fn ask_no_answer(&mut self, peer: u64) {
        let raft = &mut self.raw.raft;
        let streams = |p: &Progress| p.state == ProgressState::Replicate;
        if raft.prs().get(peer).is_some_and(streams)
            && let Some(message) = raft.msgs.last_mut()
            && message.to == peer
            && message.msg_type == MessageType::MsgAppend
            && message.entries.is_empty()
        {
            message.context = NO_ANSWER.into();
        }
    }

    /// Takes what the engine has to say, and notes how far each peer will know the log to be committed
    /// by it.
    pub(super) fn collect(&mut self, messages: Vec<Message>, out: &mut Output) {
        for message in messages.iter().filter(|m| m.msg_type == MessageType::MsgAppend) {
            let own = message.entries.last().filter(|entry| entry.term == message.term);
            let at_once = own.filter(|_| self.is_voter(message.to) && self.pairs_commit());
            let known = at_once.map_or(message.commit, |entry| entry.index);
            let told = self.told.entry(message.to).or_default();
            *told = known.max(*told);
        }
        out.messages.extend(messages.into_iter().filter_map(RaftMessage::of));
    }

    /// Takes back the answer that the engine gave to what asked for none: it says what was said before. A
    /// refusal stays.
    pub(super) fn drop_answer(&mut self, said: usize) {
        let messages = &mut self.raw.raft.msgs;
        if messages.len() == said + 1 {
            messages.pop_if(|m| m.msg_type == MessageType::MsgAppendResponse && !m.reject);
        }
    }
}

/// Whether its sender wants no answer.
pub(super) fn asks_no_answer(message: &Message) -> bool {
    message.msg_type == MessageType::MsgAppend
        && message.entries.is_empty()
        && *message.context == *NO_ANSWER
}

fn is_command(entry: &Entry) -> bool {
    entry.entry_type == EntryType::EntryNormal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_append_that_says_so_asks_for_no_answer() {
        let message = |msg_type, entries: usize, context: &'static [u8]| Message {
            msg_type,
            entries: vec![Entry::default(); entries].into(),
            context: context.into(),
            ..Message::default()
        };
        use MessageType::{MsgAppend, MsgHeartbeat};
        assert!(asks_no_answer(&message(MsgAppend, 0, NO_ANSWER)));
        assert!(
            !asks_no_answer(&message(MsgAppend, 0, b"")),
            "the engine's own, for what is missing"
        );
        assert!(!asks_no_answer(&message(MsgAppend, 1, NO_ANSWER)));
        assert!(!asks_no_answer(&message(MsgHeartbeat, 0, NO_ANSWER)));
    }
}
