//! Goal: no promise of a group or an incarnation is made twice, and no member is presumed dead
//! without a proof.
//! Method: whole clusters; frames that are repeated, members that are cut off or start over.

use super::{THREE, frame, header, ready, world::World};
use crate::{
    client::calls::{Call, CallId, Reply, RequestId},
    lock::Nonce,
    lock_table::{Command, LockRequest, ProcessId, Seen, Wait},
    member::wire::Body,
};

/// Silence never proves a loss, however long.
#[test]
fn isolated_voter_stays_in_its_group() {
    let mut world = ready(&THREE);
    let (group, follower) = (world.status("a").group, world.follower());
    world.must_lock(&follower, "k", 1);
    world.cut_off(&follower);
    world.run(8_000);
    assert_eq!(world.status(&follower).group, group);
    world.heal();
    world.run_until_ready();
    assert!(world.lost.is_empty());
    world.must_unlock(&follower, "k", 1);
}

#[test]
fn status_names_each_member_once() {
    let mut world = World::new(&THREE);
    assert!(world.status("a").members.is_empty(), "there is no group yet");
    world.run_until_ready();
    let victim = world.follower();
    let names = |world: &World, of: &str| -> Vec<String> {
        world.status(of).members.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&world, &victim), THREE);
    world.kill(&victim);
    world.start(&victim);
    // Both incarnations of the name are members for a while.
    world.run_until_ready();
    for name in THREE {
        assert_eq!(names(&world, name), THREE);
    }
}

#[test]
fn isolated_learner_starts_over_in_5_s() {
    let mut world = ready(&THREE);
    let victim = world.follower();
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    world.run_until(2_000, "it joins", |w| w.status(&victim).group.is_some());
    assert!(!world.group(&victim).votes());
    world.cut_off(&victim);
    world.run(4_900);
    assert!(world.status(&victim).group.is_some(), "it has patience");
    world.run(200);
    assert_eq!(world.status(&victim).group, None);
    world.heal();
    world.run_until_ready();
}

/// A channel may repeat a frame; founding the group again would forget its promises.
#[test]
fn repeated_pledge_changes_nothing() {
    let mut world = ready(&THREE);
    world.must_lock("b", "k", 1);
    world.run(100);
    let group = world.status("a").group.unwrap();
    let incarnations = THREE.map(|name| world.node(name).incarnation());
    for (to, from) in [(0, 1), (1, 0), (2, 0)] {
        let before = world.group(THREE[to]).view();
        let header = header(incarnations[from], incarnations[to], 0);
        let frame = frame(&header, &Body::Pledge { forming: group });
        world.replies_to(THREE[to], THREE[from], &frame);
        assert_eq!(world.group(THREE[to]).view(), before, "{}", THREE[to]);
    }
    world.must_unlock("b", "k", 1);
}

/// The coordinator's first message to the others may be lost.
#[test]
fn pledged_process_founds_by_a_later_message() {
    let mut world = World::new(&THREE);
    let pledges = |world: &World, name| {
        world.in_flight(name, "a").iter().any(|body| matches!(body, Body::Pledge { .. }))
    };
    world.run_until(5_000, "all pledge", |w| pledges(w, "b") && pledges(w, "c"));
    world.cut_off("a");
    world.run_until(10, "the group exists", |w| w.status("a").group.is_some());
    world.run(100);
    assert!(["b", "c"].iter().all(|name| world.status(name).group.is_none()));
    world.heal();
    let group = world.status("a").group;
    let found = |w: &World| ["b", "c"].iter().all(|name| w.status(name).group == group);
    world.run_until(400, "the others found it", found);
    assert!(["b", "c"].iter().all(|name| world.group(name).votes()));
    world.run_until_ready();
}

/// A follower waits for the key of a leader, and a late LOCK of its former incarnation takes over
/// the waiter. Returns leader, follower and the call that waits.
fn taken_over(world: &mut World) -> (String, String, CallId) {
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    world.must_lock(&leader, "k", 1);
    let waiting = world.lock(&follower, "k", 2, 60_000);
    world.run(100);
    let (group, former) = (world.group(&leader).id(), 12_345);
    let late = Command::Lock(LockRequest {
        key: "k".into(),
        nonce: Nonce::from_u128(2),
        process: ProcessId(former),
        duration_ms: 5_000,
        wait: Wait::Forever,
        seen: Seen::At { group, time: world.group(&leader).table().now() },
        owner: std::sync::Arc::default(),
    });
    let header = header(former, world.node(&leader).incarnation(), group);
    world.replies_to(&leader, &follower, &frame(&header, &Body::Request(late)));
    (leader, follower, waiting)
}

