//! Frames from other processes.

use gaggle_channels::NodeName;

use super::{
    Body, Group, Instant, MembershipState, NameInUse, Node, RaftMessage, Timer,
    duties::RESIGN_GRACE, requests::is_admissible, wire, wire::Header,
};
use crate::{
    limits::{HOST_BYTES_MAX, MEMBERS_MAX},
    member::{
        formation::REPORT_EVERY,
        peers::{FRESH, Takeover},
    },
};

impl Node {
    /// Takes a frame. Frames that do not decode, or are for another cluster or incarnation, are
    /// dropped and counted.
    pub fn receive(&mut self, now: Instant, from: &NodeName, frame: &[u8]) {
        match wire::decode(frame) {
            Ok((header, bodies)) if header.cluster == self.outbox.cluster() => {
                if header.from == 0 || from == self.identity.name() {
                    self.frames_dropped += 1;
                    return;
                }
                self.peers.record_frame(now, from, header.from);
                for body in bodies {
                    self.take_body(now, from, &header, body);
                }
            }
            Ok((header, _)) => {
                self.frames_dropped += 1;
                let theirs = &header.cluster;
                self.formation.warn_of_cluster(now, from, theirs, self.outbox.cluster());
            }
            Err(error) => {
                self.frames_dropped += 1;
                self.formation.warn_of_frame(now, from, error);
            }
        }
    }

    /// The way to a peer is closed: the engine probes it instead of streaming to it.
    pub fn unreachable(&mut self, peer: &NodeName) {
        if let Some(group) = &mut self.group {
            group.unreachable(peer);
        }
    }

    fn take_body(&mut self, now: Instant, from: &NodeName, header: &Header<'_>, body: Body) {
        // Incarnations find each other by presences; all else is for this very incarnation.
        match body {
            Body::Presence(presence) => return self.take_presence(now, from, header, &presence),
            _ if header.to != self.identity.incarnation() => {
                self.frames_dropped += 1;
                return;
            }
            _ => {}
        }
        match body {
            Body::Invite(forming) => {
                let (me, timers) = (self.identity.incarnation(), &mut self.timers);
                let reply = self.formation.invited(now, from, me, forming, &self.peers, timers);
                if let Some(reply) = reply {
                    self.outbox.post_named(from, header.from, &reply);
                }
            }
            Body::Pledge { forming } => {
                let (them, timers) = (header.from, &self.timers);
                if let Some(forming) = self.formation.pledged(now, from, them, forming, timers) {
                    self.found(now, &forming, true);
                }
            }
            Body::Removed => self.removed(now, header.group),
            Body::NameInUse(process) => self.take_name_in_use(&process),
            Body::Leaving => self.peers.left(from, header.from),
            body => self.take_group_body(now, from, header, body),
        }
    }

    /// Bodies that belong to a group: that of this process, or a group that admits it by sending.
    fn take_group_body(&mut self, now: Instant, from: &NodeName, header: &Header<'_>, body: Body) {
        if self.group.is_none() && header.group != 0 {
            self.found_pledged(now, header.group);
            // A process that pledged to another group votes in none until that has ended.
            let is_free = self.group.is_none()
                && self.formation.membership_state() != MembershipState::Pledged;
            if is_free && matches!(body, Body::Raft(_) | Body::Chunk(_)) {
                tracing::info!("joining an existing group");
                let me = self.identity.incarnation();
                let group = Group::join(header.group, me, &self.timing);
                self.enter(now, group);
            }
        }
        let Some(group) = self.group.as_mut().filter(|group| group.id() == header.group) else {
            self.frames_dropped += 1;
            return;
        };
        // The channel proves the sender's name, not its incarnation: a member must not vote as
        // another.
        let is_forged = group.roster().get(&header.from).is_some_and(|name| name != from);
        if is_forged || !self.roster.record_frame(now, header.from, &mut self.timers) {
            self.frames_dropped += 1;
            return;
        }
        self.outbox.learn(header.from, from);
        match body {
            Body::Raft(message) => self.step(header.from, message),
            Body::Request(command)
                if group.is_leader()
                    && is_admissible(&command, header.from, group.lease_max_ms()) =>
            {
                group.submit(command);
            }
            // Only a leader sends snapshots, so one buffer is enough; other senders are ignored.
            Body::Chunk(chunk) if group.leader() == Some(header.from) => {
                let (ack, whole) = self.transfers.receive(header.from, &chunk);
                if let Some(ack) = ack {
                    self.outbox.post(header.from, &ack);
                }
                let message = whole.and_then(|bytes| postcard::from_bytes(&bytes).ok());
                if let Some(message) = message {
                    self.step(header.from, message);
                }
            }
            Body::ChunkAck { transfer, received } => {
                self.transfers.acknowledged(now, header.from, transfer, received);
            }
            _ => {}
        }
    }

