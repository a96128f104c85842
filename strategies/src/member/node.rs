//! A process's whole consensus side, without I/O: forming, the group, and what it did.
//!
//! One turn: any number of [`receive`](Node::receive) and [`tick`](Node::tick), then rounds of
//! [`flush`](Node::flush) and [`submit`](Node::submit) with a time read after the last request of
//! the turn was taken, then [`end_turn`](Node::end_turn). Production's driver, the tests and a
//! simulator run exactly this.

mod admission;
mod duties;
mod inbound;
mod outbox;
mod report;
mod requests;
mod standing;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use bytes::Bytes;
use gaggle_channels::NodeName;

use self::outbox::Outbox;
pub(crate) use self::standing::Status;
use super::{
    formation::{Formation, Letter, PRESENCE_EVERY},
    group::{self, Group, GroupError},
    options::{MemberOptions, Timing},
    peers::Peers,
    transfers::Transfers,
    wire::{self, Body, RaftMessage, Standing},
};
use crate::{
    Inspection, Instant, Nonce,
    client::command::{Event, Memory},
    lock_table::{Effect, Ended, Grant, ProcessId},
    planted::{Bug, planted},
    random::Ids,
};

/// For how many frames of a turn the memory is kept.
const FRAMES_KEPT: usize = 1024;

pub(crate) struct Node {
    name: NodeName,
    timing: Timing,
    seed: u64,
    ids: Ids,
    incarnation: u64,
    formation: Formation,
    peers: Peers,
    group: Option<Group>,
    transfers: Transfers,
    outbox: Outbox,
    frames: Vec<Frame>,
    /// What the next flush reports.
    events: Vec<Event>,
    /// This turn has had its first flush.
    flushed: bool,
    /// A snapshot was installed, and what is held and waited for here is to be compared with it.
    installed: bool,
    /// What this member, as the leader, unlocks for another process.
    foreign_unlocks: BTreeSet<Nonce>,
    /// What comes out of the group: empty between two turns, and kept for its room.
    drained: group::Output,
    /// Who waits for what was committed in this turn, or lost a lock by it.
    concerned: BTreeSet<u64>,
    /// When each incarnation was heard last, within this group.
    heard: BTreeMap<u64, Instant>,
    /// The incarnations of the group that were met as such.
    met: BTreeSet<u64>,
    leader: Option<u64>,
    leading_since: Instant,
    group_heard: Instant,
    /// The limit that the cluster named when it refused this process.
    full: Option<u32>,
    next_presence: Instant,
    presences: u64,
    /// The greatest token ever seen: a new group begins above it.
    last_token: u64,
    gone_asked: Instant,
    dropped: u64,
}

/// A frame to send.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Everyone, if `None`.
    pub(crate) to: Option<NodeName>,
    pub(crate) bytes: Bytes,
}

