//! Goal: when members learn of a commit, and by how many frames: at once where two members are a
//! majority, or where they wait for it; with the next heartbeat otherwise.
//! Method: three groups, of which the test carries every message; and whole clusters whose frames
//! take a known time.

use std::time::Duration;

use raft::eraftpb::{Entry, Message, MessageType};

use super::{
    FIVE, ends_of_log, ready,
    trio::{ALL, Trio},
    world::World,
};
use crate::member::{
    entry::MemberChange,
    group::Invalid,
    wire::{Body, RaftMessage},
};

/// How many milliseconds a lock of `at` and its unlock take, where a frame takes ten.
fn takes(world: &mut World, at: &str) -> (u64, u64) {
    world.run(100);
    world.latency = Duration::from_millis(10);
    let locking = world.lock(at, "k", 1, 0);
    let lock = world.run_until(1_000, "a lock", |w| w.replies.contains_key(&locking));
    let unlocking = world.unlock(at, "k", 1);
    let unlock = world.run_until(1_000, "an unlock", |w| w.replies.contains_key(&unlocking));
    (lock, unlock)
}

/// To the leader, and back with the entry.
#[test]
fn any_of_three_locks_in_one_round_trip() {
    for number in [2, 3] {
        let mut world = ready(&FIVE[..number]);
        let (leader, follower) = (world.leader().unwrap(), world.follower());
        for at in [leader, follower] {
            let (lock, unlock) = takes(&mut world, &at);
            assert!((20..=22).contains(&lock) && (20..=22).contains(&unlock), "{lock} {unlock}");
        }
    }
}

#[test]
fn follower_of_five_needs_two_round_trips() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let (lock, unlock) = takes(&mut world, &leader);
    assert!((20..=22).contains(&lock) && (20..=22).contains(&unlock), "{lock} {unlock}");
    let (lock, unlock) = takes(&mut world, &follower);
    assert_eq!((lock, unlock), (41, 41), "to the millisecond: it leaves in the turn of the commit");
}

/// How many appends without entries the leader sends to each of the others while `at` locks and
/// unlocks twenty times. The engine sends one if a reply to a heartbeat comes while an entry is in
/// flight.
fn advertised(world: &mut World, names: &[&str], at: &str) -> Vec<(String, u32)> {
    const BY_HEARTBEATS: u32 = 10;
    let leader = world.leader().unwrap();
    let others = names.iter().filter(|name| **name != leader);
    let mut counts: Vec<(String, u32)> = others.map(|name| ((*name).into(), 0)).collect();
    let advertises = |body: &Body| match body {
        Body::Raft(message) => {
            let message = message.clone().into_message();
            message.msg_type == MessageType::MsgAppend && message.entries.is_empty()
        }
        _ => false,
    };
    for nonce in 0..40 {
        let nonce = 100 * u128::from(at == leader) + nonce;
        let caller = match nonce % 2 {
            0 => world.lock(at, "k", nonce / 2, 0),
            _ => world.unlock(at, "k", nonce / 2),
        };
        // Runs until the reply is there, and a little longer.
        let mut left = 5;
        while left > 0 {
            world.run(1);
            for (name, count) in &mut counts {
                let frames = world.in_flight(&leader, name);
                *count += u32::from(frames.iter().any(advertises));
            }
            left -= u64::from(world.replies.contains_key(&caller));
        }
    }
    counts.retain(|(_, count)| *count > BY_HEARTBEATS);
    counts
}

/// No other frame and no reply to one advertises it.
#[test]
fn commit_is_advertised_once_to_waiters_alone() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.run(100);
    assert_eq!(advertised(&mut world, &FIVE, &leader), []);
    let counts = advertised(&mut world, &FIVE, &follower);
    let [(name, times)] = &counts[..] else { panic!("to it alone: {counts:?}") };
    assert!(*name == follower && (40..50).contains(times), "{counts:?}");
    // The others know it by the next heartbeat.
    world.run(100);
    let (last, committed) = ends_of_log(world.group(&follower));
    assert_eq!(last, committed);
}

#[test]
fn three_members_advertise_no_commit() {
    let mut world = ready(&FIVE[..3]);
    world.run(100);
    for at in [world.leader().unwrap(), world.follower()] {
        assert_eq!(advertised(&mut world, &FIVE[..3], &at), []);
    }
}

/// Each with its own commit, not with the one before.
#[test]
fn followers_commits_are_advertised_at_once() {
    for phase in 0..6 {
        let mut world = ready(&FIVE);
        let follower = world.follower();
        world.must_lock(&follower, "b", 2);
        world.run(200 + 8 * phase);
        world.latency = Duration::from_millis(5);
        world.lock(&follower, "a", 1, 0);
        world.run(3);
        let second = world.unlock(&follower, "b", 2);
        let took = world.run_until(100, "the second", |w| w.replies.contains_key(&second));
        assert_eq!(took, 21);
    }
}

/// And not with the next heartbeat, whenever that comes.
#[test]
fn grant_is_advertised_at_once() {
    for phase in 0..6 {
        let mut world = ready(&FIVE);
        let (leader, follower) = (world.leader().unwrap(), world.follower());
        world.must_lock(&leader, "k", 1);
        let waiting = world.lock(&follower, "k", 2, 60_000);
        world.run(200 + 8 * phase);
        world.latency = Duration::from_millis(5);
        world.unlock(&leader, "k", 1);
        let took = world.run_until(100, "its turn", |w| w.replies.contains_key(&waiting));
        assert_eq!(took, 16);
    }
}

