//! A process's whole consensus side, without I/O: forming, the group, and what it did.
//!
//! A turn begins with any number of [`receive`](Node::receive) and [`tick`](Node::tick). Rounds of
//! [`flush`](Node::flush) and [`submit`](Node::submit) follow, with a time read after the last
//! request of the turn was taken. [`end_turn`](Node::end_turn) ends it. The driver, the tests and
//! the simulator run exactly this.

mod duties;
mod inbound;
mod leadership;
mod outbox;
mod requests;
mod roster;
mod status;

use std::{collections::BTreeMap, fmt, mem, net::SocketAddr, time::Duration};

use gaggle_channels::NodeName;

pub use self::outbox::Frame;
use self::{leadership::Leadership, outbox::Outbox, roster::Roster};
use super::{
    formation::{Formation, PRESENCE_EVERY},
    group::{self, Group},
    identity::Identity,
    options::{MemberOptions, RunOptions, Timing},
    peers::Peers,
    timers::{Timer, Timers},
    transfers::Transfers,
    wire::{self, Body, MembershipState, RaftMessage, Times},
};
use crate::{
    client::commands::{Event, ServerState},
    clock::Instant,
    lock_table::{Effect, ProcessId},
};

/// A process of a group, without I/O: forming, the group, and the effects of a turn.
pub struct Node {
    identity: Identity,
    timing: Timing,
    times: Times,
    timers: Timers,
    formation: Formation,
    peers: Peers,
    group: Option<Group>,
    roster: Roster,
    leadership: Leadership,
    transfers: Transfers,
    outbox: Outbox,
    turn: Turn,
    /// Why this process must end.
    failure: Option<NameInUse>,
    frames_dropped: u64,
}

/// Why a member cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("the name {name} is in use by another process ({by}): give each member a name of its own")]
pub struct NameInUse {
    name: NodeName,
    by: String,
}

/// The output of one turn so far.
#[derive(Debug, Default)]
struct Turn {
    /// The events that the next flush reports.
    events: Vec<Event>,
    /// The turn has had its first flush.
    is_flushed: bool,
    /// A snapshot was installed: local holds and waits must be compared with it.
    is_installed: bool,
}

impl Node {
    /// A process that runs `name`.
    #[must_use]
    pub fn new(
        name: NodeName,
        options: &MemberOptions,
        frame_limit: usize,
        run: &RunOptions,
        now: Instant,
    ) -> Self {
        let timing = options.timing(frame_limit, run);
        let outside_max_ms = timing.table.outside_max_ms;
        let mut timers = Timers::default();
        for timer in [Timer::Presence, Timer::SilenceCheck] {
            timers.set(timer, now);
        }
        Self {
            identity: Identity::new(name.clone(), &run.owner, run.seed),
            formation: Formation::new(name, options.members.clone(), outside_max_ms),
            outbox: Outbox::new(options.cluster.clone(), frame_limit),
            timing,
            times: options.times(),
            timers,
            peers: Peers::default(),
            group: None,
            roster: Roster::default(),
            leadership: Leadership::default(),
            transfers: Transfers::default(),
            turn: Turn::default(),
            failure: None,
            frames_dropped: 0,
        }
    }

    /// Names the address that this process listens on to the other processes.
    pub fn listens_on(&mut self, address: SocketAddr) {
        self.identity.listens_on(address);
    }

