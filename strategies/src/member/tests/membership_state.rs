//! Goal: when a member sends its presence, what it contains, and the replies to the presence of
//! another process.
//! Method: whole clusters, of which the frames are read; and presences made by hand, from processes
//! that reply to every challenge.

use super::{THREE, frame, header, ready, world::World};
use crate::member::{
    MemberOptions,
    wire::{self, Body, MembershipState, Presence},
};

/// The presences in flight from one process to another.
fn presences(world: &World, from: &str, to: &str) -> Vec<Presence> {
    let presence = |body| match body {
        Body::Presence(presence) => Some(presence),
        _ => None,
    };
    world.in_flight(from, to).into_iter().filter_map(presence).collect()
}

#[test]
fn groupless_process_sends_presence_every_50_ms() {
    let mut world = World::new(&THREE);
    world.kill("b");
    world.kill("c");
    world.run(200);
    let mut said = Vec::new();
    for _ in 0..1_000 {
        world.run(1);
        said.extend(presences(&world, "a", "b"));
        assert!(world.in_flight("a", "a").is_empty(), "it sends to itself");
    }
    assert_eq!(said.len(), 20);
    assert!(said.windows(2).all(|two| two[0].seq < two[1].seq), "the number shows the order");
    assert!(said.iter().all(|presence| presence.membership_state == MembershipState::Free));
}

#[test]
fn leaders_loss_brings_presence_in_500_ms() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let other = THREE.into_iter().find(|name| *name != leader && *name != follower).unwrap();
    for _ in 0..1_000 {
        world.run(1);
        assert_eq!(presences(&world, &follower, &leader), []);
    }
    assert_eq!(world.status(&follower).leader.unwrap().as_str(), leader);
    assert_eq!(world.status(&leader).leader.unwrap().as_str(), leader);
    world.kill(&leader);
    world.kill(other);
    world.run_until(1_000, "it has no leader", |w| w.status(&follower).leader.is_none());
    assert!(!world.status(&follower).ready, "there is no leader");
    let asks = |world: &World| !presences(world, &follower, &leader).is_empty();
    let after = world.run_until(1_000, "it asks", asks);
    assert!((500..=560).contains(&after), "after {after} ms");
    let said = presences(&world, &follower, &leader);
    let group = world.status(&follower).group.unwrap();
    assert!(
        said.iter().all(|presence| presence.membership_state == MembershipState::Member(group))
    );
}

#[test]
fn learner_is_joining_and_not_ready() {
    let mut world = ready(&THREE);
    let (leader, victim) = (world.leader().unwrap(), world.follower());
    world.kill(&victim);
    world.run(50);
    world.start(&victim);
    let mut joined = false;
    while !world.status(&victim).ready {
        world.run(1);
        let Some(group) = world.node(&victim).group() else { continue };
        let (id, votes, settled) = (group.id(), group.votes(), group.is_settled());
        joined |= !votes;
        let ready = world.status(&victim).ready;
        assert!(!ready || (votes && settled), "votes: {votes}, settled: {settled}");
        for presence in presences(&world, &victim, &leader) {
            let member = presence.membership_state == MembershipState::Member(id);
            assert!(votes || !member, "{presence:?}");
        }
    }
    assert!(joined, "it learned before it voted");
}

/// A process that says how it stands, and replies to every challenge.
struct Visitor {
    name: &'static str,
    incarnation: u64,
    said: u64,
    echo: u64,
}

impl Visitor {
    /// A process that the member knows to run.
    fn known_to(world: &mut World, member: &str, name: &'static str, incarnation: u64) -> Self {
        let mut visitor = Self { name, incarnation, said: 1_000_000, echo: 0 };
        visitor.says(world, member, MembershipState::Resting);
        world.run(300);
        visitor.says(world, member, MembershipState::Resting);
        visitor
    }

    /// What the member replies, besides how it stands itself.
    fn says(
        &mut self,
        world: &mut World,
        member: &str,
        membership_state: MembershipState,
    ) -> Vec<Body> {
        self.said += 1;
        let (seq, echo) = (self.said, self.echo);
        let process = wire::Process { id: self.incarnation, ..wire::Process::default() };
        let (members, times) = (Vec::new(), MemberOptions::named("test", []).times());
        let presence = Presence {
            seq,
            membership_state,
            last_token: 0,
            challenge: seq,
            echo,
            process,
            members,
            times,
        };
        let to = world.node(member).incarnation();
        let from = self.incarnation;
        let header = header(from, to, 0);
        let frame = frame(&header, &Body::Presence(presence));
        let mut others = Vec::new();
        for body in world.replies_to(member, self.name, &frame) {
            match body {
                Body::Presence(presence) => self.echo = presence.challenge,
                // The leader writes to its followers all the time.
                Body::Raft(_) => {}
                other => others.push(other),
            }
        }
        others
    }
}

