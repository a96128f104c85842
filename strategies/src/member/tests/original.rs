//! The original's tests that look into a log, by name. Method: three groups, without nodes
//! and without a network; the test carries every message and drops those it names.

use std::collections::BTreeMap;

use gaggle_channels::NodeName;
use raft::eraftpb::{Entry, Message, MessageType};

use crate::{
    Instant, MemberOptions, Nonce, Owner,
    lock_table::{ClusterTime, Command, Effect, LockRequest, ProcessId, Seen, Wait},
    member::{entry::Stamped, group::Group, wire::RaftMessage},
};

/// Three groups; the first one leads.
pub(super) struct Trio {
    pub(super) groups: BTreeMap<u64, Group>,
    effects: BTreeMap<u64, Vec<Effect>>,
    pub(super) now: Instant,
}

/// A link that messages may take, from one to another.
pub(super) type Link = (u64, u64);
pub(super) const ALL: [Link; 6] = [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)];

impl Trio {
    pub(super) fn led_by_the_first() -> Self {
        let name = |id: u64| NodeName::new(format!("m{id}")).unwrap();
        let roster: BTreeMap<u64, NodeName> = (1..=3).map(|id| (id, name(id))).collect();
        let timing = MemberOptions::named("test", roster.values().cloned()).timing(64 * 1024);
        let found = |id| (id, Group::found(7, id, roster.clone(), &timing.table, &timing));
        let now = Instant::from_origin(std::time::Duration::from_secs(100));
        let groups = (1..=3).map(found).collect();
        let mut trio = Self { groups, effects: BTreeMap::new(), now };
        trio.group(1).campaign();
        trio.deliver(&ALL);
        assert!(trio.group(1).is_leader());
        trio
    }

    pub(super) fn group(&mut self, id: u64) -> &mut Group {
        self.groups.get_mut(&id).unwrap()
    }

    /// Takes what a group wants to send, and remembers what it has applied.
    pub(super) fn drain(&mut self, id: u64) -> Vec<Message> {
        let now = self.now;
        let out = self.group(id).drain(now);
        self.effects.entry(id).or_default().extend(out.effects);
        out.messages.into_iter().map(RaftMessage::into_message).collect()
    }

    pub(super) fn step(&mut self, message: Message) {
        let to = message.to;
        self.group(to).step(RaftMessage::of(message).unwrap()).unwrap();
    }

    /// Carries messages over these links, and drops all others, until there are none left.
    pub(super) fn deliver(&mut self, links: &[Link]) {
        loop {
            let said: Vec<Message> = (1..=3).flat_map(|id| self.drain(id)).collect();
            if said.is_empty() {
                return;
            }
            let carried = said.into_iter().filter(|m| links.contains(&(m.from, m.to)));
            carried.for_each(|message| self.step(message));
        }
    }

    /// Ticks the groups that these links join until one of them leads a later term.
    pub(super) fn elect(&mut self, links: &[Link]) -> u64 {
        let term = self.groups.values().map(Group::term).max().unwrap();
        for _ in 0..1_000 {
            let joined: Vec<u64> = (1..=3).filter(|id| links.iter().any(|l| l.0 == *id)).collect();
            self.now = self.now.after(std::time::Duration::from_millis(10));
            for &id in &joined {
                self.group(id).tick(1);
            }
            self.deliver(links);
            let leads = |id: &&u64| self.groups[id].is_leader() && self.groups[id].term() > term;
            if let Some(&leader) = joined.iter().find(leads) {
                return leader;
            }
        }
        panic!("no leader of a later term");
    }

    /// Isolates the first group, which leads, until it leads no more.
    pub(super) fn step_down(&mut self) {
        while self.group(1).is_leader() {
            self.group(1).tick(1);
            self.deliver(&[]);
        }
    }

    /// Lets the leader's heartbeats bring the others to its commit index.
    pub(super) fn settle(&mut self, leader: u64, links: &[Link]) {
        for _ in 0..10 {
            self.group(leader).tick(1);
            self.deliver(links);
        }
    }

    /// Has the leader append a LOCK; it is not sent yet.
    pub(super) fn append_lock(&mut self, leader: u64, nonce: u128) {
        let now = self.now;
        self.group(leader).submit(Command::Lock(lock(nonce)));
        assert!(self.group(leader).flush(now));
    }

    pub(super) fn was_granted(&self, at: u64, nonce: u128) -> bool {
        let granted = |effect: &Effect| match effect {
            Effect::Granted(grant) => grant.nonce == Nonce::from_u128(nonce),
            _ => false,
        };
        self.effects.get(&at).is_some_and(|effects| effects.iter().any(granted))
    }

    fn message(&mut self, kind: MessageType, from: u64, to: u64, term: u64) -> Message {
        // The sender's claim about its log: it has the entries of the receiver.
        let (index, log_term) = (1 + self.group(to).log_len() as u64, self.group(to).term());
        Message { msg_type: kind, from, to, term, index, log_term, ..Message::default() }
    }
}

