//! A process's whole consensus side, without I/O: forming, the group, and what was asked of it.
//!
//! One turn: any number of [`receive`](Node::receive), [`call`](Node::call) and
//! [`tick`](Node::tick), then one [`flush`](Node::flush) with a time read after the last of them.
//! Production's driver, the tests and a simulator run exactly this.

mod admission;
mod duties;
mod inbound;
mod outbox;
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
    options::{MemberOptions, Members, Replicate, Timing},
    peers::Peers,
    random::Ids,
    requests::{Answer, Call, CallerId, Requests, Sending},
    transfers::Transfers,
    wire::{self, Body, RaftMessage, Standing},
};
use crate::{
    Inspection, Instant, Lock,
    lock_table::{Effect, Ended, Grant, ProcessId, Seen},
    planted::{Bug, planted},
};

/// For how many outputs of a turn the room is kept.
const OUTPUTS_KEPT: usize = 1024;

pub(crate) struct Node {
    name: NodeName,
    members: Members,
    timing: Timing,
    seed: u64,
    ids: Ids,
    incarnation: u64,
    formation: Formation,
    peers: Peers,
    group: Option<Group>,
    requests: Requests,
    transfers: Transfers,
    outbox: Outbox,
    outputs: Vec<Output>,
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
    /// The same when this process last lost what it held.
    lost_token: u64,
    /// A group was left in this turn.
    left: bool,
    ticks: u64,
    gone_asked: Instant,
    dropped: u64,
}

