use std::time::Duration;

use gaggle_channels::NodeName;

use super::{
    Body, FRAMES_KEPT, Frame, Group, Inspection, Instant, Node, PRESENCE_EVERY, Standing, wire,
};
use crate::{lock_table::Sizes, member::options::Members};

/// Without a leader for this long, a member asks the others how they stand.
const LEADERLESS_ASKS: Duration = Duration::from_millis(500);
/// How long a nameless process is remembered.
const REMEMBER: Duration = Duration::from_secs(60);

/// What a member knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// It votes, in a group that has a leader and is not in the middle of changing members.
    pub(crate) ready: bool,
    pub(crate) leader: Option<NodeName>,
    pub(crate) leads: bool,
    pub(crate) group: Option<u128>,
    pub(crate) term: u64,
    /// The cluster has this many members and no place for this process.
    pub(crate) full: Option<u32>,
}

impl Node {
    pub(crate) fn status(&self) -> Status {
        let Some(group) = &self.group else {
            return Status { full: self.full, ..Status::default() };
        };
        let leader = self.leader.and_then(|id| {
            if id == self.incarnation { Some(&self.name) } else { group.name_of(id) }
        });
        Status {
            ready: group.votes() && group.is_settled() && leader.is_some(),
            leader: leader.cloned(),
            leads: group.is_leader(),
            group: Some(group.id()),
            term: group.term(),
            full: None,
        }
    }

    /// What this member's own table shows of a key.
    pub(crate) fn inspect(&self, key: &str) -> Option<Inspection> {
        let table = self.group.as_ref()?.table();
        let holder = table.holder(key)?;
        Some(Inspection {
            fencing_token: holder.token,
            nonce: holder.nonce,
            owner: (*holder.owner).clone(),
            remaining: Duration::from_millis(holder.expires_at.since(table.now())),
            waiters: holder.waiters,
        })
    }

    /// The sizes of this member's table, and the entries in its log.
    pub(crate) fn sizes(&self) -> (Sizes, usize) {
        let sizes = |group: &Group| (group.table().sizes(), group.log_len());
        self.group.as_ref().map_or_else(Default::default, sizes)
    }

    /// Frames that did not decode, were for another cluster or incarnation, or broke a rule.
    pub(crate) fn frames_dropped(&self) -> u64 {
        self.dropped
    }

    /// How many bodies were dropped because no frame has room for them.
    pub(in crate::member) fn overlong(&self) -> u64 {
        self.outbox.overlong()
    }

    /// Passes leadership on, before this member leaves.
    pub(crate) fn transfer_leadership(&mut self) -> bool {
        self.group.as_mut().is_some_and(Group::transfer_leadership)
    }

    /// The incarnation, and the group with its id: for tests that forge frames.
    #[cfg(any(test, feature = "testing"))]
    pub(in crate::member) fn inside(&self) -> (u64, Option<(u128, &Group)>) {
        (self.incarnation, self.group.as_ref().map(|group| (group.id(), group)))
    }

    fn standing(&self) -> Standing {
        match &self.group {
            Some(group) if group.votes() => Standing::Member(group.id()),
            Some(group) => Standing::Joining(group.id()),
            None => self.formation.standing(),
        }
    }

    /// Says how this process stands, while it is in no group or its group has no leader.
    pub(super) fn speak(&mut self, now: Instant) {
        if now < self.next_presence {
            return;
        }
        self.next_presence = now.after(PRESENCE_EVERY);
        let alone = self.group.as_ref().is_none_or(|group| {
            let leaderless =
                self.leader.is_none() && now.since(self.leading_since) >= LEADERLESS_ASKS;
            !group.votes() || leaderless
        });
        if !alone {
            return;
        }
        let others: Vec<NodeName> = match self.formation.members() {
            Members::Named(names) => names.iter().filter(|n| **n != self.name).cloned().collect(),
            Members::Sized(_) => {
                self.peers.forget_silent(now, REMEMBER);
                let body = self.presence(0, 0);
                self.outbox.post_all(&body);
                self.peers.iter().map(|(name, _)| name.clone()).collect()
            }
        };
        for name in others {
            for incarnation in self.peers.incarnations(&name) {
                self.tell(&name, incarnation, true);
            }
        }
    }

    /// Tells one peer how this process stands; `ask` makes it answer.
    pub(super) fn tell(&mut self, name: &NodeName, incarnation: u64, ask: bool) {
        let (challenge, echo) = self.peers.words(name, incarnation, ask);
        let body = self.presence(challenge, echo);
        self.outbox.post_named(name, incarnation, &body);
    }

    fn presence(&mut self, challenge: u64, echo: u64) -> Body {
        self.presences += 1;
        Body::Presence(wire::Presence {
            seq: self.presences,
            standing: self.standing(),
            last_token: self.last_token,
            challenge,
            echo,
        })
    }

    /// Packs the turn's bodies into frames.
    pub(super) fn pack(&mut self) {
        let group = self.group.as_ref().map_or(0, Group::id);
        let frames = &mut self.frames;
        frames.shrink_to(FRAMES_KEPT);
        self.outbox.pack(self.incarnation, group, |to, bytes| frames.push(Frame { to, bytes }));
    }
}
