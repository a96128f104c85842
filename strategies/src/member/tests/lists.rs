//! Goal: lists of members and times that differ are named at both sides, whether a group runs or
//! not, and the log names a leader only once its name is known.
//! Method: worlds whose processes start with other options; all events of the thread are recorded.

use std::{sync::Arc, time::Duration};

use gaggle_fixtures::Events;

use super::{
    THREE, ready,
    world::{LEASE, World, name_of},
};
use crate::{
    client::calls::{Call, LockCall, Reply, Until},
    lock::Nonce,
    member::MemberOptions,
};

const DIFFER: &str = "members differ in their set of names";

/// The events of differing lists since the last time, sorted, from their first field on.
fn take_differences(events: &Events) -> Vec<String> {
    take(events, DIFFER)
}

fn take(events: &Events, text: &str) -> Vec<String> {
    let events = events.take().into_iter().filter(|event| event.contains(text));
    let fields = |event: String| Some(event.split_once(" peer=")?.1.to_owned());
    let mut fields: Vec<_> = events.filter_map(fields).collect();
    fields.sort();
    fields
}

fn list(world: &mut World, names: &[&str]) {
    let names: Vec<_> = names.iter().map(|name| name_of(name)).collect();
    world.change_options(|_| MemberOptions::named("test", names));
}

/// A ready group, and `c` again with this list.
fn restarted(listed: &[&str]) -> World {
    let mut world = ready(&THREE);
    world.kill("c");
    list(&mut world, listed);
    world.start("c");
    world
}

#[test]
fn differing_list_takes_part_and_is_warned_of() {
    let (events, _recording) = Events::of_thread();
    let mut world = restarted(&["a", "b", "c", "d"]);
    world.run_until_ready();
    world.must_lock("c", "k", 1);
    world.run(1_000);
    let expected = [
        "a missing_there=\"d\" missing_here=\"\"",
        "b missing_there=\"d\" missing_here=\"\"",
        "c missing_there=\"\" missing_here=\"d\"",
        "c missing_there=\"\" missing_here=\"d\"",
    ];
    assert_eq!(take_differences(&events), expected);
    world.run(60_000);
    assert_eq!(take_differences(&events), expected, "it lasts");
    world.kill("c");
    list(&mut world, &THREE);
    world.start("c");
    world.run_until_ready();
    world.run(61_000);
    assert!(take_differences(&events).is_empty(), "the lists are equal");
}

#[test]
fn list_without_a_member_is_warned_of() {
    let (events, _recording) = Events::of_thread();
    let mut world = restarted(&["a", "c"]);
    world.run(2_000);
    let expected =
        ["a missing_there=\"\" missing_here=\"b\"", "c missing_there=\"b\" missing_here=\"\""];
    assert_eq!(take_differences(&events), expected);
}

/// The group decides who its members are, not the list of one of them.
#[test]
fn wrong_list_of_one_member_blocks_no_other() {
    let mut world = restarted(&["a", "c"]);
    world.run_until_ready();
    while world.leader() != Some("c".into()) {
        let leader = world.leader().expect("there is a leader");
        world.node(&leader).transfer_leadership();
        world.run(500);
    }
    world.kill("b");
    world.run(1_000);
    list(&mut world, &THREE);
    world.start("b");
    world.run_until(5_000, "it votes again", |world| world.status("b").ready);
}

#[test]
fn equal_lists_are_not_warned_of() {
    let (events, _recording) = Events::of_thread();
    let mut world = ready(&THREE);
    world.run(2_000);
    assert!(take(&events, "members differ").is_empty());
}

#[test]
fn different_times_are_warned_of_until_equal() {
    const TIMES: &str = "members differ in heartbeat or election_timeout";
    let ms = Duration::from_millis;
    let (events, _recording) = Events::of_thread();
    let mut world = ready(&THREE);
    world.kill("c");
    world.change_options(|options| options.heartbeat(ms(20)).election_timeout(ms(100), ms(1_000)));
    world.start("c");
    world.run_until_ready();
    world.run(1_000);
    let usual = "heartbeat 50ms, election_timeout 150ms to 300ms";
    let other = "heartbeat 20ms, election_timeout 100ms to 1s";
    let expected = [
        format!("a theirs={usual} mine={other}"),
        format!("b theirs={usual} mine={other}"),
        format!("c theirs={other} mine={usual}"),
        format!("c theirs={other} mine={usual}"),
    ];
    assert_eq!(take(&events, TIMES), expected);
    world.run(60_000);
    assert_eq!(take(&events, TIMES), expected, "it lasts");
    world.kill("c");
    world.change_options(|options| options.heartbeat(ms(50)).election_timeout(ms(150), ms(300)));
    world.start("c");
    world.run_until_ready();
    world.run(61_000);
    assert!(take(&events, TIMES).is_empty(), "the times are equal");
}

/// Why a call of this process was refused.
fn refusal(world: &mut World, name: &str, nonce: u128) -> String {
    let end = world.now.after(Duration::from_millis(50));
    let caller = world.call(name, |id| {
        Call::Lock(LockCall {
            id,
            key: "k".into(),
            nonce: Nonce::from_u128(nonce),
            lease: LEASE,
            until: Until::At(end),
            limit: Some(end),
            tries: false,
            owner: Arc::default(),
            unsafe_grant: None,
        })
    });
    world.run(100);
    match &world.replies[&caller] {
        Reply::Failed(error) => error.to_string(),
        reply => panic!("{name}: {reply:?}"),
    }
}

#[test]
fn missing_group_is_explained_by_the_lists() {
    let mut world = World::empty(MemberOptions::named("test", THREE.map(name_of)));
    world.start("a");
    world.start("b");
    list(&mut world, &["a", "c", "d"]);
    world.start("c");
    world.run(2_000);
    assert_eq!(
        refusal(&mut world, "a", 1),
        "no group yet: waiting for b (connected, not ready), c (connected, its option peers \
         (or members) lacks b, ours lacks d)"
    );
    assert_eq!(
        refusal(&mut world, "c", 2),
        "no group yet: waiting for a (connected, its option peers (or members) lacks d, ours lacks \
         b), d (not connected)"
    );
}

#[test]
fn joining_member_logs_no_unknown_leader() {
    let mut world = ready(&THREE);
    world.kill("c");
    world.run(1_000);
    let leader = world.leader().expect("there is a leader");
    let (events, _recording) = Events::of_thread();
    world.start("c");
    world.run_until_ready();
    let changes = events.with("leader changed");
    let named = |event: &String| event.contains(&format!(" leader={leader} "));
    assert!(changes.len() == 1 && changes.iter().all(named), "{changes:?}");
}
