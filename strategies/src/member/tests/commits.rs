//! Goal: who learns of a commit, when, and by how many frames: at once where two members are a
//! majority, or because it waits for it; with the next heartbeat otherwise.
//! Method: three groups, of which the test carries every message; and whole clusters whose frames take
//! a known time.

use std::time::Duration;

use raft::eraftpb::{Message, MessageType};

use super::{
    original::{ALL, Trio},
    world::World,
};
use crate::member::{entry::MemberChange, wire::Body};

const FIVE: [&str; 5] = ["a", "b", "c", "d", "e"];

fn ready(names: &[&str]) -> World {
    let mut world = World::new(names);
    world.run_until_ready();
    world
}

/// How many milliseconds a lock of `at` and its unlock take, where a frame takes ten.
fn takes(world: &mut World, at: &str) -> (u64, u64) {
    world.run(100);
    world.latency = Duration::from_millis(10);
    let locking = world.lock(at, "k", 1, 0);
    let lock = world.run_until(1_000, "a lock", |w| w.answers.contains_key(&locking));
    let unlocking = world.unlock(at, "k", 1);
    let unlock = world.run_until(1_000, "an unlock", |w| w.answers.contains_key(&unlocking));
    (lock, unlock)
}

/// To the leader, and back with the entry.
#[test]
fn in_a_group_of_three_any_member_locks_in_one_round_trip() {
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
fn in_a_group_of_five_a_follower_is_told_of_its_commit_and_the_leader_locks_in_one_round_trip() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let (lock, unlock) = takes(&mut world, &leader);
    assert!((20..=22).contains(&lock) && (20..=22).contains(&unlock), "{lock} {unlock}");
    let (lock, unlock) = takes(&mut world, &follower);
    assert!((40..=43).contains(&lock) && (40..=43).contains(&unlock), "{lock} {unlock}");
}

/// Neither by a frame of its own, nor by an answer to one.
#[test]
fn who_waits_for_nothing_is_not_told() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.run(10);
    let heard = world.group(&leader).ends_of_log().1;
    world.latency = Duration::from_millis(10);
    let locking = world.lock(&leader, "k", 1, 0);
    world.run_until(1_000, "a lock", |w| w.answers.contains_key(&locking));
    let appends = |body: &Body| matches!(body, Body::Raft(m) if m.clone().into_message().msg_type == MessageType::MsgAppend);
    assert!(!world.under_way(&leader, &follower).iter().any(appends));
    assert_eq!(world.group(&follower).ends_of_log(), (heard + 1, heard));
    // The next heartbeat says it.
    world.run(100);
    assert_eq!(world.group(&follower).ends_of_log(), (heard + 1, heard + 1));
}

/// A holder hears at once that its lock is gone, whoever gave it up.
#[test]
fn who_loses_a_lock_is_told_although_another_member_unlocked_it() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.must_lock(&follower, "k", 1);
    world.run(1_000);
    world.latency = Duration::from_millis(2);
    let unlocking = world.unlock(&leader, "k", 1);
    world.run_until(10, "an unlock", |w| w.answers.contains_key(&unlocking));
    assert!(world.lost.is_empty());
    world.run(3);
    assert_eq!(world.lost.len(), 1);
}

#[test]
fn who_is_told_of_a_commit_that_it_waits_for_does_not_answer() {
    let mut world = ready(&FIVE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.run(100);
    world.latency = Duration::from_millis(1);
    let locking = world.lock(&follower, "k", 1, 0);
    world.run_until(1_000, "a lock", |w| w.answers.contains_key(&locking));
    assert!(
        world.under_way(&follower, &leader).is_empty(),
        "{:?}",
        world.under_way(&follower, &leader)
    );
}

/// What the second member gets of the leader, without the leader's ever hearing of it.
const TO_THE_SECOND: [(u64, u64); 1] = [(1, 2)];

#[test]
fn of_three_the_second_that_has_an_entry_makes_it_committed() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    trio.append_lock(1, 9);
    trio.deliver(&TO_THE_SECOND);
    assert!(trio.was_granted(2, 9));
    assert!(!trio.was_granted(1, 9) && !trio.was_granted(3, 9));
    // Whoever leads next has it.
    let leader = trio.elect(&[(2, 3), (3, 2)]);
    assert_eq!(leader, 2);
    trio.settle(2, &ALL);
    assert!(trio.was_granted(1, 9) && trio.was_granted(3, 9));
}

/// Raft §5.4.2: it may yet be overwritten.
#[test]
fn an_entry_of_an_earlier_term_is_not_committed_by_being_in_two_logs() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    trio.append_lock(1, 9);
    let appends = |m: &Message| m.to == 2 && m.msg_type == MessageType::MsgAppend;
    let mut append = trio.drain(1).into_iter().find(appends).expect("it is sent");
    // As the leader of a later term sends it, before an entry of its own.
    append.term += 1;
    trio.step(append);
    let has =
        trio.drain(2).iter().any(|m| m.msg_type == MessageType::MsgAppendResponse && !m.reject);
    assert!(has && !trio.was_granted(2, 9));
}

#[test]
fn while_a_change_of_members_is_not_applied_the_leader_alone_says_what_is_committed() {
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
        // It is applied.
        trio.append_lock(1, 10);
        trio.deliver(&FROM_THE_FIRST);
        trio.drain(2);
        assert_eq!(trio.group(2).ends_of_log().0, trio.group(2).ends_of_log().1);
    }
}

/// It did not get the change by a message.
#[test]
fn so_it_is_for_a_former_leader_that_proposed_the_change() {
    let mut trio = Trio::led_by_the_first();
    trio.settle(1, &ALL);
    assert!(trio.group(1).propose_change(&MemberChange::Learn { id: 4, name: "m4".into() }));
    trio.deliver(&TO_THE_SECOND);
    trio.step_down();
    assert_eq!(trio.elect(&[(2, 3), (3, 2)]), 2, "it has the change");
    let first = |trio: &mut Trio| trio.group(1).ends_of_log();
    let (last, committed) = first(&mut trio);
    trio.deliver(&ALL);
    // The second's heartbeat brings the first back to it, with the entry of its term.
    for _ in 0..10 {
        let now = trio.now;
        trio.group(2).tick(now, 1);
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
