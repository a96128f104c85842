//! Locks, waiters and leases on whole clusters of nodes.

use std::time::Duration;

use super::{FIVE, THREE, ready, world::World};
use crate::lock_table::Command;

#[test]
fn locks_of_the_leader_leave_no_nonce() {
    let mut world = ready(&THREE);
    let leader = world.leader().unwrap();
    for nonce in 1..200 {
        world.must_lock(&leader, "k", nonce);
        world.must_unlock(&leader, "k", nonce);
    }
    assert_eq!(world.node(&leader).sizes(0).table.nonces_remembered, 0);
}

/// Contract, rule 7: after `waiter_ttl`, and not before.
#[test]
fn silence_of_3_s_is_presumed_death() {
    let mut world = ready(&THREE);
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.must_lock(&leader, "k", 1);
    world.lock(&victim, "k", 2, 60_000);
    world.lock(&leader, "k", 3, 60_000);
    world.run(100);
    world.kill(&victim);
    world.run(2_900);
    assert_eq!(world.node(&leader).sizes(0).table.waiters, 2);
    world.run(300);
    assert_eq!(world.node(&leader).sizes(0).table.waiters, 1, "the leader hears itself");
    world.run(4_000);
    assert_eq!(world.node(&leader).sizes(0).table.waiters, 1);
}

/// Contract, rule 7: a leader that stood still could hear no process.
#[test]
fn standstill_of_the_leader_keeps_the_queue() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let holder = THREE.into_iter().find(|name| *name != leader && *name != follower).unwrap();
    world.must_lock(holder, "k", 1);
    let first = world.lock(&follower, "k", 2, 60_000);
    world.run(100);
    let second = world.lock(&leader, "k", 3, 60_000);
    world.run(100);
    // The leader's tick is the first event after the standstill, and no frame is on its way.
    let is_next = |w: &World| w.now.since_origin().as_millis() % 10 == 9;
    world.run_until(1_000, "a tick is next", |w| {
        is_next(w) && w.in_flight(&follower, &leader).is_empty()
    });
    world.now = world.now.after(Duration::from_secs(4));
    for _ in 0..100 {
        world.run(1);
        assert_eq!(world.node(&leader).sizes(0).table.waiters, 2);
    }
    world.must_unlock(holder, "k", 1);
    world.run_until(500, "the first is granted", |w| w.granted(first).is_some());
    assert!(world.granted(second).is_none());
}

/// A new leader has heard no process yet: all have time from the beginning of its leadership.
#[test]
fn new_leader_gives_silent_processes_time() {
    let mut world = ready(&THREE);
    let leader = world.leader().unwrap();
    let others: Vec<&str> = THREE.into_iter().filter(|name| *name != leader).collect();
    world.must_lock(others[0], "k", 1);
    let waiting = world.lock(others[1], "k", 2, 60_000);
    // Followers do not write to each other.
    world.run(4_000);
    world.kill(&leader);
    world.run_until(2_000, "a new leader", |w| w.leader().is_some());
    for _ in 0..200 {
        world.run(1);
        assert_eq!(world.node(others[0]).sizes(0).table.waiters, 1, "it keeps its position");
    }
    world.must_unlock(others[0], "k", 1);
    world.run_until(200, "it is next", |w| w.granted(waiting).is_some());
}

#[test]
fn single_member_replies_within_the_turn() {
    let mut world = ready(&["a"]);
    world.run(100);
    let caller = world.lock("a", "k", 1, 0);
    world.run(1);
    assert!(world.granted(caller).is_some());
    let caller = world.unlock("a", "k", 1);
    world.run(1);
    assert!(world.replies.contains_key(&caller));
}

#[test]
fn each_dead_process_is_dropped_once_in_time() {
    let mut world = ready(&FIVE);
    let leader = world.leader().unwrap();
    let mut victims = FIVE.into_iter().filter(|name| *name != leader);
    let (first, second) = (victims.next().unwrap(), victims.next().unwrap());
    world.must_lock(&leader, "k", 1);
    world.lock(first, "k", 2, 60_000);
    world.lock(second, "k", 3, 60_000);
    world.run(100);
    world.kill(first);
    world.run(1_500);
    world.kill(second);
    world.run(1_700);
    assert_eq!(world.node(&leader).sizes(0).table.waiters, 1);
    // The command takes longer to be committed than the time from one tick to the next.
    world.latency = Duration::from_millis(20);
    world.run(1_600);
    assert_eq!(world.node(&leader).sizes(0).table.waiters, 0);
    let view = world.group(&leader).view();
    let drops = (view.start.0 + 1..=view.last.0)
        .filter_map(|index| world.group(&leader).entry(index)?.commands())
        .flat_map(|(_, commands)| commands)
        .filter(|command| matches!(command, Command::DropWaiters { .. }));
    assert_eq!(drops.count(), 2);
}
