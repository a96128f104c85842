//! How a leader keeps its group whole: a fresh incarnation learns the log, then takes the vote of
//! the one it replaces in one joint change, so that no step has fewer votes to lose than before.

use std::{collections::BTreeMap, time::Duration};

use gaggle_channels::NodeName;

use super::{
    entry::MemberChange,
    group::Group,
    options::Members,
    peers::{Peer, Peers},
    wire::Standing,
};
use crate::Instant;

/// A newcomer is taken in only while it makes itself heard.
const FRESH: Duration = Duration::from_millis(500);

/// When a leader looks at its group.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) now: Instant,
    /// Since when it leads. Followers do not speak to one another: what it did not hear before then
    /// says nothing.
    pub(super) leading_since: Instant,
    /// In a nameless cluster nothing proves a process gone: a voter silent for this long is replaced
    /// by a newcomer, if the quorum agrees, and a learner makes room for another.
    pub(super) patience: Duration,
    /// When each incarnation of the group was heard last.
    pub(super) heard: &'a BTreeMap<u64, Instant>,
}

impl Look<'_> {
    /// How long the process `name`, a member as `id`, has said nothing to this leader: neither as the
    /// member, nor under another incarnation.
    fn silence(self, peers: &Peers, id: u64, name: &NodeName) -> Duration {
        let process = peers.get(name).map(Peer::heard_at);
        let heard = self.heard.get(&id).copied().max(process);
        self.now.since(heard.max(Some(self.leading_since)).unwrap_or_default())
    }
}

/// The next change of members that the leader, the incarnation `me`, should propose.
pub(super) fn next_change(
    look: Look<'_>,
    me: u64,
    members: &Members,
    group: &Group,
    peers: &Peers,
) -> Option<MemberChange> {
    forget(look, members, group, peers)
        .or_else(|| replace(look, me, members, group, peers))
        .or_else(|| learn(look, me, members, group, peers))
}

/// A learner that restarted before it could vote; in a nameless cluster also one that fell silent,
/// because its name may never be heard again.
fn forget(look: Look<'_>, members: &Members, group: &Group, peers: &Peers) -> Option<MemberChange> {
    let nameless = matches!(members, Members::Sized(_));
    let learners = group.learners().iter();
    let mut gone = learners.filter(|id| {
        group.name_of(**id).is_some_and(|name| {
            let silent = nameless && look.silence(peers, **id, name) >= look.patience;
            silent || peers.is_gone(name, **id, group.id())
        })
    });
    gone.next().map(|&id| MemberChange::Forget { id })
}

/// A learner that has caught up.
fn replace(
    look: Look<'_>,
    me: u64,
    members: &Members,
    group: &Group,
    peers: &Peers,
) -> Option<MemberChange> {
    let mut ready = group.learners().iter().filter(|id| group.has_caught_up(**id));
    ready.find_map(|&new| {
        let name = group.name_of(new)?;
        let old = match members {
            Members::Named(_) => {
                let mut voters = group.roster().iter().filter(|(id, _)| group.is_voter(**id));
                voters.find(|(_, voter)| *voter == name).map(|(id, _)| *id)
            }
            Members::Sized(_) => vacant_place(look, me, group, peers),
        }?;
        (old != me).then_some(MemberChange::Replace { old, new })
    })
}

/// A fresh incarnation that is in no group.
fn learn(
    look: Look<'_>,
    me: u64,
    members: &Members,
    group: &Group,
    peers: &Peers,
) -> Option<MemberChange> {
    let vacancy = match members {
        Members::Named(_) => true,
        Members::Sized(_) => {
            group.learners().is_empty() && vacant_place(look, me, group, peers).is_some()
        }
    };
    if !vacancy {
        return None;
    }
    let mut newcomers = peers.iter().filter(|(name, peer)| {
        let named = match members {
            Members::Named(names) => names.contains(*name),
            Members::Sized(_) => true,
        };
        let free = matches!(peer.standing, Some(Standing::Free | Standing::Resting));
        named && free && peer.is_fresh(look.now, FRESH)
    });
    let (name, peer) =
        newcomers.find(|(_, peer)| !group.roster().contains_key(&peer.incarnation))?;
    Some(MemberChange::Learn { id: peer.incarnation, name: name.to_string() })
}

/// The voter whose place a newcomer may take in a nameless cluster: one that is proved gone, its
/// process being heard under a fresh incarnation, or else the one silent longest, if that is long
/// enough. Silence is that of a process: one that lives on under another incarnation is never silent.
fn vacant_place(look: Look<'_>, me: u64, group: &Group, peers: &Peers) -> Option<u64> {
    let voters = || group.roster().iter().filter(|(id, _)| **id != me && group.is_voter(**id));
    let mut gone = voters().filter(|(id, name)| peers.is_gone(name, **id, group.id()));
    if let Some((id, _)) = gone.next() {
        return Some(*id);
    }
    let silent = voters().map(|(id, name)| (look.silence(peers, *id, name), *id));
    silent.max().filter(|(silence, _)| *silence >= look.patience).map(|(_, id)| id)
}

/// Whether fresh incarnations show that a majority of the group's voters is gone, so that it can
/// never commit again.
///
/// A fresh incarnation that is a member itself has taken the old one's place, as far as is known
/// where the change of members may not have been applied yet. But a joint configuration needs a
/// majority of both its halves, and the old incarnation votes in one of them: where no leader has
/// been heard for long (`leaderless`), no news of a configuration beyond it is on its way, and the
/// old one counts as gone.
pub(super) fn majority_is_gone(
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
        let gone = voters.iter().filter(|&&id| {
            group.name_of(id).is_some_and(|voter| {
                peers.is_gone(voter, id, group.id()) || (leaderless && replaced(voter, id))
            })
        });
        voters.len() - gone.count() < voters.len() / 2 + 1
    })
}