/// The waiter is dropped with the former incarnation.
#[test]
fn waiter_survives_a_former_incarnation() {
    let mut world = ready(&THREE);
    let (leader, _, waiting) = taken_over(&mut world);
    world.run(5_000);
    world.unlock(&leader, "k", 1);
    world.run_until(1_000, "its turn", |w| w.replies.contains_key(&waiting));
}

/// The key is granted to the former incarnation before its waiter is dropped.
#[test]
fn wait_outlives_a_grant_to_a_former_incarnation() {
    let mut world = ready(&THREE);
    let (leader, _, waiting) = taken_over(&mut world);
    world.unlock(&leader, "k", 1);
    let spent = |w: &World| matches!(w.replies.get(&waiting), Some(Reply::Ended));
    world.run_until(20_000, "its nonce has ended with the lease", spent);
}

#[test]
fn withdrawal_frees_what_a_former_incarnation_was_granted() {
    let mut world = ready(&THREE);
    let (leader, follower, _) = taken_over(&mut world);
    world.unlock(&leader, "k", 1);
    world.run(100);
    world.call(&follower, |_| Call::Withdraw(RequestId::Lock(Nonce::from_u128(2))));
    world.must_lock(&leader, "k", 3);
}

#[test]
fn learner_that_restarts_is_forgotten() {
    let mut world = ready(&THREE);
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.kill(&victim);
    world.start(&victim);
    world.run_until(2_000, "it learns", |w| !w.group(&leader).learners().is_empty());
    world.kill(&victim);
    world.start(&victim);
    world.run_until_ready();
    world.run(100);
    assert_eq!(world.group(&leader).learners(), [0; 0]);
    assert_eq!(world.group(&leader).roster().len(), 3);
}

/// The names of the processes that stopped, in order.
fn stopped(world: &World) -> Vec<&str> {
    let mut names: Vec<&str> = world.failed.iter().map(|(name, _)| name.as_str()).collect();
    assert!(world.failed.iter().all(|(_, why)| why.contains("in use")), "{:?}", world.failed);
    names.sort_unstable();
    names
}

#[test]
fn second_process_of_a_members_name_stops() {
    for twin in ["a'", "b'", "c'"] {
        let mut world = ready(&THREE);
        world.must_lock("b", "k", 1);
        let before = THREE.map(|name| (world.status(name).leader, world.status(name).term));
        world.start(twin);
        world.run(3_000);
        assert_eq!(stopped(&world), [twin]);
        let after = THREE.map(|name| (world.status(name).leader, world.status(name).term));
        assert_eq!(after, before, "no election");
        assert!(world.lost.is_empty());
        world.must_unlock("b", "k", 1);
    }
}

#[test]
fn set_started_twice_forms_one_group() {
    for pause in [0, 1, 20, 49, 100, 400] {
        let mut world = World::new(&THREE);
        world.run(pause);
        for twin in ["a'", "b'", "c'"] {
            world.start(twin);
        }
        world.run(3_000);
        world.run_until_ready();
        assert_eq!(stopped(&world).len(), 3, "after {pause} ms");
        let mut groups = world.running().map(|name| world.status(name).group);
        let first = groups.next().expect("three go on");
        assert!(first.is_some() && groups.all(|group| group == first), "after {pause} ms");
    }
}

/// A member is cut off, and its name started elsewhere; then the network heals.
#[test]
fn replaced_cut_off_member_stops() {
    let mut world = ready(&THREE);
    let lost = world.follower();
    world.cut_off(&lost);
    let twin = format!("{lost}'");
    world.start(&twin);
    // The cut names one process, not its successor.
    world.run_until(5_000, "the successor votes", |w| w.status(&twin).ready);
    world.heal();
    world.run(5_000);
    assert_eq!(stopped(&world), [lost.as_str()]);
    assert!(world.status(&twin).ready);
}