    fn step(&mut self, from: u64, message: RaftMessage) {
        let Some(group) = self.group.as_mut().filter(|_| message.from == from) else {
            self.frames_dropped += 1;
            return;
        };
        if let Err(error) = group.step(message) {
            self.frames_dropped += 1;
            tracing::warn!(peer = from, %error, "refused a message of the engine");
        }
    }

    /// Founds the group that this process pledged to. A frame of that group shows that all have
    /// pledged.
    fn found_pledged(&mut self, now: Instant, id: u128) {
        if let Some(forming) = self.formation.pledged_to(id).cloned() {
            self.found(now, &forming, false);
        }
    }

    fn take_presence(
        &mut self,
        now: Instant,
        from: &NodeName,
        header: &Header<'_>,
        presence: &wire::Presence,
    ) {
        let members = self.group.as_ref().map(Group::roster);
        let admitted = members.is_some_and(|members| members.values().any(|name| name == from));
        if !admitted && !self.formation.admits(from) {
            self.formation.warn_of_stranger(from);
            if self.group.is_some() {
                // The sender must not form a second group, which would grant the same keys.
                let body = self.presence(0, 0);
                self.outbox.post_named(from, header.from, &body);
            }
            return;
        }
        let is_long = presence.members.len() > MEMBERS_MAX;
        if is_long || presence.process.host.len() > HOST_BYTES_MAX {
            self.frames_dropped += 1;
            return;
        }
        if matches!(presence.membership_state, MembershipState::Member(_)) && self.group.is_none() {
            // A group that exists admits newcomers.
            self.timers.set(Timer::ExistingGroup, now.after(FRESH));
        }
        let to_me = header.to == self.identity.incarnation();
        let is_member = |id: u64| members.is_some_and(|members| members.contains_key(&id));
        let reply = self.peers.presence(now, from, header.from, presence, to_me, is_member);
        // If two processes have this name, each receives the frames of both. A member of a group
        // replies to all of them, so that no second group is formed.
        let for_me = to_me || header.to == 0;
        let knows_me = header.to != 0;
        if !knows_me || (reply.is_due && (to_me || self.group.is_some())) {
            self.post_presence(from, header.from, false);
        }
        if let Some(takeover) = reply.takeover.filter(|_| for_me) {
            self.handle_takeover(from, header.from, presence, takeover);
        }
        if !reply.verified {
            return;
        }
        let differs = self.formation.difference(from, &self.peers).is_some()
            || self.different_times(from).is_some();
        if differs && !self.timers.is_running(Timer::DifferenceReport, now) {
            self.timers.set(Timer::DifferenceReport, now.after(REPORT_EVERY));
        }
        let Some(group) = &self.group else { return };
        let stranger = !group.roster().contains_key(&header.from);
        match presence.membership_state {
            MembershipState::Member(id) | MembershipState::Joining(id)
                if id == group.id() && group.leads_applied() && stranger =>
            {
                self.outbox.post_named(from, header.from, &Body::Removed);
            }
            _ => {}
        }
    }

    /// Another process runs under a name in use: names the process that keeps it to the other.
    fn handle_takeover(
        &mut self,
        name: &NodeName,
        from: u64,
        presence: &wire::Presence,
        takeover: Takeover,
    ) {
        match takeover {
            Takeover::Pending { rival } => self.post_presence(name, rival, true),
            Takeover::Refused { rival, by, first } => {
                if first {
                    tracing::warn!(%name, keeps = %by, refused = %presence.process, rival,
                        "two processes run under one name");
                }
                self.outbox.post_named(name, from, &Body::NameInUse(by));
            }
            Takeover::Granted { rival, of } => {
                tracing::warn!(%name, keeps = %presence.process, refused = %of, rival,
                    "two processes run under one name");
                self.outbox.post_named(name, rival, &Body::NameInUse(presence.process.clone()));
            }
        }
    }

    /// A member that has a leader keeps its name: its group has admitted it.
    fn take_name_in_use(&mut self, by: &wire::Process) {
        let is_led = self.leadership.leader().is_some();
        if !is_led && by.id != self.identity.process().id && by.host.len() <= HOST_BYTES_MAX {
            let name = self.identity.name().clone();
            self.failure = Some(NameInUse { name, by: by.to_string() });
        }
    }

    /// The leader no longer counts this incarnation as a member.
    fn removed(&mut self, now: Instant, group: u128) {
        if self.group.as_ref().is_some_and(|mine| mine.id() == group && !mine.is_leader()) {
            tracing::warn!("this member was replaced while it was silent, joining afresh");
            self.leave(now, RESIGN_GRACE);
        }
    }
}
