//! Goal: how a leader treats its peers: caught-up learners, one change of members at a time, no
//! streaming to an unreachable peer.
//! Method: three groups, without nodes and without a network; the test carries every message.

use raft::eraftpb::MessageType;

use super::{
    THREE, ends_of_log, ready,
    trio::{ALL, Trio},
    world::name_of,
};
use crate::member::{entry::MemberChange, wire::Body};

const LEARNER: u64 = 4;

fn learn() -> MemberChange {
    MemberChange::Learn { id: LEARNER, name: "m4".into() }
}

#[test]
fn leader_alone_proposes_one_change_at_a_time() {
    let mut trio = Trio::led_by_the_first();
    assert!(!trio.group(2).propose_change(&learn()), "it follows");
    assert!(trio.group(1).propose_change(&learn()));
    assert!(!trio.group(1).propose_change(&MemberChange::Forget { id: 3 }), "one is in progress");
    trio.deliver(&ALL);
    trio.settle(1, &ALL);
    assert_eq!(trio.group(2).learners(), [LEARNER]);
    assert!(trio.group(1).propose_change(&MemberChange::Forget { id: LEARNER }), "it is over");
}

/// A leader with a learner that has acknowledged all that is committed.
fn with_learner() -> Trio {
    let mut trio = Trio::led_by_the_first();
    assert!(trio.group(1).propose_change(&learn()));
    trio.deliver(&ALL);
    trio.settle(1, &ALL);
    assert!(!trio.group(1).has_caught_up(LEARNER), "it was never heard");
    let has = committed(&mut trio);
    let term = trio.group(1).term();
    let mut acknowledgement = raft::eraftpb::Message {
        msg_type: MessageType::MsgAppendResponse,
        from: LEARNER,
        to: 1,
        term,
        ..Default::default()
    };
    acknowledgement.index = has;
    trio.step(acknowledgement);
    assert!(trio.group(1).has_caught_up(LEARNER));
    trio
}

fn committed(trio: &mut Trio) -> u64 {
    ends_of_log(trio.group(1)).1
}

/// The vote of a learner that lags would cost availability.
#[test]
fn learner_may_lag_64_entries() {
    let mut trio = with_learner();
    let has = committed(&mut trio);
    for nonce in 1.. {
        let behind = committed(&mut trio) - has;
        assert_eq!(trio.group(1).has_caught_up(LEARNER), behind <= 64, "{behind} behind");
        if behind > 70 {
            break;
        }
        trio.append_lock(1, nonce);
        trio.deliver(&ALL);
    }
    assert!(!trio.group(1).has_caught_up(9), "no learner");
}

/// The short election timeout is 15 ticks; ten have passed.
#[test]
fn learner_may_lag_what_a_timeout_commits() {
    let mut trio = with_learner();
    let ticks = |trio: &mut Trio, ticks| {
        for _ in 0..ticks {
            trio.group(1).tick(1);
            trio.deliver(&ALL);
        }
    };
    ticks(&mut trio, 34);
    for nonce in 1..=100 {
        trio.append_lock(1, nonce);
        trio.deliver(&ALL);
    }
    for (after, has_caught_up) in [(0, true), (1, true), (14, true), (1, false)] {
        ticks(&mut trio, after);
        assert_eq!(trio.group(1).has_caught_up(LEARNER), has_caught_up, "{after} ticks later");
    }
}

/// Raft §6.
#[test]
fn removed_leader_steps_down() {
    let mut trio = Trio::led_by_the_first();
    assert!(trio.group(1).propose_change(&MemberChange::Forget { id: 3 }));
    trio.deliver(&ALL);
    trio.settle(1, &ALL);
    assert!(trio.group(1).is_leader(), "another was removed");
    assert!(trio.group(1).propose_change(&MemberChange::Forget { id: 1 }));
    trio.deliver(&ALL);
    assert!(!trio.group(1).is_leader());
}

