//! Goal: a frame that says what cannot be is dropped, counted once, and changes nothing.
//! Method: one frame at a time into a follower of a cluster that stands still, each wrong in one
//! thing; what the follower counts and knows is compared before and after.

use gaggle_fixtures::Events;
use raft::eraftpb::{Message, MessageType};

use super::{
    THREE, frame, header, ready,
    world::{World, name_of},
};
use crate::{
    lock::Nonce,
    lock_table::{Command, TableConfig},
    member::{
        MemberOptions,
        wire::{self, Body, Chunk, Forming, Header, RaftMessage},
    },
};

/// Frames from a leader to a follower, made by hand.
struct Reader {
    world: World,
    leader: String,
    follower: String,
    header: Header<'static>,
}

impl Reader {
    fn new() -> Self {
        let mut world = ready(&THREE);
        let (leader, follower) = (world.leader().unwrap(), world.follower());
        let from = world.node(&leader).incarnation();
        let group = world.group(&leader).id();
        let to = world.node(&follower).incarnation();
        let header = header(from, to, group);
        Self { world, leader, follower, header }
    }

    /// How many of these bodies the follower counts as dropped, in a frame from `name`.
    fn dropped_from(&mut self, name: &str, header: &Header<'_>, bodies: &[Body]) -> u64 {
        let mut frame = wire::encode(header);
        bodies.iter().for_each(|body| frame.extend(wire::encode(body)));
        self.dropped_bytes(name, &frame)
    }

    fn dropped_bytes(&mut self, name: &str, frame: &[u8]) -> u64 {
        let now = self.world.now;
        let node = self.world.node(&self.follower);
        let before = node.sizes(0).frames_dropped;
        node.receive(now, &name_of(name), frame);
        node.sizes(0).frames_dropped - before
    }

    /// The same, from the leader with a header that is wrong in one thing.
    fn dropped(&mut self, change: impl FnOnce(&mut Header<'_>), body: &Body) -> u64 {
        let mut header = self.header.clone();
        change(&mut header);
        self.dropped_from(&self.leader.clone(), &header, std::slice::from_ref(body))
    }

    fn append(&self, change: impl FnOnce(&mut Message)) -> Body {
        let term = self.world.status(&self.follower).term;
        let (to, from) = (self.header.to, self.header.from);
        let msg_type = MessageType::MsgHeartbeat;
        let mut message = Message { to, from, term, msg_type, ..Message::default() };
        change(&mut message);
        Body::Raft(RaftMessage::of(message).unwrap())
    }
}

fn request() -> Body {
    let (key, nonce) = ("k".into(), Nonce::from_u128(1));
    Body::Request(Command::Unlock { key, nonce, forget: false })
}

#[test]
fn frame_for_another_receiver_counts_once() {
    let mut reader = Reader::new();
    let (leader, follower) = (reader.leader.clone(), reader.follower.clone());
    let header = reader.header.clone();
    assert_eq!(reader.dropped_bytes(&leader, b"rubbish"), 1);
    assert_eq!(reader.dropped_bytes(&leader, &[]), 1);
    let heartbeat = reader.append(|_| {});
    assert_eq!(reader.dropped(|_| {}, &heartbeat), 0, "it is what the leader sends");
    assert_eq!(reader.dropped(|header| header.cluster = "another".into(), &heartbeat), 1);
    assert_eq!(reader.dropped(|header| header.from = 0, &heartbeat), 1, "it has no sender");
    assert_eq!(reader.dropped(|header| header.to += 1, &heartbeat), 1, "for an old incarnation");
    assert_eq!(reader.dropped(|header| header.group += 1, &heartbeat), 1, "of another group");
    let stranger = Header { from: header.from + 1, ..header.clone() };
    let twice = [heartbeat.clone(), heartbeat.clone()];
    assert_eq!(reader.dropped_from(&follower, &stranger, &twice), 1, "whole, under its own name");
    let senderless = Header { from: 0, ..header.clone() };
    assert_eq!(reader.dropped_from(&leader, &senderless, &twice), 1, "whole, without a sender");
    let misled = Header { to: header.to + 1, ..header };
    assert_eq!(reader.dropped_from(&leader, &misled, &twice), 2, "each body");
}

/// A process of another version sends twenty a second.
#[test]
fn frames_that_do_not_decode_are_reported_once() {
    let mut reader = Reader::new();
    let (events, _recording) = Events::of_thread();
    let leader = reader.leader.clone();
    for (name, frame) in [(&*leader, [4]), (&*leader, [3]), ("d", [4])] {
        assert!((0..100).all(|_| reader.dropped_bytes(name, &frame) == 1));
    }
    assert_eq!(events.with("dropped a frame").len(), 2, "one for each sender: {events:?}");
}

#[test]
fn process_of_another_version_is_named() {
    let mut outsider = Outsider::new();
    let (events, _recording) = Events::of_thread();
    let now = outsider.0.now;
    outsider.0.node("b").receive(now, &name_of("a"), &[4]);
    outsider.0.run(2_000);
    let cause = "waiting for a (dropped its frames: version 4, this build knows 3: upgrade the older \
                 member)";
    assert_eq!(events.with(cause).len(), 1, "{events:?}");
}

/// The process ran again with the right version or options, or ended.
#[test]
fn cause_that_does_not_recur_is_forgotten() {
    let foreign = Header { cluster: "another".into(), ..header(5, 0, 0) };
    let causes = [
        (vec![9], "waiting for a (dropped its frames: "),
        (frame(&foreign, &Body::Removed), "waiting for a (its option cluster is \"another\""),
    ];
    for (frame, cause) in causes {
        let mut outsider = Outsider::new();
        let (events, _recording) = Events::of_thread();
        for _ in 0..20 {
            let now = outsider.0.now;
            outsider.0.node("b").receive(now, &name_of("a"), &frame);
            outsider.0.run(500);
        }
        assert_eq!(events.with("waiting for a").len(), 1, "it recurs: {events:?}");
        assert_eq!(events.with(cause).len(), 1, "{events:?}");
        outsider.0.run(3_000);
        assert_eq!(events.with("waiting for a (not connected)").len(), 1, "{events:?}");
    }
}

#[test]
fn refused_message_of_the_engine_counts_once() {
    let mut reader = Reader::new();
    let foreign = reader.append(|message| message.from += 1);
    assert_eq!(reader.dropped(|_| {}, &foreign), 1, "in another's name");
    let beyond = reader.append(|message| message.commit = u64::MAX);
    assert_eq!(reader.dropped(|_| {}, &beyond), 1, "it breaks a rule");
}

/// A sender under ever new ids costs bounded memory, and known senders are still served.
#[test]
fn senders_beyond_the_bound_are_not_heard() {
    let mut reader = Reader::new();
    let header = reader.header.clone();
    let leader = reader.leader.clone();
    let heard_from = |reader: &mut Reader, from: u64| {
        let header = Header { from, ..header.clone() };
        reader.dropped_from(&leader, &header, &[request()]) == 0
    };
    let known = 2;
    let strangers: u64 = 1024 - known;
    assert!((1..=strangers).all(|from| heard_from(&mut reader, from)), "there is capacity");
    assert!(!heard_from(&mut reader, strangers + 1));
    assert!(heard_from(&mut reader, header.from), "the leader is known");
    assert!(heard_from(&mut reader, 1));
}

/// Claimed incarnations allocate no buffer each.
#[test]
fn only_leaders_snapshot_pieces_count() {
    let mut reader = Reader::new();
    let piece = Body::Chunk(Chunk { transfer: 1, index: 0, count: 2, bytes: vec![7; 10].into() });
    let leader = reader.leader.clone();
    let incarnation = reader.header.from;
    for (from, acknowledged) in [(incarnation, true), (incarnation + 1, false)] {
        let header = Header { from, ..reader.header.clone() };
        let frame = frame(&header, &piece);
        let replies = reader.world.replies_to(&reader.follower, &leader, &frame);
        let acknowledges = replies.iter().any(|body| matches!(body, Body::ChunkAck { .. }));
        assert_eq!(acknowledges, acknowledged, "{replies:?}");
    }
}

/// A channel proves names, not incarnations: otherwise one member could vote for all.
#[test]
fn frame_under_the_incarnation_of_another_is_dropped() {
    let mut reader = Reader::new();
    let (leader, append) = (reader.leader.clone(), reader.append(|_| {}));
    let ends = [leader.as_str(), reader.follower.as_str()];
    let other = THREE.into_iter().find(|name| !ends.contains(name)).unwrap();
    let header = reader.header.clone();
    assert_eq!(reader.dropped_from(other, &header, std::slice::from_ref(&append)), 1);
    assert_eq!(reader.dropped_from(&leader, &header, &[append]), 0);
}

/// A process `b` that is in no group, and gets frames from `a`, whose incarnation is 5.
struct Outsider(World);

impl Outsider {
    fn new() -> Self {
        let mut world = World::empty(MemberOptions::named("test", ["a", "b"].map(name_of)));
        world.start("b");
        Self(world)
    }