#[test]
fn strangers_of_the_group_get_removed() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let group = world.status(&leader).group.unwrap();
    let name = THREE.into_iter().find(|name| *name != leader && *name != follower).unwrap();
    let member = world.node(name).incarnation();
    let mut known = Visitor::known_to(&mut world, &leader, name, member);
    assert_eq!(known.says(&mut world, &leader, MembershipState::Member(group)), [], "it is one");
    world.kill(name);
    let mut stranger = Visitor::known_to(&mut world, &leader, name, 77);
    for membership_state in [MembershipState::Member(group), MembershipState::Joining(group)] {
        assert_eq!(
            stranger.says(&mut world, &leader, membership_state),
            [Body::Removed],
            "{membership_state:?}"
        );
    }
    let of_another = stranger.says(&mut world, &leader, MembershipState::Member(group + 1));
    assert_eq!(of_another, [], "of a group of its own");
    let mut stranger = Visitor::known_to(&mut world, &follower, name, 77);
    let replies = stranger.says(&mut world, &follower, MembershipState::Member(group));
    assert_eq!(replies, [], "a follower may not know yet that it was admitted");
}

/// The leader's log may hold the admission of a member, not yet applied.
#[test]
fn new_leader_applies_before_it_removes() {
    let mut world = ready(&THREE);
    let (old, new) = (world.leader().unwrap(), world.follower());
    let group = world.status(&old).group.unwrap();
    let name = THREE.into_iter().find(|name| *name != old && *name != new).unwrap();
    world.kill(name);
    let mut stranger = Visitor::known_to(&mut world, &new, name, 77);
    world.must_lock(&old, "k", 1);
    assert!(world.node(&old).transfer_leadership());
    world.run_until(1_000, "it leads", |world| world.status(&new).leads);
    world.cut_one_way(&old, &new);
    assert_eq!(stranger.says(&mut world, &new, MembershipState::Joining(group)), []);
    world.heal();
    world.run(100);
    assert_eq!(stranger.says(&mut world, &new, MembershipState::Joining(group)), [Body::Removed]);
}

/// Sends one body, in the leader's name, to a member.
fn send(world: &mut World, member: &str, group: u128, body: &Body) {
    let leader = world.leader().unwrap();
    let from = if leader == member { 77 } else { world.node(&leader).incarnation() };
    let to = world.node(member).incarnation();
    let header = header(from, to, group);
    let frame = frame(&header, body);
    let sender = if leader == member { "other" } else { &leader };
    world.replies_to(member, sender, &frame);
}

#[test]
fn removed_follower_leaves() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let group = world.status(&leader).group.unwrap();
    send(&mut world, &leader, group, &Body::Removed);
    assert_eq!(world.status(&leader).group, Some(group), "no other leads its group");
    send(&mut world, &follower, group + 1, &Body::Removed);
    assert_eq!(world.status(&follower).group, Some(group));
    send(&mut world, &follower, group, &Body::Removed);
    assert_eq!(world.status(&follower).group, None);
}

#[test]
fn newcomer_pledged_elsewhere_is_refused() {
    let mut world = ready(&THREE);
    let (leader, follower) = (world.leader().unwrap(), world.follower());
    let name = THREE.into_iter().find(|name| **name == follower).unwrap();
    world.kill(&follower);
    let mut newcomer = Visitor { name, incarnation: 77, said: 1_000_000, echo: 0 };
    for _ in 0..8 {
        newcomer.says(&mut world, &leader, MembershipState::Pledged);
        world.run(50);
    }
    assert_eq!(world.group(&leader).learners(), [0; 0]);
    newcomer.says(&mut world, &leader, MembershipState::Free);
    world.run(50);
    assert_eq!(world.group(&leader).learners(), [77]);
}

/// Before its snapshot a joining member has an empty table, and must not answer from it.
#[test]
fn joining_member_has_no_leader_before_its_snapshot() {
    let mut world = ready(&THREE);
    let follower = world.follower();
    world.kill(&follower);
    world.run(1_000);
    world.start(&follower);
    let mut heard_before = 0;
    while !world.status(&follower).ready {
        world.run(1);
        let Some(group) = world.node(&follower).group() else { continue };
        let (heard, joined) = (group.leader().is_some(), group.halves().next().is_some());
        heard_before += u32::from(heard && !joined);
        assert!(joined || world.status(&follower).leader.is_none(), "it answers from no table");
    }
    assert!(heard_before > 0, "it knew the leader before its snapshot came");
}
