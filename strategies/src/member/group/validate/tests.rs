//! Goal: each rule of a peer's message refuses alone, and a message that keeps them all passes.
//! Method: a member with six entries of which four are committed; for each kind of message a
//! valid one, changed in one thing. The refusal is named, so that no other rule stands in.

use raft::{
    Config, RawNode,
    eraftpb::{Entry, HardState, Snapshot},
};

use super::*;

const ME: u64 = 1;
const PEER: u64 = 2;
const TERM: u64 = 3;
const COMMITTED: u64 = 4;
const LAST: u64 = 6;

/// A follower in term 3: entries 2 to 4 of term 1 are committed, 5 and 6 of term 2 are not.
fn follower() -> RawNode<VolatileLog> {
    let mut log = VolatileLog::founding(vec![ME, PEER, 5]);
    let entry = |index, term| Entry { index, term, ..Entry::default() };
    log.append(vec![entry(2, 1), entry(3, 1), entry(4, 1), entry(5, 2), entry(6, 2)]);
    log.set_hard_state(HardState { term: TERM, commit: COMMITTED, ..HardState::default() });
    let config = Config { id: ME, applied: 1, ..Config::default() };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&config, log, &logger).unwrap()
}

fn invalid(node: &RawNode<VolatileLog>, message: &Message) -> Option<Invalid> {
    check(&node.raft, ME, message).err()
}

fn refused(message: &Message) -> Option<Invalid> {
    invalid(&follower(), message)
}

fn message(msg_type: MessageType) -> Message {
    Message { msg_type, to: ME, from: PEER, term: TERM, ..Message::default() }
}

/// A message that passes, with a change.
fn with(msg_type: MessageType, change: impl FnOnce(&mut Message)) -> Option<Invalid> {
    let mut message = match msg_type {
        MessageType::MsgAppend => append(LAST, 2, &[(LAST + 1, TERM)]),
        MessageType::MsgSnapshot => snapshot(),
        other => message(other),
    };
    assert_eq!(refused(&message), None, "{msg_type:?} unchanged");
    change(&mut message);
    refused(&message)
}

fn append(index: u64, log_term: u64, entries: &[(u64, u64)]) -> Message {
    let entry = |&(index, term): &(u64, u64)| Entry { index, term, ..Entry::default() };
    let entries = entries.iter().map(entry).collect();
    Message { index, log_term, entries, ..message(MessageType::MsgAppend) }
}

fn snapshot() -> Message {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (100, TERM);
    metadata.mut_conf_state().voters = vec![ME, PEER];
    let mut message = message(MessageType::MsgSnapshot);
    message.set_snapshot(snapshot);
    message
}

#[test]
fn sender_and_receiver_are_checked() {
    use MessageType::MsgHeartbeat as T;
    assert_eq!(with(T, |m| m.to = PEER), Some(Invalid::Receiver));
    assert_eq!(with(T, |m| m.from = ME), Some(Invalid::Sender));
    assert_eq!(with(T, |m| m.from = 0), Some(Invalid::Sender));
}

#[test]
fn terms_and_indexes_have_a_range() {
    use MessageType::{MsgAppendResponse as Reply, MsgRequestVote as Vote};
    let far_below_the_end_of_their_range = (1 << 48) - 1;
    assert_eq!([TERM_MAX, INDEX_MAX], [far_below_the_end_of_their_range; 2]);
    assert_eq!(with(Vote, |m| m.term = TERM_MAX), None);
    assert_eq!(with(Vote, |m| m.term = TERM_MAX + 1), Some(Invalid::Term));
    assert_eq!(with(Vote, |m| m.term = 0), Some(Invalid::Term));
    assert_eq!(with(Vote, |m| m.log_term = TERM_MAX), None);
    assert_eq!(with(Vote, |m| m.log_term = TERM_MAX + 1), Some(Invalid::Term));
    type Field = fn(&mut Message) -> &mut u64;
    let fields: [Field; 3] = [|m| &mut m.index, |m| &mut m.commit, |m| &mut m.reject_hint];
    for (place, field) in fields.into_iter().enumerate() {
        let reject = |m: &mut Message, index| {
            m.reject = true;
            *field(m) = index;
        };
        assert_eq!(with(Reply, |m| reject(m, INDEX_MAX)), None, "field {place}");
        let beyond = with(Reply, |m| reject(m, INDEX_MAX + 1));
        assert_eq!(beyond, Some(Invalid::Index), "field {place}");
    }
}

