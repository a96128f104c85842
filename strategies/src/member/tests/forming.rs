//! How groups form, and who may belong to them.

use std::time::Duration;

use gaggle_fixtures::Events;

use super::{
    THREE,
    world::{LEASE, World, name_of},
};
use crate::{client::calls::Reply, lock_table::TableConfig, member::MemberOptions};

/// The survivor sends its last token to the coordinator of the new group; a wall clock behind it
/// decides nothing.
#[test]
fn new_groups_tokens_exceed_the_old() {
    for survivor in THREE {
        let mut world = World::new(&THREE);
        world.wall = Some(1_000_000);
        world.run_until_ready();
        let before = world.must_lock(survivor, "k", 1);
        assert!(before.token >= 1_000_000);
        world.wall = Some(1);
        let group = world.status(survivor).group;
        let others: Vec<&str> = THREE.into_iter().filter(|name| *name != survivor).collect();
        others.iter().for_each(|name| world.kill(name));
        world.run(500);
        others.iter().for_each(|name| world.start(name));
        world.run_until(5_000, "the old group is left", |w| w.status(survivor).group.is_none());
        world.run_until_ready();
        assert_ne!(world.status(survivor).group, group);
        let after = world.must_lock(others[0], "k", 2);
        assert!(after.token > before.token, "{survivor}: {} after {}", after.token, before.token);
    }
}

/// Tables that differ in their bounds would come to differ in their grants.
#[test]
fn group_has_the_bounds_of_its_coordinator() {
    let mut world = World::empty(MemberOptions::named("test", THREE.map(name_of)));
    for (waiters_per_key_max, name) in (1..).zip(THREE) {
        world.table = TableConfig { waiters_per_key_max, ..TableConfig::default() };
        world.start(name);
    }
    world.run_until_ready();
    let waiters = |world: &mut World, name| {
        let group = world.node(name).group().expect("it is ready");
        group.table().config().waiters_per_key_max
    };
    let first = waiters(&mut world, "a");
    assert!(THREE.iter().all(|name| waiters(&mut world, name) == first));
    world.kill("b");
    world.start("b");
    world.run_until_ready();
    assert_eq!(waiters(&mut world, "b"), first, "who joins later takes them over");
}

#[test]
fn outside_leases_delay_first_grant() {
    let outside = Duration::from_secs(10);
    let mut world = World::with(&THREE, |options| options.outside_max(outside));
    let caller = world.lock("a", "k", 1, 60_000);
    world.run_until_ready();
    let formed = world.now;
    world.run(1_000);
    let leader = world.leader().expect("there is a leader");
    world.kill(&leader);
    world.start(&leader);
    let caller = if leader == "a" { world.lock("a", "k", 1, 60_000) } else { caller };
    world.run_until(30_000, "granted in the end", |w| w.granted(caller).is_some());
    let waited = world.now.since(formed);
    assert!(
        waited >= Duration::from_millis(10_101 - 300),
        "formed at most 300 ms before: {waited:?}"
    );
}

#[test]
fn forming_needs_equal_outside_max() {
    let mut world = World::empty(MemberOptions::named("test", THREE.map(name_of)));
    world.start("a");
    world.start("b");
    world.change_options(|options| options.outside_max(Duration::from_secs(10)));
    world.start("c");
    let (events, _recording) = Events::of_thread();
    world.run(3_000);
    assert!(THREE.iter().all(|name| world.status(name).group.is_none()));
    assert_eq!(events.with("members differ in outside_max").len(), 1, "only c refuses: {events:?}");
}

#[test]
fn another_outside_max_is_named_to_the_caller() {
    let mut world = World::with(&THREE, |options| options.outside_max(LEASE / 2));
    world.run_until_ready();
    let follower = world.follower();
    world.kill(&follower);
    world.change_options(|_| MemberOptions::named("test", THREE.map(name_of)));
    let (events, _recording) = Events::of_thread();
    world.start(&follower);
    world.run_until_ready();
    assert_eq!(events.with("members differ in outside_max").len(), 1, "{events:?}");
    let caller = world.lock(&follower, "free", 1, 1_000);
    world.run(100);
    match &world.replies[&caller] {
        Reply::Failed(error) => {
            assert!(
                error.is_permanent() && error.to_string().contains("outside_max is 5s"),
                "{error}"
            );
        }
        reply => panic!("{reply:?}"),
    }
}
