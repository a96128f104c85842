//! The pitfalls of the engine, one by one.

use std::time::Duration;

use super::{THREE, ready, world::World};

/// Three members, all ready, that compact a log of 50 entries to ten.
fn small_log() -> World {
    let mut world = World::compacting(&THREE, 50, 10);
    world.run_until_ready();
    world
}

/// The same, holding 399 keys: a snapshot of them is sent in pieces.
fn long_snapshot() -> World {
    let mut world = small_log();
    let leader = world.leader().unwrap();
    let name = "x".repeat(900);
    for nonce in 1..400 {
        world.lock(&leader, &format!("{name}{nonce}"), nonce, 1_000);
    }
    world.run(500);
    world
}

/// After a snapshot a member compares its locks with the restored table: effects were skipped.
#[test]
fn lock_ended_by_a_snapshot_is_lost() {
    let mut world = small_log();
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.must_lock(&follower, "freed", 1);
    world.must_lock(&follower, "kept", 2);
    world.cut_off(&follower);
    // A lock may be transferred to another process, which unlocks it.
    world.must_unlock(&leader, "freed", 1);
    for nonce in 100..300 {
        world.must_lock(&leader, "other", nonce);
        world.must_unlock(&leader, "other", nonce);
    }
    assert!(world.group(&leader).view().start.0 > world.group(&follower).view().last.0);
    assert!(world.lost.is_empty(), "it has not heard of it");
    world.heal();
    world.run(2_000);
    assert_eq!(world.lost, [(follower.clone(), crate::lock::Nonce::from_u128(1))]);
    world.must_unlock(&follower, "kept", 2);
}

#[test]
fn lost_snapshot_does_not_block_a_follower() {
    for lose in 2..7 {
        let mut world = small_log();
        let (leader, follower) = (world.leader().unwrap(), world.follower());
        world.cut_off(&follower);
        for nonce in 1..100 {
            world.must_lock(&leader, "k", nonce);
            world.must_unlock(&leader, "k", nonce);
        }
        world.heal();
        world.drop_one_in = Some(lose);
        world.run(1_500);
        world.drop_one_in = None;
        let caller = world.lock(&follower, "after", 1_000, 5_000);
        world.run_until(4_000, "the follower takes part again", |w| w.granted(caller).is_some());
    }
}

/// Missed entries are sent in appends, each of which fits into a frame.
#[test]
fn missed_entries_may_exceed_a_frame() {
    let mut world = World::compacting(&THREE, 5_000, 2_500);
    world.run_until_ready();
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.cut_off(&follower);
    let key = "k".repeat(1_000);
    for nonce in 1..1_000 {
        world.must_lock(&leader, &key, nonce);
        world.must_unlock(&leader, &key, nonce);
    }
    let (first, committed) =
        (world.group(&leader).view().start.0, world.group(&leader).view().commit);
    assert!(first < world.group(&follower).view().last.0, "no snapshot is needed");
    world.heal();
    let ms = world.run_until(5_000, "it has caught up", |world| {
        world.group(&follower).view().commit >= committed
    });
    assert!(ms < 200, "after {ms} ms");
}

/// Locks a key, and unlocks the one before by so much.
fn pair(world: &mut World, leader: &str, nonce: u128, before: u128) {
    world.lock(leader, &format!("k{nonce}"), nonce, 1_000);
    world.unlock(leader, &format!("k{}", nonce - before), nonce - before);
}

/// Asserts that the member is ready within as many steps of a load.
fn gets_ready(
    world: &mut World,
    member: &str,
    steps: u128,
    step_ms: u64,
    mut load: impl FnMut(&mut World, u128),
) {
    for step in 0..steps {
        if world.status(member).ready {
            return;
        }
        load(world, step);
        world.run(step_ms);
    }
    panic!("the member is not ready after {steps} steps of load");
}

/// The snapshot and the next entries must meet, although the log is compacted many times over.
#[test]
fn replaced_member_is_ready_under_load() {
    let mut world = long_snapshot();
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.latency = Duration::from_millis(20);
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    gets_ready(&mut world, &victim, 5_000, 1, |world, step| pair(world, &leader, 1_000 + step, 1));
}

/// A member acknowledges the last pieces of a snapshot when it has installed it.
#[test]
fn snapshot_may_take_400_ms_to_install() {
    let mut world = long_snapshot();
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    world.run_until(2_000, "a snapshot is sent", |world| world.is_sent_snapshot(&victim));
    world.slow = Some((victim.clone(), Duration::from_millis(400)));
    gets_ready(&mut world, &victim, 300, 10, |world, step| pair(world, &leader, 1_000 + step, 1));
}

/// Otherwise copies of its pieces take all of the link.
#[test]
fn snapshot_arrives_over_a_slow_link() {
    let mut world = long_snapshot();
    let victim = world.follower();
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    world.narrow = Some((victim.clone(), 300_000, world.now));
    world.run_until(10_000, "the member is ready", |world| world.status(&victim).ready);
    assert_eq!(world.node(&victim).sizes(0).table.keys, 399);
}

/// The learner stays behind by what a busy leader commits in a round trip.
#[test]
fn learner_behind_a_long_link_is_ready_under_load() {
    let mut world = ready(&THREE);
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    world.slow = Some((victim.clone(), Duration::from_millis(20)));
    gets_ready(&mut world, &victim, 5_000, 1, |world, step| {
        (40 * step + 40..40 * step + 80).for_each(|nonce| pair(world, &leader, nonce, 40));
    });
}

/// An append without entries, which a heartbeat provokes, may leave in the turn of the next ones.
#[test]
fn healed_follower_refuses_no_append() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    for ms in 1..5_100 {
        // A heartbeat every 50 ms: one of them is the first frame.
        match ms % 101 {
            0 => world.cut_off(&follower),
            50 => world.heal(),
            _ => {}
        }
        pair(&mut world, &leader, ms, 1);
        world.run(1);
    }
    assert_eq!(THREE.map(|name| world.node(name).sizes(0).frames_dropped), [0; 3]);
}

/// A silent follower costs bounded memory.
#[test]
fn log_kept_for_a_follower_is_bounded() {
    let mut world = long_snapshot();
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let mut longest = 0;
    let mut pairs = |world: &mut World, nonces| {
        for nonce in nonces {
            world.must_lock(&leader, "k", nonce);
            world.must_unlock(&leader, "k", nonce);
            longest = longest.max(world.group(&leader).log_len());
        }
        longest
    };
    world.cut_off(&follower);
    assert!(pairs(&mut world, 1_000..1_100) < 70, "its own log is too short");
    world.heal();
    world.run_until(1_000, "a snapshot is sent", |world| world.is_sent_snapshot(&follower));
    world.cut_off(&follower);
    let longest = pairs(&mut world, 1_100..2_500);
    assert!((1_600..1_620).contains(&longest), "{longest} entries for the follower");
    assert!(world.group(&leader).log_len() < 70, "none once it needs a snapshot");
}

#[test]
fn sole_leader_cannot_transfer_leadership() {
    let mut world = ready(&["a"]);
    assert!(!world.node("a").transfer_leadership());
}