#[test]
fn term_has_one_leader() {
    use MessageType::{MsgAppend, MsgHeartbeat, MsgSnapshot};
    let mut leader = follower();
    leader.raft.become_candidate();
    leader.raft.become_leader();
    let term = leader.raft.term;
    for msg_type in [MsgAppend, MsgHeartbeat, MsgSnapshot] {
        let of = |term| match msg_type {
            MsgSnapshot => Message { term, ..snapshot() },
            _ => Message { term, ..message(msg_type) },
        };
        assert_eq!(invalid(&leader, &of(term)), Some(Invalid::Leader), "{msg_type:?}");
        assert_eq!(invalid(&leader, &of(term + 1)), None, "{msg_type:?} of a later one");
        assert_eq!(invalid(&follower(), &of(TERM)), None, "{msg_type:?} to a follower");
    }
    let reply = Message { term, ..message(MessageType::MsgAppendResponse) };
    assert_eq!(invalid(&leader, &reply), None, "what a follower says");
}

#[test]
fn unstored_entries_forbid_leading() {
    use MessageType::{
        MsgHeartbeat, MsgRequestPreVoteResponse, MsgRequestVoteResponse, MsgTimeoutNow,
    };
    let invalid_type = |node: &RawNode<VolatileLog>, msg_type| invalid(node, &message(msg_type));
    let unstored = || {
        let mut node = follower();
        node.step(append(LAST, 2, &[(LAST + 1, TERM)])).unwrap();
        node
    };
    let mut node = follower();
    assert_eq!(invalid_type(&node, MsgTimeoutNow), None);
    node.raft.become_candidate();
    assert_eq!(invalid_type(&node, MsgRequestVoteResponse), None);
    let node = unstored();
    assert_eq!(invalid_type(&node, MsgTimeoutNow), Some(Invalid::Unstored));
    assert_eq!(invalid_type(&node, MsgHeartbeat), None, "all else is taken");
    assert_eq!(invalid_type(&node, MsgRequestVoteResponse), None, "a late vote elects no leader");
    let mut leader = follower();
    leader.raft.become_candidate();
    leader.raft.become_leader();
    let term = leader.raft.term;
    let called = |term| invalid(&leader, &Message { term, ..message(MsgTimeoutNow) });
    assert_eq!(called(term), None, "a leader leads already");
    assert_eq!(called(term + 1), Some(Invalid::Unstored), "its own first entry is not stored yet");
    let stand: [fn(&mut Raft<VolatileLog>); 2] =
        [Raft::become_candidate, Raft::become_pre_candidate];
    for stand in stand {
        let mut node = unstored();
        stand(&mut node.raft);
        assert_eq!(invalid_type(&node, MsgRequestVoteResponse), Some(Invalid::Unstored));
        assert_eq!(invalid_type(&node, MsgRequestPreVoteResponse), Some(Invalid::Unstored));
    }
}

#[test]
fn entries_and_terms_are_in_order() {
    let entries = |index, log_term, entries: &[_]| refused(&append(index, log_term, entries));
    let wrong = Some(Invalid::Entries);
    assert_eq!(entries(LAST, 0, &[]), wrong, "term 0 is before the first entry only");
    assert_eq!(entries(0, 2, &[]), wrong, "and nothing else is");
    assert_eq!(entries(0, 0, &[]), None);
    assert_eq!(entries(0, 0, &[(1, 0)]), wrong, "an entry of no term");
    assert_eq!(entries(LAST, 2, &[(LAST + 2, 3)]), wrong, "a gap");
    assert_eq!(entries(LAST, 2, &[(LAST, 3)]), wrong, "not after the one before");
    assert_eq!(entries(LAST, 2, &[(LAST + 1, 3), (LAST + 3, 3)]), wrong, "a gap further on");
    assert_eq!(entries(LAST, 3, &[(LAST + 1, 2)]), wrong, "a term that falls");
    assert_eq!(entries(LAST, 2, &[(LAST + 1, 3), (LAST + 2, 2)]), wrong, "further on");
    assert_eq!(entries(LAST, 2, &[(LAST + 1, TERM + 1)]), wrong, "later than the message");
    assert_eq!(entries(LAST, 2, &[(LAST + 1, 2), (LAST + 2, 2), (LAST + 3, 3)]), None);
}

#[test]
fn what_is_committed_is_not_contradicted() {
    let wrong = Some(Invalid::Committed);
    assert_eq!(refused(&append(2, 1, &[(3, 2)])), wrong);
    assert_eq!(refused(&append(3, 1, &[(COMMITTED, 2)])), wrong, "the last of them");
    assert_eq!(refused(&append(2, 1, &[(3, 1), (COMMITTED, 2), (5, 2)])), wrong);
    assert_eq!(refused(&append(COMMITTED, 1, &[(5, 3)])), None, "what is not, may be");
    assert_eq!(refused(&append(2, 1, &[(3, 1), (COMMITTED, 1), (5, 3)])), None);
    let late = Message { term: TERM - 1, ..append(2, 1, &[(3, 2)]) };
    assert_eq!(refused(&late), None, "the engine replies to a former leader and takes nothing");
}

