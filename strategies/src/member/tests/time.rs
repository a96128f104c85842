//! Goal: cluster time, and what a holder counts from (contract, rules 2 to 4).
//! Method: frames that travel for long, a leader that is cut off at a chosen moment, and the stamps
//! of the log, entry by entry.

use std::time::Duration;

use super::{
    FIVE, THREE, ready,
    world::{LATENCY, LEASE, World},
};
use crate::{
    client::calls::Reply,
    clock::Instant,
    deadline::{Drift, granted_deadline},
    lock::{Lock, Nonce},
};

/// The local deadline of a grant.
fn deadline(world: &World, call: u64) -> Instant {
    match &world.replies[&call] {
        Reply::Granted { lock, .. } => lock.deadline().unwrap(),
        other => panic!("it was {other:?}"),
    }
}

/// The stamps of a member's log, in its order.
fn stamps(world: &World, name: &str) -> Vec<u64> {
    let group = world.group(name);
    let view = group.view();
    let entries = (view.start.0 + 1..=view.last.0).filter_map(|index| group.entry(index));
    entries.filter_map(|entry| entry.commands()).map(|(stamp, _)| stamp.0).collect()
}

#[test]
fn grant_counts_from_before_the_first_send() {
    let mut world = ready(&THREE);
    world.latency = Duration::from_millis(40);
    let names = [world.leader().unwrap(), world.follower()];
    for (nonce, name) in (1..).zip(names) {
        let asked = world.now;
        let caller = world.lock(&name, &format!("k{nonce}"), nonce, 5_000);
        world.run_until(2_000, "granted", |w| w.granted(caller).is_some());
        assert!(world.now.since(asked) >= Duration::from_millis(80));
        let (sent, drift) = (asked.after(LATENCY), Drift::default());
        let latest = granted_deadline(sent, sent, Duration::ZERO, LEASE, drift);
        assert!(deadline(&world, caller) <= latest, "{name} counts from its reply");
    }
}

#[test]
fn extend_counts_from_before_the_first_send() {
    let mut world = ready(&THREE);
    let follower = world.follower();
    let grant = world.must_lock(&follower, "k", 1);
    world.latency = Duration::from_millis(40);
    let asked = world.now;
    let lock = Lock::new("k", Nonce::from_u128(1), grant.token, None);
    let caller = world.extend(&follower, lock, 20_000);
    world.run_until(2_000, "extended", |w| w.replies.contains_key(&caller));
    let Reply::Extended { sent, .. } = world.replies[&caller] else {
        panic!("it was {:?}", world.replies[&caller]);
    };
    assert!(world.now.since(asked) >= Duration::from_millis(80));
    assert!(sent.since(asked) <= LATENCY, "counts from {:?}", sent.since(asked));
}

/// A change of leader lengthens a lease by at most this and the time without a leader.
#[test]
fn lease_commits_a_stamp_every_500_ms() {
    let mut world = ready(&THREE);
    let leader = world.leader().unwrap();
    world.must_lock(&leader, "k", 1);
    let before = THREE.map(|name| stamps(&world, name).len());
    world.run(4_000);
    for (name, before) in THREE.into_iter().zip(before) {
        let stamps = &stamps(&world, name)[before..];
        assert!((7..=9).contains(&stamps.len()), "{name}: {stamps:?}");
        assert!(stamps.windows(2).all(|two| two[1] - two[0] <= 510), "{name}: {stamps:?}");
    }
    world.must_unlock(&leader, "k", 1);
    let before = stamps(&world, &leader).len();
    world.run(4_000);
    assert!(stamps(&world, &leader).len() <= before + 1, "no lease lives: no stamp is due");
}

/// The uncommitted entries of a former leader are part of the log that its successor continues.
#[test]
fn stamps_never_fall_across_a_leader_change() {
    // A follower of three that gets an entry commits it.
    let mut world = ready(&FIVE);
    let leader = world.leader().unwrap();
    let others: Vec<&str> = FIVE.into_iter().filter(|name| *name != leader).collect();
    world.must_lock(&leader, "k", 1);
    world.must_unlock(&leader, "k", 1);
    world.run(100);
    let applied = world.group(others[0]).table().now();
    // No lease lives: no stamp is committed for long, and the next lies far ahead.
    world.run(6_000);
    // Two followers get the entry; the acknowledgements do not come back.
    for (number, other) in others.iter().enumerate() {
        if number < 2 {
            world.cut_one_way(other, &leader);
        } else {
            world.cut_off(other);
        }
    }
    world.lock(&leader, "k", 2, 5_000);
    world.run(5);
    let ahead = *stamps(&world, others[0]).last().unwrap();
    assert_eq!(world.group(others[0]).table().now(), applied, "it is not committed");
    assert!(ahead >= applied.0 + 5_000, "{ahead} after {applied:?}");
    world.kill(&leader);
    world.heal();
    world.run_until(3_000, "a new leader", |w| w.leader().is_some_and(|name| name != leader));
    world.must_lock(others[0], "other", 3);
    let stamps = stamps(&world, others[0]);
    assert!(stamps.contains(&ahead), "the entry has survived");
    assert!(stamps.windows(2).all(|two| two[0] <= two[1]), "{stamps:?}");
}