impl Node {
    /// A process that runs `name`; `seed` decides everything that it draws.
    pub(crate) fn new(
        name: NodeName,
        options: &MemberOptions,
        frame_limit: usize,
        seed: u64,
    ) -> Self {
        let mut ids = Ids::new(seed);
        let mut incarnation = ids.draw();
        if planted(Bug::IncarnationReused) {
            incarnation = name.as_str().bytes().fold(1, |id, byte| id * 31 + u64::from(byte));
        }
        let timing = options.timing(frame_limit);
        Self {
            formation: Formation::new(
                name.clone(),
                options.members.clone(),
                timing.table.outside_max_ms,
            ),
            outbox: Outbox::new(options.cluster.clone(), frame_limit),
            name,
            timing,
            seed,
            ids,
            incarnation,
            peers: Peers::default(),
            group: None,
            transfers: Transfers::default(),
            frames: Vec::new(),
            events: Vec::new(),
            flushed: false,
            installed: false,
            foreign_unlocks: BTreeSet::new(),
            drained: group::Output::default(),
            concerned: BTreeSet::new(),
            heard: BTreeMap::new(),
            met: BTreeSet::new(),
            leader: None,
            leading_since: Instant::default(),
            group_heard: Instant::default(),
            full: None,
            next_presence: Instant::default(),
            presences: 0,
            last_token: 0,
            gone_asked: Instant::default(),
            dropped: 0,
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// How this process stands in a forming, and what it knows of the others.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn forming(&self) -> String {
        format!("{:?} incarnation {:x} {:?}", self.formation, self.incarnation, self.peers)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn group_mut(&mut self) -> Option<&mut Group> {
        self.group.as_mut()
    }

    /// One round of a turn: appends what was submitted, applies what is committed, and reports what
    /// came of it. The first round appends nothing: what this process submits after it shares an
    /// entry with what others have sent. Returns whether another round must follow.
    ///
    /// # Errors
    ///
    /// The log holds what this build cannot apply: the member must stop.
    pub(crate) fn flush(
        &mut self,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<bool, GroupError> {
        let first = !mem::replace(&mut self.flushed, true);
        if first {
            self.group.iter_mut().for_each(Group::compact);
        } else {
            self.append(now);
        }
        if let Some(group) = &mut self.group {
            let mut out = mem::take(&mut self.drained);
            group.drain(now, &mut out)?;
            self.take(now, &mut out);
            self.drained = out;
            self.follow_leader(now);
        }
        events.append(&mut self.events);
        Ok(self.group.as_ref().is_some_and(|group| {
            group.has_ready() || (group.is_leader() && (first || !self.concerned.is_empty()))
        }))
    }

    /// Packs what the turn has posted into frames.
    pub(crate) fn end_turn(&mut self, now: Instant) -> std::vec::Drain<'_, Frame> {
        self.flushed = false;
        let outbox = &mut self.outbox;
        self.transfers.take_due(now, |to, body| outbox.post(to, &body));
        self.pack();
        self.frames.drain(..)
    }

    /// Appends what was submitted to this leader.
    fn append(&mut self, now: Instant) {
        let Some(group) = self.group.as_mut().filter(|group| group.is_leader()) else { return };
        let mut early = Vec::new();
        if planted(Bug::AnswerBeforeCommit) {
            early = group.foretell(now);
        }
        // What is appended now tells them as well.
        if !group.flush(now) {
            self.tell_concerned();
        }
        early.iter().for_each(|effect| self.report(effect));
    }

    /// Takes what a drained group has to say.
    fn take(&mut self, now: Instant, out: &mut group::Output) {
        for message in out.messages.drain(..) {
            self.send_raft(now, message);
        }
        for effect in out.effects.drain(..) {
            trace(&effect);
            if let Effect::Granted(grant) = &effect {
                self.last_token = self.last_token.max(grant.token);
            }
            self.note_concerned(&effect);
            self.report(&effect);
        }
        self.concerned.extend(out.askers.drain(..));
        let (installed, reconfigured) =
            (mem::take(&mut out.installed), mem::take(&mut out.reconfigured));
        let Some(group) = &self.group else { return };
        if !group.is_leader() {
            self.concerned.clear();
        }
        if installed {
            self.last_token = self.last_token.max(group.table().last_token());
            self.installed = true;
        }
        if reconfigured {
            self.transfers.retain(|id| group.roster().contains_key(&id));
            self.meet_members(now);
        }
    }

    /// Notes who else wants to know of an effect, besides those who asked for it.
    fn note_concerned(&mut self, effect: &Effect) {
        match effect {
            Effect::Granted(Grant { process, .. })
            | Effect::Expired { process, .. }
            | Effect::Dropped { process, .. } => _ = self.concerned.insert(process.0),
            Effect::Unlocked { nonce, was, .. }
                if self.foreign_unlocks.remove(nonce) && *was == Ended::Held =>
            {
                let all = self.group.iter().flat_map(|group| group.roster().keys());
                self.concerned.extend(all);
            }
            _ => {}
        }
    }

    /// Tells those who wait for what was committed in this turn, or lost a lock by it.
    fn tell_concerned(&mut self) {
        let concerned = mem::take(&mut self.concerned);
        if let Some(group) = self.group.as_mut().filter(|group| group.is_leader()) {
            group.tell_commit(concerned);
        }
    }

    /// Gets to know the incarnations that the group has admitted since the last look.
    fn meet_members(&mut self, now: Instant) {
        let Some(group) = &self.group else { return };
        if !group.roster().is_empty() {
            self.formation.fix_members(group.roster().values());
        }
        self.met.retain(|id| group.roster().contains_key(id));
        self.heard.retain(|id, _| group.roster().contains_key(id));
        self.outbox.forget(|id| group.roster().contains_key(&id));
        for (id, name) in group.members_oldest_first() {
            if *name != self.name && self.met.insert(id) {
                self.peers.admitted(now, name, id);
                self.outbox.learn(id, name);
                self.heard.entry(id).or_insert(now);
            }
        }
    }

    fn send_raft(&mut self, now: Instant, message: RaftMessage) {
        let to = message.to;
        if !message.is_snapshot() {
            // A body that no frame has room for would be dropped.
            let (limit, outbox) = (self.outbox.body_limit(), &mut self.outbox);
            message.cut(limit, |part| outbox.post(to, &Body::Raft(part)));
            return;
        }
        let bytes = postcard::to_allocvec(&message).expect("a message serialises");
        let piece = self.outbox.body_limit();
        if bytes.len() <= piece {
            self.outbox.post(to, &Body::Raft(message));
        } else {
            self.transfers.begin(now, to, bytes.into(), piece);
        }
    }

    /// Reports a leader that has come or gone, and a snapshot once there is one to ask.
    fn follow_leader(&mut self, now: Instant) {
        let leader = self.group.as_ref().and_then(Group::leader);
        let changed = leader != self.leader;
        if changed {
            self.leader = leader;
            self.leading_since = now;
            self.transfers.stop_sending();
            self.foreign_unlocks.clear();
        }
        match (leader, &self.group) {
            (Some(id), Some(group)) if changed => {
                let name = group.name_of(id).map_or("?", NodeName::as_str);
                tracing::info!(leader = name, term = group.term(), "leader changed");
            }
            (None, _) if changed => self.events.push(Event::Down { cause: None }),
            _ => {}
        }
        if leader.is_some() && (changed || self.installed) {
            let installed = mem::take(&mut self.installed);
            let memory = if installed { Memory::Perhaps } else { Memory::Kept };
            self.events.push(Event::Up { memory });
        }
    }

    fn post_letters(&mut self, letters: Vec<Letter>) {
        for letter in letters {
            self.outbox.post_named(&letter.to, letter.incarnation, &letter.body);
        }
    }

    /// Founds the group of a complete forming.
    fn found(&mut self, now: Instant, forming: &wire::Forming, coordinator: bool) {
        let roster: BTreeMap<u64, NodeName> =
            super::formation::named(forming).map(|(name, id)| (id, name)).collect();
        let seed = self.seed;
        let mut group =
            Group::found(forming.id, self.incarnation, roster, &forming.table, &self.timing, seed);
        if coordinator {
            group.campaign();
        }
        tracing::info!(group = %format_args!("{:032x}", forming.id), "group formed");
        self.enter(now, group);
        if coordinator {
            let start = Body::Start { forming: forming.id };
            let ids: Vec<u64> = forming.members.iter().map(|(_, id)| *id).collect();
            for id in ids.into_iter().filter(|id| *id != self.incarnation) {
                self.outbox.post(id, &start);
            }
        }
    }

    fn enter(&mut self, now: Instant, group: Group) {
        self.group_heard = now;
        self.full = None;
        self.group = Some(group);
        self.formation.grouped();
        self.meet_members(now);
    }

    /// Leaves the group for good: everything held is lost, and this process runs on under a fresh
    /// incarnation, so that nothing it promised can be promised twice.
    fn leave(&mut self, now: Instant, rest: std::time::Duration) {
        self.group = None;
        self.leader = None;
        if !planted(Bug::IncarnationKept) {
            self.incarnation = self.ids.draw();
        }
        self.installed = false;
        self.foreign_unlocks.clear();
        self.events.push(Event::Up { memory: Memory::Gone });
        self.events.push(Event::Down { cause: None });
        self.transfers.clear();
        self.outbox.clear();
        self.heard.clear();
        self.met.clear();
        self.concerned.clear();
        self.formation.rest(now.after(rest));
        self.next_presence = now;
    }
}

fn trace(effect: &Effect) {
    match effect {
        Effect::Granted(grant) => {
            tracing::debug!(nonce = %grant.nonce, token = grant.token, "granted");
        }
        Effect::Expired { nonce, token, .. } => {
            tracing::info!(%nonce, token, "lease expired");
        }
        _ => {}
    }
}