/// When each of the first two hundred ticks said something, for a member without replies; with
/// `leaps`, the quiet ones are made at once.
fn speaks(id: u64, leaps: bool) -> (Vec<u32>, Vec<u32>) {
    let mut trio = Trio::led_by_the_first();
    trio.deliver(&ALL);
    let (mut at, mut spoke, mut leaders) = (0, Vec::new(), Vec::new());
    while at < 200 {
        let ticks = if leaps { trio.group(id).quiet_ticks() + 1 } else { 1 };
        at += ticks;
        if ticks > 1 {
            trio.group(id).tick(ticks - 1);
            assert!(trio.drain(id).is_empty(), "{ticks} ticks to {at} were not all quiet");
        }
        trio.group(id).tick(1);
        if !trio.drain(id).is_empty() {
            spoke.push(at);
        }
        if trio.group(id).is_leader() {
            leaders.push(at);
        }
    }
    let last = leaders.last().copied().into_iter().collect();
    (spoke, last)
}

#[test]
fn quiet_ticks_only_count() {
    for id in [1, 2] {
        let (spoke, leads) = speaks(id, false);
        let (leaping, leaping_leads) = speaks(id, true);
        assert_eq!(leaping, spoke, "member {id}");
        assert!(spoke.len() > 3);
        // A leader without replies looks for its quorum at its own time.
        assert_eq!(leaping_leads.is_empty(), leads.is_empty());
    }
}

#[test]
fn quiet_ticks_end_before_the_heartbeat() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    // A heartbeat of the leader, which says that it leads.
    while trio.group(1).quiet_ticks() > 0 {
        trio.group(1).tick(1);
    }
    trio.group(1).tick(1);
    trio.deliver(&ALL);
    assert_eq!((trio.group(1).quiet_ticks(), trio.group(2).quiet_ticks()), (4, 6));
    assert!(trio.group(1).transfer_leadership());
    assert!(!trio.group(1).transfer_leadership(), "one is in progress");
    assert_eq!(trio.group(1).quiet_ticks(), 0, "in the middle of a transfer");
}

/// The receiver of the leadership that the first group passes on.
fn transferee(trio: &mut Trio) -> Option<u64> {
    assert!(trio.group(1).transfer_leadership());
    let messages = trio.drain(1).into_iter();
    messages.filter(|m| m.msg_type == MessageType::MsgTimeoutNow).map(|m| m.to).next()
}

#[test]
fn leadership_goes_to_a_voter() {
    let mut trio = Trio::led_by_the_first();
    assert!(trio.group(1).propose_change(&learn()));
    trio.deliver(&ALL);
    trio.settle(1, &ALL);
    let acknowledgement = raft::eraftpb::Message {
        msg_type: MessageType::MsgAppendResponse,
        from: LEARNER,
        to: 1,
        term: trio.group(1).term(),
        index: ends_of_log(trio.group(1)).0,
        ..Default::default()
    };
    trio.step(acknowledgement);
    assert_eq!(transferee(&mut trio), Some(3), "the learner has as much and a greater id");
}

#[test]
fn leadership_goes_to_an_active_voter() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    for _ in 0..4 {
        trio.settle(1, &[(1, 2), (2, 1)]);
    }
    assert_eq!(transferee(&mut trio), Some(2), "the third has as much and is silent");
}

/// A closed connection is reported by the channel, under the name of its peer.
#[test]
fn leader_streams_to_reachable_peers() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let other = THREE.into_iter().find(|name| *name != leader && *name != follower);
    world.cut_one_way(&follower, &leader);
    world.run(20);
    world.node(&leader).unreachable(&name_of(&follower));
    let mut appends = [0, 0];
    for nonce in 1..6 {
        world.lock(&leader, &format!("k{nonce}"), nonce, 0);
        world.run(1);
        for (to, count) in [&*follower, other.unwrap()].iter().zip(&mut appends) {
            let bodies = world.in_flight(&leader, to).into_iter();
            let append = |body: &Body| match body {
                Body::Raft(message) => {
                    let message = message.clone().into_message();
                    message.msg_type == MessageType::MsgAppend && !message.entries.is_empty()
                }
                _ => false,
            };
            *count += bodies.filter(append).count();
        }
    }
    assert_eq!(appends, [1, 5]);
}
