//! Checks a message of a peer before the engine takes it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use raft::{
    Raft, StateRole,
    eraftpb::{ConfState, Message, MessageType},
};

use crate::{limits::MEMBERS_MAX, member::log_store::VolatileLog};

/// Why a peer's message was refused. The engine panics on what breaks its invariants; none of
/// these reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    #[error("addressed to another incarnation")]
    Receiver,
    #[error("sent under this member's own id, or none")]
    Sender,
    #[error("term out of range")]
    Term,
    #[error("index out of range")]
    Index,
    #[error("entries do not follow one another")]
    Entries,
    #[error("commit index beyond the log: this member never acknowledged that much")]
    Commit,
    #[error("acknowledges more than the log holds")]
    Acknowledged,
    #[error("contradicts what is committed")]
    Committed,
    #[error("a second leader of one term")]
    Leader,
    #[error("would make this member lead before it has stored its log")]
    Unstored,
    #[error("carries what does not decode")]
    Payload,
    #[error("snapshot without index or term, or of a configuration that none can be")]
    Snapshot,
}

/// Terms only grow by elections: a number near the end of its range was never one.
const TERM_MAX: u64 = u64::MAX >> 16;
/// Indexes only grow by entries; the engine adds to them without looking.
const INDEX_MAX: u64 = u64::MAX >> 16;

pub(super) fn check(raft: &Raft<VolatileLog>, me: u64, m: &Message) -> Result<(), Invalid> {
    use MessageType as T;
    if m.to != me {
        return Err(Invalid::Receiver);
    }
    if m.from == me || m.from == raft::INVALID_ID {
        return Err(Invalid::Sender);
    }
    if m.term > TERM_MAX || m.term == 0 || m.log_term > TERM_MAX {
        return Err(Invalid::Term);
    }
    let indexes = [m.index, m.commit, m.reject_hint];
    if indexes.iter().any(|index| *index > INDEX_MAX) {
        return Err(Invalid::Index);
    }
    let last = raft.raft_log.last_index();
    let stored = raft.raft_log.persisted == last;
    // A later term makes any receiver a follower, also a leader that has appended entries.
    let follows = raft.state == StateRole::Follower || m.term > raft.term;
    let stands = matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate);
    match m.msg_type {
        T::MsgAppend | T::MsgHeartbeat | T::MsgSnapshot
            if m.term == raft.term && raft.state == StateRole::Leader =>
        {
            Err(Invalid::Leader)
        }
        T::MsgAppend => check_append(raft, m),
        // The engine asserts that a new leader has stored its log. A member requests votes only
        // then, and no longer stands once it takes entries; leadership is transferred only to a
        // member that has stored all.
        T::MsgTimeoutNow if follows && !stored => Err(Invalid::Unstored),
        T::MsgRequestVoteResponse | T::MsgRequestPreVoteResponse if stands && !stored => {
            Err(Invalid::Unstored)
        }
        T::MsgHeartbeat if m.term >= raft.term && m.commit > last => Err(Invalid::Commit),
        T::MsgSnapshot => check_snapshot(m),
        T::MsgAppendResponse if !m.reject && m.term == raft.term && m.index > last => {
            Err(Invalid::Acknowledged)
        }
        T::MsgRequestVote | T::MsgRequestPreVote if m.commit > last && m.commit_term == 0 => {
            Err(Invalid::Commit)
        }
        _ => Ok(()),
    }
}

fn check_append(raft: &Raft<VolatileLog>, m: &Message) -> Result<(), Invalid> {
    // The engine takes term 0 for that of an entry it does not have, and would leave a gap before
    // the entries. Only before the first one is it right.
    if (m.log_term == 0) != (m.index == 0) || m.get_entries().iter().any(|entry| entry.term == 0) {
        return Err(Invalid::Entries);
    }
    let mut before = (m.index, m.log_term);
    for entry in m.get_entries() {
        if entry.index != before.0.wrapping_add(1) || entry.term < before.1 || entry.term > m.term {
            return Err(Invalid::Entries);
        }
        before = (entry.index, entry.term);
    }
    if m.term < raft.term {
        return Ok(());
    }
    // Entries of this turn are committed before they are stored. The engine returns term 0 for
    // missing entries.
    let log = &raft.raft_log;
    let mut known = m.get_entries().iter().take_while(|e| e.index <= log.committed);
    if known.any(|e| log.term(e.index).is_ok_and(|ours| ours != 0 && ours != e.term)) {
        return Err(Invalid::Committed);
    }
    Ok(())
}

fn check_snapshot(m: &Message) -> Result<(), Invalid> {
    let metadata = m.get_snapshot().get_metadata();
    let state = metadata.get_conf_state();
    if metadata.index == 0
        || metadata.term == 0
        || metadata.term > m.term
        || metadata.index > INDEX_MAX
        || !is_configuration(state)
    {
        return Err(Invalid::Snapshot);
    }
    Ok(())
}

/// Whether the engine can restore this configuration: it panics on any other (Raft §6).
fn is_configuration(state: &ConfState) -> bool {
    let ConfState { voters, voters_outgoing: outgoing, learners, learners_next, .. } = state;
    let lists = [voters, outgoing, learners, learners_next];
    let distinct = |list: &[u64]| list.iter().collect::<BTreeSet<_>>().len() == list.len();
    let disjoint = |one: &[u64], other: &[u64]| !one.iter().any(|id| other.contains(id));
    let joint = !outgoing.is_empty();
    !voters.is_empty()
        && lists.iter().all(|list| list.len() <= 2 * MEMBERS_MAX && distinct(list))
        && !lists.iter().any(|list| list.contains(&raft::INVALID_ID))
        && disjoint(learners, voters)
        && disjoint(learners, outgoing)
        && disjoint(learners, learners_next)
        && disjoint(learners_next, voters)
        && learners_next.iter().all(|id| outgoing.contains(id))
        && (joint || !state.auto_leave)
}