pub(super) fn lock(nonce: u128) -> LockRequest {
    LockRequest {
        key: "k".into(),
        nonce: Nonce::from_u128(nonce),
        process: ProcessId(1),
        duration_ms: 10_000,
        wait: Wait::Forever,
        seen: Seen::Now,
        owner: Owner::default().into(),
    }
}

fn grants_vote(message: &Message) -> bool {
    message.msg_type == MessageType::MsgRequestVoteResponse && !message.reject
}

#[test]
fn log_replication_induction_step() {
    let mut trio = Trio::led_by_the_first();
    // The leader is cut off, and its entries reach no other member.
    trio.append_lock(1, 9);
    trio.append_lock(1, 10);
    trio.deliver(&[]);
    assert_eq!(trio.group(1).log_len(), trio.group(2).log_len() + 2);
    let leader = trio.elect(&[(2, 3), (3, 2)]);
    trio.append_lock(leader, 5);
    trio.deliver(&[(2, 3), (3, 2)]);
    assert!(trio.was_granted(leader, 5));

    trio.settle(leader, &ALL);
    assert!(!trio.group(1).is_leader());
    assert!(trio.was_granted(1, 5), "the cut-off leader has caught up");
    assert!((1..=3).all(|id| !trio.was_granted(id, 9) && !trio.was_granted(id, 10)));
    let tables: Vec<_> = trio.groups.values().map(|group| group.table().snapshot()).collect();
    assert!(tables.iter().all(|table| *table == tables[0]), "the tables differ");
    let lengths: Vec<_> = trio.groups.values().map(Group::log_len).collect();
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
}

#[test]
fn votes_no_for_candidates_in_earlier_terms() {
    let mut trio = Trio::led_by_the_first();
    let term = trio.group(2).term();
    let early = trio.message(MessageType::MsgRequestVote, 3, 2, term - 1);
    trio.step(early);
    assert!(!trio.drain(2).iter().any(grants_vote));
    assert_eq!((trio.group(2).term(), trio.group(2).leader()), (term, Some(1)));

    // The same request of a later term, once the leader was silent for long enough, is granted.
    for _ in 0..15 {
        trio.group(2).tick(1);
    }
    trio.drain(2);
    let late = trio.message(MessageType::MsgRequestVote, 3, 2, term + 5);
    trio.step(late);
    assert!(trio.drain(2).iter().any(grants_vote));
}

#[test]
fn fails_when_append_entries_is_received_from_earlier_terms() {
    let mut trio = Trio::led_by_the_first();
    let (term, length) = (trio.group(2).term(), trio.group(2).log_len());
    let append = |trio: &mut Trio, from, term| {
        let mut message = trio.message(MessageType::MsgAppend, from, 2, term);
        let stamped = Stamped { stamp: ClusterTime(1), commands: vec![Command::Lock(lock(9))] };
        message.log_term = 2;
        message.entries = vec![Entry {
            index: message.index + 1,
            term,
            data: stamped.encode().into(),
            ..Entry::default()
        }]
        .into();
        message.commit = message.index + 1;
        message
    };
    let early = append(&mut trio, 3, term - 1);
    // Refused before the engine, or by it: nothing is appended, nothing is applied.
    let _ = trio.group(2).step(RaftMessage::of(early).unwrap());
    let accepts = |m: &Message| m.msg_type == MessageType::MsgAppendResponse && m.index > 0;
    assert!(!trio.drain(2).iter().any(accepts));
    assert_eq!((trio.group(2).log_len(), trio.group(2).leader()), (length, Some(1)));
    assert!(!trio.was_granted(2, 9));

    // The same entries in the present term, from its leader, are taken.
    let present = append(&mut trio, 1, term);
    trio.step(present);
    assert!(trio.drain(2).iter().any(accepts));
    assert_eq!(trio.group(2).log_len(), length + 1);
    assert!(trio.was_granted(2, 9));
}

#[test]
fn uncommitted_entries_of_previous_terms_do_not_block() {
    let mut trio = Trio::led_by_the_first();
    // The entry reaches no member, and the isolated leader steps down.
    trio.append_lock(1, 9);
    trio.step_down();
    assert!((1..=3).all(|id| !trio.was_granted(id, 9)), "committed by one of three");

    // Without a proposal the new leader's own entry commits the one before it (Raft §5.4.2).
    let leader = trio.elect(&[(1, 2), (2, 1)]);
    assert_eq!(leader, 1, "only the first has the entry");
    assert!(trio.was_granted(1, 9), "the entry of the earlier term is stuck");
    trio.settle(1, &[(1, 2), (2, 1)]);
    assert!(trio.was_granted(2, 9));
}