    fn me(&mut self) -> u64 {
        self.0.node("b").incarnation()
    }

    /// What it replies to this body from a member of `group`.
    fn gets(&mut self, group: u128, body: &Body) -> Vec<Body> {
        let header = header(5, self.me(), group);
        let frame = frame(&header, body);
        self.0.replies_to("b", "a", &frame)
    }

    fn heartbeat(&mut self) -> Body {
        let (msg_type, to) = (MessageType::MsgHeartbeat, self.me());
        let message = Message { msg_type, to, from: 5, term: 2, ..Message::default() };
        Body::Raft(RaftMessage::of(message).unwrap())
    }
}

#[test]
fn only_engine_messages_admit() {
    let mut outsider = Outsider::new();
    let heartbeat = outsider.heartbeat();
    for (group, body) in [
        (9, request()),
        (9, Body::ChunkAck { transfer: 1, received: 1 }),
        (0, request()),
        (0, heartbeat.clone()),
    ] {
        let before = outsider.0.node("b").sizes(0).frames_dropped;
        outsider.gets(group, &body);
        assert_eq!(outsider.0.status("b").group, None, "{group} {body:?}");
        assert_eq!(outsider.0.node("b").sizes(0).frames_dropped, before + 1, "{group} {body:?}");
    }
    outsider.gets(9, &heartbeat);
    assert_eq!(outsider.0.status("b").group, Some(9));
    assert!(!outsider.0.group("b").votes(), "it knows nothing yet");
}

/// A process that joined instead would have no vote, and the group too few.
#[test]
fn first_frame_of_a_pledged_group_founds_it() {
    let mut outsider = Outsider::new();
    let members = vec![("a".into(), 5), ("b".into(), outsider.me())];
    let forming = Forming { id: 9, members, table: TableConfig::default() };
    assert_eq!(outsider.gets(0, &Body::Invite(forming)), [Body::Pledge { forming: 9 }]);
    let heartbeat = outsider.heartbeat();
    outsider.gets(9, &heartbeat);
    assert_eq!(outsider.0.status("b").group, Some(9));
    assert!(outsider.0.group("b").votes());
}
