//! The status of a node, as users and other processes see it.

use gaggle_channels::NodeName;

use super::{Body, Frame, Group, Instant, MembershipState, Node, PRESENCE_EVERY, Timer, wire};
use crate::status::{MemberSizes, MemberStatus};

impl Node {
    /// The role of this node in the group.
    #[must_use]
    pub fn status(&self) -> MemberStatus {
        let Some(group) = &self.group else { return MemberStatus::default() };
        let leader = self.leadership.leader().and_then(|id| self.name_of(id));
        MemberStatus {
            ready: group.votes() && group.is_settled() && leader.is_some(),
            leader: leader.cloned(),
            leads: group.is_leader(),
            group: Some(group.id()),
            term: group.term(),
            members: self.roster.names(),
        }
    }

    /// How much this member remembers, with `pending` requests of its process.
    pub fn sizes(&self, pending: usize) -> MemberSizes {
        let group = self.group.as_ref();
        MemberSizes {
            table: group.map(|group| group.table().sizes()).unwrap_or_default(),
            log: group.map_or(0, Group::log_len),
            pending,
            frames_dropped: self.frames_dropped,
        }
    }

    /// Begins a leadership transfer, before this member leaves.
    pub fn transfer_leadership(&mut self) -> bool {
        self.group.as_mut().is_some_and(Group::transfer_leadership)
    }

    fn membership_state(&self) -> MembershipState {
        match &self.group {
            Some(group) if group.votes() => MembershipState::Member(group.id()),
            Some(group) => MembershipState::Joining(group.id()),
            None => self.formation.membership_state(),
        }
    }

    /// Sends this process's presence to all others, while it has no group or its group no leader.
    pub(super) fn send_presence(&mut self, now: Instant) {
        if !self.timers.has_expired(Timer::Presence, now) {
            return;
        }
        self.timers.set(Timer::Presence, now.after(PRESENCE_EVERY));
        let leaderless = self.timers.has_expired(Timer::LeaderlessAsk, now);
        let alone = self.group.as_ref().is_none_or(|group| !group.votes() || leaderless);
        if !alone {
            return;
        }
        let names = self.formation.members().iter();
        let others: Vec<NodeName> =
            names.filter(|name| *name != self.identity.name()).cloned().collect();
        for name in others {
            for incarnation in self.peers.incarnations(&name) {
                self.post_presence(&name, incarnation, true);
            }
        }
    }

    /// Sends this process's presence to one peer; `ask` makes the peer reply.
    pub(super) fn post_presence(&mut self, name: &NodeName, incarnation: u64, ask: bool) {
        let (challenge, echo) = self.peers.challenge_and_echo(name, incarnation, ask);
        let body = self.presence(challenge, echo);
        self.outbox.post_named(name, incarnation, &body);
    }

    pub(super) fn presence(&mut self, challenge: u64, echo: u64) -> Body {
        let members = self.formation.members().iter().map(ToString::to_string).collect();
        Body::Presence(wire::Presence {
            seq: self.identity.next_presence(),
            membership_state: self.membership_state(),
            last_token: self.formation.last_token(),
            challenge,
            echo,
            process: self.identity.process().clone(),
            members,
            times: self.times,
        })
    }

    /// The frames by which the others learn that this incarnation closes.
    pub fn farewell(&mut self) -> Vec<Frame> {
        let known: Vec<_> = self.peers.running().collect();
        for (name, incarnation) in known {
            self.outbox.post_named(&name, incarnation, &Body::Leaving);
        }
        self.outbox.pack(self.identity.incarnation(), self.group.as_ref().map_or(0, Group::id))
    }
}
