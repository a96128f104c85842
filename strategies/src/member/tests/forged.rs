//! Goal: a well-formed frame with impossible content harms no member.
//! Method: from a real frame of one member to another, a frame that carries a forged message of the
//! engine instead; its receiver goes on. Without the checks the engine panics, or the log stops the
//! member.

use gaggle_channels::{NODE_NAME_BYTES_MAX, NodeName};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};

use super::{THREE, frame, ready, world::World};
use crate::member::{
    entry::MemberChange,
    wire::{self, Body, Header, RaftMessage, encode},
};

struct Forger {
    world: World,
    leader: String,
    follower: String,
    header: Header<'static>,
}

impl Forger {
    /// A cluster, and the header of a frame from its leader to a follower.
    fn new() -> Self {
        let mut world = ready(&THREE);
        let (leader, follower) = (world.leader().unwrap(), world.follower());
        world.lock(&leader, "k", 1, 1_000);
        let mut sent = Vec::new();
        while sent.is_empty() {
            world.now = world.now.after(std::time::Duration::from_millis(10));
            let now = world.now;
            world.node(&leader).tick(now, 1);
            let frames = world.turn(&leader).into_iter();
            let to_it = frames.filter(|f| f.to.as_str() == follower);
            sent.extend(to_it.map(|frame| frame.bytes));
        }
        let (header, _) = wire::decode(&sent[0]).unwrap();
        let header = Header { cluster: header.cluster.into_owned().into(), ..header };
        Self { world, leader, follower, header }
    }

    /// The follower receives this message in the leader's name, and goes on.
    fn survives(mut self, change: impl Fn(&mut Message)) {
        let term = self.world.status(&self.follower).term;
        let (from, to) = (self.header.from, self.header.to);
        let mut message = Message { to, from, term, ..Message::default() };
        change(&mut message);
        let frame = frame(&self.header, &Body::Raft(RaftMessage::of(message).unwrap()));
        let (now, from) = (self.world.now, NodeName::new(&self.leader).unwrap());
        self.world.node(&self.follower).receive(now, &from, &frame);
        self.world.turn(&self.follower);
        self.world.must_lock(&self.follower, "other", 7);
    }
}

/// An entry after the last one, which nothing but its bytes speaks against.
fn appended(change: impl Fn(&mut Entry)) {
    let forger = Forger::new();
    let (index, term) = forger.world.group(&forger.follower).view().last;
    forger.survives(|message| {
        message.msg_type = MessageType::MsgAppend;
        (message.index, message.log_term, message.commit) = (index, term, index + 1);
        let mut entry = Entry { index: index + 1, term: message.term, ..Entry::default() };
        change(&mut entry);
        message.entries = vec![entry].into();
    });
}

#[test]
fn change_with_an_impossible_name_is_refused() {
    for name in [String::new(), "n".repeat(NODE_NAME_BYTES_MAX + 1)] {
        appended(|entry| {
            entry.entry_type = EntryType::EntryConfChangeV2;
            let change = MemberChange::Learn { id: 9, name: name.clone() };
            entry.context = encode(&change).into();
        });
    }
}