    /// The present incarnation: the Raft id of this process.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation()
    }

    /// The group of this node, once it has one.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Runs a round of a turn: appends submitted commands, applies committed entries, and reports
    /// their effects. The first round appends nothing, so that requests of this process and of
    /// others share an entry. Returns whether another round must follow.
    ///
    /// # Errors
    ///
    /// The member must stop: another process keeps its name.
    pub fn flush(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<bool, NameInUse> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let first = !mem::replace(&mut self.turn.is_flushed, true);
        if first {
            self.group.iter_mut().for_each(Group::compact);
        } else {
            self.append(now);
        }
        if let Some(group) = &mut self.group {
            let output = group.drain(now);
            self.take(now, output);
            self.follow_leader(now);
        }
        events.append(&mut self.turn.events);
        Ok(self.group.as_ref().is_some_and(|group| {
            group.has_ready() || (group.is_leader() && (first || group.has_commit_recipients()))
        }))
    }

    /// Packs the posted bodies of the turn into frames.
    pub fn end_turn(&mut self, now: Instant) -> Vec<Frame> {
        self.turn.is_flushed = false;
        let (outbox, group) = (&mut self.outbox, self.group.as_ref());
        self.transfers.retain(|id| group.is_some_and(|group| group.awaits_snapshot(id)));
        self.transfers.send(now, |to, body| outbox.post(to, &body));
        self.outbox.pack(self.identity.incarnation(), group.map_or(0, Group::id))
    }

    /// Appends the commands that were submitted to this leader.
    fn append(&mut self, now: Instant) {
        let Some(group) = self.group.as_mut().filter(|group| group.is_leader()) else { return };
        // An appended entry carries the commit index to everyone.
        if !group.flush(now) {
            group.advertise_commit();
        }
    }

    /// Sends the messages of a group, and reports its effects.
    fn take(&mut self, now: Instant, output: group::Output) {
        for message in output.messages {
            self.send_raft(now, message);
        }
        for effect in output.effects {
            trace(&effect);
            if let Effect::Granted(grant) = &effect {
                self.formation.observe_token(grant.token);
            }
            self.report(&effect);
        }
        let Some(group) = &self.group else { return };
        if output.installed {
            self.formation.observe_token(group.table().last_token());
            self.formation.compare_outside_max(group.table().config().outside_max_ms);
            self.turn.is_installed = true;
        }
        if output.reconfigured {
            self.transfers.retain_received(|id| group.roster().contains_key(&id));
            self.update_roster(now);
        }
    }

    /// Takes over the members that the group has admitted or dropped since the last time.
    fn update_roster(&mut self, now: Instant) {
        let Some(group) = &self.group else { return };
        // A leader may be a member that the log of this one does not name yet.
        let leader = group.leader();
        self.outbox.forget(|id| group.roster().contains_key(&id) || leader == Some(id));
        for (id, name) in self.roster.update(now, group, self.identity.name()) {
            self.peers.admitted(now, name, id);
            self.outbox.learn(id, name);
        }
    }

    /// The name of a member, or of the leader, which becomes known by a frame from it.
    fn name_of(&self, id: u64) -> Option<&NodeName> {
        let me = id == self.identity.incarnation();
        if me { Some(self.identity.name()) } else { self.outbox.name_of(id) }
    }

    fn send_raft(&mut self, now: Instant, message: RaftMessage) {
        let (to, piece) = (message.to, self.outbox.body_limit());
        if !message.is_snapshot() {
            return self.outbox.post(to, &Body::Raft(message));
        }
        let bytes = postcard::to_allocvec(&message).expect("a message serialises");
        if bytes.len() <= piece {
            self.outbox.post(to, &Body::Raft(message));
        } else {
            self.transfers.begin(now, to, bytes.into(), piece);
        }
    }

    /// Reports that the leader changed or was lost, and a snapshot once there is a leader to ask.
    fn follow_leader(&mut self, now: Instant) {
        // Before its snapshot a joining member has an empty table, and its requests get no reply:
        // it reports no leader.
        let joined = self.group.as_ref().filter(|group| group.halves().next().is_some());
        let leader = joined.and_then(Group::leader);
        let longest = self.timing.longest_election();
        let changed = self.leadership.follow(now, leader, longest, &mut self.timers);
        if changed {
            self.formation.forget_report();
            self.timers.stop(Timer::MissingReport);
        }
        match leader {
            _ if !changed => {}
            None => self.turn.events.push(Event::Down { cause: None }),
            Some(id) => {
                count!("gaggle_leader_changes_total");
                let term = self.group.as_ref().map(Group::term);
                tracing::info!(
                    leader = self.name_of(id).map(tracing::field::display),
                    term,
                    "leader changed"
                );
            }
        }
        if leader.is_some() && (changed || self.turn.is_installed) {
            let installed = mem::take(&mut self.turn.is_installed);
            let memory = if installed { ServerState::MissedEvents } else { ServerState::Same };
            self.turn.events.push(Event::Up { state: memory });
        }
    }

    /// Founds the group of a complete forming. The coordinator campaigns; the others found the
    /// group when its first frame reaches them.
    fn found(&mut self, now: Instant, forming: &wire::Forming, coordinator: bool) {
        let roster: BTreeMap<u64, NodeName> =
            super::formation::named(forming).map(|(name, id)| (id, name)).collect();
        let me = self.identity.incarnation();
        let mut group = Group::found(forming.id, me, roster, &forming.table, &self.timing);
        if coordinator {
            group.campaign();
        }
        tracing::info!(group = %format_args!("{:032x}", forming.id), "group formed");
        self.enter(now, group);
    }

    fn enter(&mut self, now: Instant, group: Group) {
        Roster::expect_frames(now, &mut self.timers);
        Leadership::expect_leader(now, self.timing.longest_election(), &mut self.timers);
        self.group = Some(group);
        self.formation.grouped();
        self.timers.stop(Timer::MissingReport);
        self.turn.events.push(Event::Down { cause: None });
        self.update_roster(now);
    }

    /// Leaves the group for good: everything held is lost, and this process goes on under a fresh
    /// incarnation.
    fn leave(&mut self, now: Instant, rest: Duration) {
        self.group = None;
        self.identity.renew();
        self.leadership.clear();
        self.roster.clear();
        self.transfers.clear();
        self.outbox.clear();
        self.turn.is_installed = false;
        self.turn
            .events
            .extend([Event::Up { state: ServerState::Replaced }, Event::Down { cause: None }]);
        self.formation.rest(now.after(rest), &mut self.timers);
        self.timers.set(Timer::Presence, now);
    }
}

/// How the process stands in a forming, and what it knows of the others.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { formation, identity, peers, .. } = self;
        write!(f, "{formation:?} incarnation {:x} {peers:?}", identity.incarnation())
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
