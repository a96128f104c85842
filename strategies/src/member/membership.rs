//! Replaces old incarnations in the leader's group. A fresh incarnation learns the log, then takes
//! the vote of the old one in one joint change. No step tolerates fewer failures than before.

use gaggle_channels::NodeName;

use super::{
    entry::MemberChange,
    group::Group,
    peers::{FRESH, Peers},
    wire::MembershipState,
};
use crate::clock::Instant;

/// The next change of members that the leader, the incarnation `me`, should propose. A lost member
/// is replaced only by a process of its name: nothing else proves that it has ended.
pub(super) fn next_change(
    now: Instant,
    me: u64,
    group: &Group,
    peers: &Peers,
) -> Option<MemberChange> {
    forget(group, peers).or_else(|| replace(me, group)).or_else(|| learn(now, group, peers))
}

/// A learner that restarted before it could vote.
fn forget(group: &Group, peers: &Peers) -> Option<MemberChange> {
    let mut restarted = group.learners().iter().filter(|id| {
        group.roster().get(*id).is_some_and(|name| peers.is_replaced(name, **id, group.id()))
    });
    restarted.next().map(|&id| MemberChange::Forget { id })
}

/// A learner that has caught up.
fn replace(me: u64, group: &Group) -> Option<MemberChange> {
    let mut ready = group.learners().iter().filter(|id| group.has_caught_up(**id));
    ready.find_map(|&new| {
        let name = group.roster().get(&new)?;
        let mut voters = group.roster().iter().filter(|(id, _)| group.is_voter(**id));
        let (&old, _) = voters.find(|(_, voter)| *voter == name)?;
        (old != me).then_some(MemberChange::Replace { old, new })
    })
}

/// A fresh incarnation, of a member's name, that is in no group.
fn learn(now: Instant, group: &Group, peers: &Peers) -> Option<MemberChange> {
    let mut newcomers = peers.iter().filter(|(name, peer)| {
        let free =
            matches!(peer.membership_state, Some(MembershipState::Free | MembershipState::Resting));
        let named = || group.roster().values().any(|member| member == *name);
        free && peer.is_fresh(now, FRESH) && named()
    });
    let (name, peer) =
        newcomers.find(|(_, peer)| !group.roster().contains_key(&peer.incarnation))?;
    Some(MemberChange::Learn { id: peer.incarnation, name: name.to_string() })
}

/// Whether fresh incarnations have replaced a majority of the group's voters, so that it can never
/// commit again.
///
/// A fresh incarnation that is a member has taken the place of the old one, although this process
/// may not have applied that change. But a joint configuration needs a majority of both its halves,
/// and the old incarnation votes in one of them. Without a leader for long (`leaderless`), no later
/// configuration can still arrive, and the old incarnation counts as replaced.
pub(super) fn majority_is_replaced(
    (name, me): (&NodeName, u64),
    group: &Group,
    peers: &Peers,
    leaderless: bool,
) -> bool {
    let replaced = |voter: &NodeName, id: u64| {
        let now = if voter == name { Some(me) } else { peers.get(voter).map(|p| p.incarnation) };
        now.is_some_and(|now| now != id && group.roster().contains_key(&now))
    };
    group.halves().any(|voters| {
        let ended = voters.iter().filter(|&&id| {
            group.roster().get(&id).is_some_and(|voter| {
                peers.is_replaced(voter, id, group.id()) || (leaderless && replaced(voter, id))
            })
        });
        voters.len() - ended.count() < voters.len() / 2 + 1
    })
}