#[test]
fn heartbeat_commits_within_the_log() {
    use MessageType::MsgHeartbeat as T;
    assert_eq!(with(T, |m| m.commit = LAST), None);
    assert_eq!(with(T, |m| m.commit = LAST + 1), Some(Invalid::Commit));
    let later = |m: &mut Message| (m.commit, m.term) = (LAST + 1, TERM + 1);
    assert_eq!(with(T, later), Some(Invalid::Commit));
    let former = |m: &mut Message| (m.commit, m.term) = (LAST + 1, TERM - 1);
    assert_eq!(with(T, former), None, "the engine takes nothing from a former leader");
}

#[test]
fn ack_beyond_the_log_is_refused() {
    use MessageType::MsgAppendResponse as T;
    assert_eq!(with(T, |m| m.index = LAST), None);
    assert_eq!(with(T, |m| m.index = LAST + 1), Some(Invalid::Acknowledged));
    assert_eq!(
        with(T, |m| (m.index, m.reject) = (LAST + 1, true)),
        None,
        "a refusal names its own"
    );
    assert_eq!(with(T, |m| (m.index, m.term) = (LAST + 1, TERM - 1)), None, "of another term");
}

#[test]
fn candidates_commit_needs_a_term() {
    use MessageType::{MsgRequestPreVote, MsgRequestVote};
    for msg_type in [MsgRequestVote, MsgRequestPreVote] {
        assert_eq!(with(msg_type, |m| m.commit = LAST), None);
        assert_eq!(with(msg_type, |m| m.commit = LAST + 1), Some(Invalid::Commit));
        assert_eq!(with(msg_type, |m| (m.commit, m.commit_term) = (LAST + 1, 2)), None);
    }
}

#[test]
fn a_snapshot_has_a_place_in_the_log() {
    let changed = |index, term| {
        with(MessageType::MsgSnapshot, |m| {
            let metadata = m.mut_snapshot().mut_metadata();
            (metadata.index, metadata.term) = (index, term);
        })
    };
    let wrong = Some(Invalid::Snapshot);
    assert_eq!(changed(0, TERM), wrong);
    assert_eq!(changed(100, 0), wrong);
    assert_eq!(changed(100, TERM + 1), wrong, "of a term after that of its sender");
    assert_eq!(changed(INDEX_MAX + 1, TERM), wrong);
    assert_eq!(changed(INDEX_MAX, 1), None);
}

#[test]
fn snapshot_has_a_valid_configuration() {
    let changed = |change: &dyn Fn(&mut ConfState)| {
        with(MessageType::MsgSnapshot, |m| {
            change(m.mut_snapshot().mut_metadata().mut_conf_state());
        })
    };
    let joint = |c: &mut ConfState| {
        c.voters = vec![1, 2, 3];
        c.voters_outgoing = vec![1, 2, 4];
        c.learners = vec![5];
        c.learners_next = vec![4];
        c.auto_leave = true;
    };
    assert_eq!(changed(&joint), None);
    type Change = fn(&mut ConfState);
    let many = |from: u64| (from..=from + 2 * MEMBERS_MAX as u64).collect::<Vec<u64>>();
    let wrong: [(&str, Change); 15] = [
        ("no voter", |c| c.voters.clear()),
        ("a voter twice", |c| c.voters.push(2)),
        ("an outgoing voter twice", |c| c.voters_outgoing.push(2)),
        ("a learner twice", |c| c.learners.push(5)),
        ("a future learner twice", |c| c.learners_next.push(4)),
        ("a voter of no id", |c| c.voters.push(0)),
        ("an outgoing voter of no id", |c| c.voters_outgoing.push(0)),
        ("a learner of no id", |c| c.learners.push(0)),
        ("a learner that votes", |c| c.learners.push(3)),
        ("a learner that voted", |c| (c.learners, c.learners_next) = (vec![4], vec![])),
        ("a future learner that votes", |c| c.learners_next = vec![2]),
        ("a future learner that did not vote", |c| c.learners_next = vec![6]),
        ("a learner from nowhere", |c| (c.voters_outgoing, c.auto_leave) = (vec![], false)),
        ("a change to leave, and none in progress", |c| {
            (c.voters_outgoing, c.learners_next) = (vec![], vec![]);
        }),
        ("a learner to be and that is", |c| c.learners = vec![5, 4]),
    ];
    for (what, change) in wrong {
        let found = changed(&|c| {
            joint(c);
            change(c);
        });
        assert_eq!(found, Some(Invalid::Snapshot), "{what}");
    }
    assert_eq!(changed(&|c| c.voters = many(1)), Some(Invalid::Snapshot), "too many voters");
    assert_eq!(changed(&|c| c.learners = many(10)), Some(Invalid::Snapshot), "too many learners");
    let most = |c: &mut ConfState| c.voters = many(1)[1..].to_vec();
    assert_eq!(changed(&most), None, "as many as may be");
}