/// A holder learns at once that its lock is lost, whichever process unlocked it.
#[test]
fn foreign_unlock_reaches_the_holder() {
    for (phase, by_leader) in (0..12).map(|n| (n / 2, n % 2 == 0)) {
        let mut world = ready(&FIVE);
        let (leader, holder) = (world.leader().unwrap(), world.follower());
        let third = FIVE.into_iter().find(|name| ![&*leader, &*holder].contains(name)).unwrap();
        world.must_lock(&holder, "k", 1);
        world.run(200 + 8 * phase);
        world.latency = Duration::from_millis(2);
        world.unlock(if by_leader { &leader } else { third }, "k", 1);
        let took = world.run_until(100, "the loss", |w| !w.lost.is_empty());
        assert_eq!(took, if by_leader { 7 } else { 9 }, "{phase}");
    }
}

/// The link to the second member, without a way back.
const TO_THE_SECOND: [(u64, u64); 1] = [(1, 2)];

#[test]
fn second_of_three_with_an_entry_commits_it() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    trio.append_lock(1, 9);
    trio.deliver(&TO_THE_SECOND);
    assert!(trio.was_granted(2, 9));
    assert!(!trio.was_granted(1, 9) && !trio.was_granted(3, 9));
    // The next leader has it.
    let leader = trio.elect(&[(2, 3), (3, 2)]);
    assert_eq!(leader, 2);
    trio.settle(2, &ALL);
    assert!(trio.was_granted(1, 9) && trio.was_granted(3, 9));
}

/// Raft §5.4.2: it may yet be overwritten.
#[test]
fn earlier_terms_entry_commits_later() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    trio.append_lock(1, 9);
    let appends = |m: &Message| m.to == 2 && m.msg_type == MessageType::MsgAppend;
    let mut append = trio.drain(1).into_iter().find(appends).expect("it is sent");
    // The leader of a later term sends it so, before its own first entry.
    append.term += 1;
    trio.step(append);
    let has =
        trio.drain(2).iter().any(|m| m.msg_type == MessageType::MsgAppendResponse && !m.reject);
    assert!(has && !trio.was_granted(2, 9));
}

#[test]
fn pending_change_leaves_commits_to_leader() {
    const FROM_THE_FIRST: [(u64, u64); 2] = [(1, 2), (1, 3)];
    for before in [true, false] {
        let mut trio = Trio::led_by_the_first();
        trio.settle(1, &ALL);
        let learn = MemberChange::Learn { id: 4, name: "m4".into() };
        assert!(trio.group(1).propose_change(&learn));
        if before {
            trio.deliver(&FROM_THE_FIRST);
        }
        trio.append_lock(1, 9);
        trio.deliver(&FROM_THE_FIRST);
        assert!(!trio.was_granted(2, 9) && trio.group(2).learners().is_empty(), "{before}");
        trio.settle(1, &ALL);
        assert!(trio.was_granted(2, 9) && trio.group(2).learners() == [4], "{before}");
        // The change is applied.
        trio.append_lock(1, 10);
        trio.deliver(&FROM_THE_FIRST);
        trio.drain(2);
        assert_eq!(ends_of_log(trio.group(2)).0, ends_of_log(trio.group(2)).1);
    }
}

/// The former leader did not get the change by a message.
#[test]
fn own_pending_change_binds_a_former_leader() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    assert!(trio.group(1).propose_change(&MemberChange::Learn { id: 4, name: "m4".into() }));
    trio.deliver(&TO_THE_SECOND);
    trio.step_down();
    assert_eq!(trio.elect(&[(2, 3), (3, 2)]), 2, "it has the change");
    let first = |trio: &mut Trio| ends_of_log(trio.group(1));
    let (last, committed) = first(&mut trio);
    trio.deliver(&ALL);
    // The second's heartbeat brings the first back to it, with the entry of its term.
    for _ in 0..10 {
        trio.group(2).tick(1);
        let said = trio.drain(2);
        said.into_iter().filter(|m| m.to == 1).for_each(|mut m| {
            m.commit = m.commit.min(committed);
            trio.step(m);
        });
        let said = trio.drain(1);
        said.into_iter().filter(|m| m.to == 2).for_each(|m| trio.step(m));
    }
    assert_eq!(first(&mut trio), (last + 1, committed));
}

/// Also if it still leads when it takes the entry: it proposed the change itself.
#[test]
fn own_pending_change_binds_a_deposed_leader() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    let ((index, committed), term) = (ends_of_log(trio.group(1)), trio.group(1).term());
    assert!(trio.group(1).propose_change(&MemberChange::Learn { id: 4, name: "m4".into() }));
    trio.drain(1);
    let entry = Entry { index: index + 2, term: term + 1, ..Entry::default() };
    trio.step(Message {
        msg_type: MessageType::MsgAppend,
        from: 2,
        to: 1,
        term: term + 1,
        index: index + 1,
        log_term: term,
        entries: vec![entry].into(),
        ..Message::default()
    });
    assert_eq!(
        (ends_of_log(trio.group(1)), trio.group(1).is_leader()),
        ((index + 2, committed), false)
    );
}

/// A forged one: the engine would end the member.
#[test]
fn fresh_commit_is_not_contradicted() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    trio.append_lock(1, 9);
    let appends = |m: &Message| m.to == 2 && m.msg_type == MessageType::MsgAppend;
    let append = trio.drain(1).into_iter().find(appends).expect("it is sent");
    let mut forged = append.clone();
    forged.term += 1;
    forged.mut_entries()[0].term += 1;
    // No drain between them.
    trio.step(append);
    let refused = trio.group(2).step(RaftMessage::of(forged).unwrap());
    assert_eq!(refused, Err(Invalid::Committed));
    trio.drain(2);
    assert!(trio.was_granted(2, 9));
}