/// Contract, rule 3: leases due are ended at once where a waiter exists.
#[test]
fn leader_alone_wakes_for_a_lease_end() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let first = world.must_lock(&leader, "k", 1);
    let waiting = world.lock(&follower, "k", 2, 60_000);
    world.run(9_800);
    let wakes = world.node(&leader).next_wake().expect("the lease ends soon");
    assert_eq!(world.node(&follower).next_wake(), None, "it stamps nothing");
    world.run_until(1_000, "granted", |w| w.granted(waiting).is_some());
    let grant = world.granted(waiting).unwrap();
    assert_eq!(grant.granted_at, first.expires_at, "not a millisecond later");
    let after = world.now.since(wakes);
    assert!(after <= LATENCY * 4, "it learns of it {after:?} after the leader was to wake");
}

/// So that followers seldom stand at one time, and a seed replays.
#[test]
fn elections_spread_over_150_to_300_ms() {
    let elections = || {
        let mut world = ready(&THREE);
        let mut took = Vec::new();
        for _ in 0..24 {
            let leader = world.leader().unwrap();
            world.run(60);
            world.kill(&leader);
            took.push(world.run_until(2_000, "a new leader", |w| w.leader().is_some()));
            world.start(&leader);
            world.run_until_ready();
        }
        took
    };
    let took = elections();
    // The last heartbeat may be 50 ms old, and the votes take a few.
    let soonest = took.iter().min().unwrap();
    assert!(*soonest >= 100 && *soonest < 180, "{took:?}");
    // Two that stand at one time stand again, after 300 ms at the least.
    let between = took.iter().filter(|took| (175..280).contains(*took)).count();
    assert!(between >= 6, "{took:?}");
    assert_eq!(elections(), took);
}

/// Contract, rule 3: no change of leader shortens a lease. Without a leader no cluster time
/// passed; a former leader's own clock went on.
#[test]
fn reelected_leader_continues_from_the_log() {
    let mut world = ready(&THREE);
    let first = world.leader().unwrap();
    world.must_lock(&first, "warm", 1);
    THREE.iter().for_each(|name| world.cut_off(name));
    world.run(3_000);
    world.heal();
    world.run_until(3_000, "a leader", |w| w.leader().is_some());
    for _ in 0..20 {
        let leader = world.leader().unwrap();
        world.must_lock(&leader, "k", 2);
        world.must_unlock(&leader, "k", 2);
        world.run(10);
        let (before, stamp) = (world.now, world.group(&leader).table().now());
        assert!(world.node(&leader).transfer_leadership());
        world.run_until(3_000, "another leads", |w| w.leader().is_some_and(|name| name != leader));
        let next = world.leader().unwrap();
        world.run(50);
        let passed = world.group(&next).table().now().since(stamp);
        let real = world.now.since(before).as_millis();
        assert!(u128::from(passed) <= real + 20, "{passed} ms of {real}");
        if next == first && leader != first {
            return;
        }
    }
    panic!("the first never led again");
}

/// Any change or election has work at each tick.
#[test]
fn only_settled_groups_skip_ticks() {
    let quiet = |world: &mut World, name: &str| world.node(name).quiet_ticks() > 0;
    let mut world = ready(&THREE);
    world.run(100);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let other = THREE.into_iter().find(|name| *name != leader && *name != follower).unwrap();
    assert!(quiet(&mut world, &follower));
    // The new incarnation learns, and takes the vote of the old one in a joint change.
    world.kill(&follower);
    world.start(&follower);
    let mut changed = false;
    while !world.status(&follower).ready {
        world.run(1);
        for name in [&leader, other, &follower] {
            let Some(group) = world.node(name).group() else {
                assert!(!quiet(&mut world, name));
                continue;
            };
            let whole = group.votes() && group.is_settled() && group.learners().is_empty();
            changed |= !whole;
            assert!(whole || !quiet(&mut world, name), "{name} in the middle of a change");
        }
    }
    assert!(changed);
    world.run(100);
    assert!(quiet(&mut world, &follower));
    world.kill(&leader);
    world.run_until(1_000, "no leader", |w| w.status(&follower).leader.is_none());
    assert!(!quiet(&mut world, &follower));
}

#[test]
fn quiet_ticks_delay_no_retransmission() {
    let mut world = ready(&THREE);
    world.run(100);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.cut_one_way(&follower, &leader);
    world.lock(&follower, "k", 1, 60_000);
    world.run(1);
    let asked = world.now;
    for pause in [100, 300] {
        let wakes = world.next_wake(&follower);
        assert_eq!(wakes, Some(asked.after(Duration::from_millis(pause))));
        world.run(pause - world.now.since(asked).as_millis() as u64);
    }
}