/// What a turn did.
#[derive(Debug)]
pub(crate) enum Output {
    Send {
        to: NodeName,
        frame: Bytes,
    },
    Broadcast {
        frame: Bytes,
    },
    Answer {
        caller: CallerId,
        answer: Answer,
    },
    /// An acquisition of this process can no longer be relied on.
    Lost {
        lock: Lock,
    },
    /// An acquisition of this process was unlocked, as somebody here asked for.
    Ended {
        lock: Lock,
    },
    /// The group was left, and with it whatever is watched here, also what was granted to a former
    /// incarnation of this process.
    LostAll,
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
            members: options.members.clone(),
            timing,
            seed,
            ids,
            incarnation,
            peers: Peers::default(),
            group: None,
            requests: Requests::new(ProcessId(incarnation)),
            transfers: Transfers::default(),
            outputs: Vec::new(),
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
            lost_token: 0,
            left: false,
            ticks: 0,
            gone_asked: Instant::default(),
            dropped: 0,
        }
    }

    /// Takes a request of this process.
    pub(crate) fn call(&mut self, now: Instant, call: Call) {
        self.requests.call(now, call);
    }

    /// Withdraws every lock request of this process.
    pub(crate) fn withdraw_all(&mut self, now: Instant) {
        self.requests.withdraw_all(now);
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

    /// How many requests of this process are under way.
    pub(crate) fn pending(&self) -> usize {
        self.requests.len()
    }

    /// How many of them the group has not answered, and not let wait.
    pub(crate) fn unanswered(&self) -> usize {
        self.requests.unanswered()
    }

    /// Whether this member's own table shows this lock held.
    pub(crate) fn holds(&self, lock: &Lock) -> bool {
        let grant = self.group.as_ref().and_then(|group| group.table().grant(lock.key()));
        grant.is_some_and(|grant| grant.is_of(lock))
    }

    /// Ends the turn: appends what was asked, applies what is committed, answers, and packs frames.
    ///
    /// # Errors
    ///
    /// The log holds what this build cannot apply: the member must stop.
    pub(crate) fn flush(&mut self, now: Instant) -> Result<Vec<Output>, GroupError> {
        let mut heartbeat = true;
        if self.timing.replicate == Replicate::AtHeartbeat {
            heartbeat = self.ticks >= self.timing.heartbeat_ticks as u64;
        }
        if let Some(group) = &mut self.group {
            group.compact();
        }
        while let Some(group) = &mut self.group {
            let mut out = mem::take(&mut self.drained);
            group.drain(now, &mut out)?;
            self.take(now, &mut out);
            self.drained = out;
            self.follow_leader(now);
            self.ask(now);
            let group = self.group.as_mut().filter(|group| heartbeat && group.is_leader());
            let mut early = Vec::new();
            let proposed = group.is_some_and(|group| {
                if planted(Bug::AnswerBeforeCommit) {
                    early = group.foretell(now);
                }
                group.flush(now)
            });
            early.iter().for_each(|effect| self.requests.observe(now, effect));
            // What is appended now tells them as well.
            if !proposed {
                self.tell_concerned();
            }
            if !self.group.as_ref().is_some_and(Group::has_ready) {
                break;
            }
        }
        if heartbeat {
            self.ticks = 0;
        }
        let outbox = &mut self.outbox;
        self.transfers.take_due(now, |to, body| outbox.post(to, &body));
        self.pack();
        self.lost_token = self.lost_token.max(self.requests.take_lost_token());
        let outputs = &mut self.outputs;
        self.requests.take_lost(|lock| outputs.push(Output::Lost { lock }));
        self.requests.take_ended(|lock| outputs.push(Output::Ended { lock }));
        if mem::take(&mut self.left) {
            self.outputs.push(Output::LostAll);
        }
        let answers = self.requests.take_answers();
        self.outputs.extend(answers.map(|(caller, answer)| Output::Answer { caller, answer }));
        Ok(mem::take(&mut self.outputs))
    }

    /// Takes the emptied list of a turn: its room is for the next.
    pub(crate) fn give_back(&mut self, mut outputs: Vec<Output>) {
        outputs.shrink_to(OUTPUTS_KEPT);
        self.outputs = outputs;
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
            self.requests.observe(now, &effect);
        }
        self.concerned.extend(out.askers.drain(..));
        let (installed, reconfigured) =
            (mem::take(&mut out.installed), mem::take(&mut out.reconfigured));
        let Some(group) = &self.group else { return };
        if installed {
            let table = group.table();
            self.last_token = self.last_token.max(table.last_token());
            self.requests.keep_held(|key| table.grant(key));
            self.requests.ask_again(now, true);
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
            Effect::Unlocked { nonce, was: Ended::Held, .. }
                if self.requests.unlocks_for_another(*nonce) =>
            {
                self.concerned.extend(self.group.iter().flat_map(|group| group.roster().keys()));
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

    fn follow_leader(&mut self, now: Instant) {
        let leader = self.group.as_ref().and_then(Group::leader);
        if leader == self.leader {
            return;
        }
        self.leader = leader;
        self.leading_since = now;
        self.transfers.stop_sending();
        if let (Some(id), Some(group)) = (leader, &self.group) {
            let name = group.name_of(id).map_or("?", NodeName::as_str);
            tracing::info!(leader = name, term = group.term(), "leader changed");
            self.requests.ask_again(now, false);
        }
    }

    /// Sends what is due to the leader, or into the log of a member that leads.
    fn ask(&mut self, now: Instant) {
        let (Some(group), Some(leader)) = (&mut self.group, self.leader) else { return };
        let over_channel = leader != self.incarnation;
        let seen = Seen::At { group: group.id(), time: group.table().now() };
        let Self { requests, outbox, incarnation, .. } = self;
        requests.send_due(now, Sending { seen, over_channel }, |command| {
            if over_channel {
                outbox.post(leader, &Body::Request(command));
            } else if admission::is_admissible(&command, *incarnation, group.lease_max_ms()) {
                group.submit(leader, command);
            }
        });
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
        self.lost_token = self.last_token;
        self.left = true;
        self.requests.left_group(now, ProcessId(self.incarnation));
        self.transfers.clear();
        self.outbox.clear();
        self.heard.clear();
        self.met.clear();
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
