//! The state of the whole, and every step that it can take.

use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use stateright::{Model, Property};

use super::{
    account::{CLIENTS_MAX, seen},
    bounds::{Bounds, Fault},
    client::{Client, Granted, Phase, Request},
    properties,
    raft::{Cmd, Entry, Log, NODES, Node},
    replay::{Replayed, Replays},
};

/// The model.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) bounds: Bounds,
    pub(crate) replays: Arc<Replays>,
    /// The rare things come upon so far.
    pub(crate) seen: Arc<AtomicU32>,
}

/// Rules of the group and the resource that only a step can break, as bits.
pub(crate) mod broken {
    pub(crate) const COMMITTED_CHANGED: u8 = 1;
    pub(crate) const RESOURCE_FELL: u8 = 1 << 1;
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Real time, in ticks. Leaders' clocks and clients' clocks follow it.
    pub(crate) tick: u8,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: [Client; CLIENTS_MAX],
    /// The longest log that any leader counted as committed.
    pub(crate) committed: Log,
    /// The greatest token that the resource took.
    pub(crate) resource: u8,
    pub(crate) broken: u8,
    /// What `committed` comes to; it follows from that.
    pub(crate) replayed: Arc<Replayed>,
}

impl State {
    fn parts(&self) -> impl PartialEq + Hash + '_ {
        let Self { tick, nodes, clients, committed, resource, broken, replayed: _ } = self;
        (tick, nodes, clients, committed, resource, broken)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Time passes everywhere; `late`: but leaders' clocks miss it.
    Tick {
        late: bool,
    },
    /// A candidate wins a term with the vote of one other.
    Elect {
        candidate: usize,
        voter: usize,
        term: u8,
    },
    /// A candidate wins alone: a planted bug.
    ElectAlone {
        candidate: usize,
    },
    /// A leader appends a command, which may have been in flight for long.
    Append {
        leader: usize,
        cmd: Cmd,
    },
    /// A follower takes over one entry, and answers; the leader counts.
    Replicate {
        leader: usize,
        follower: usize,
    },
    /// A client sends its LOCK.
    Ask(usize),
    /// A reply to its LOCK arrives.
    Receive(usize, Granted),
    /// It sends its EXTEND.
    AskLonger(usize),
    /// The reply to that arrives.
    ReceiveLonger(usize),
    /// It sends its UNLOCK: done, or no longer waiting.
    GiveUp(usize),
    Die(usize),
    /// It sends a write with its token to the resource.
    Write(usize),
    /// The write arrives.
    Land(usize),
}

impl Cluster {
    pub(crate) fn new(bounds: Bounds) -> Self {
        assert!(bounds.waits.len() <= CLIENTS_MAX);
        Self { bounds, replays: Arc::default(), seen: Arc::default() }
    }

    fn note(&self, seen: u32) {
        // Most states show nothing new: reading does not contend.
        if self.seen.load(Ordering::Relaxed) & seen != seen {
            self.seen.fetch_or(seen, Ordering::Relaxed);
        }
    }

    /// Counts the leader's first `len` entries as committed.
    fn commit(&self, state: &mut State, leader: usize, len: usize) {
        let log = state.nodes[leader].log.prefix(len);
        if state.committed.starts_with(&log) {
            return;
        }
        if !log.starts_with(&state.committed) {
            state.broken |= broken::COMMITTED_CHANGED;
        }
        state.committed = log;
        state.replayed = self.replays.of(&log, &self.bounds);
        self.note(state.replayed.account.seen);
    }

    fn append(&self, state: &mut State, leader: usize, cmd: Cmd) {
        let node = &mut state.nodes[leader];
        let stamp = if self.bounds.has(Fault::ClockNotClamped) {
            // Of the nodes' own clocks, the first leader's is neither the fastest nor the slowest.
            state.tick.saturating_sub([1, 0, 2][leader])
        } else {
            node.clock
        };
        node.log.push(Entry { term: node.term, stamp, cmd });
        if self.bounds.has(Fault::QuorumOfOne) {
            let len = node.log.len();
            self.commit(state, leader, len);
        }
    }

    fn win(&self, state: &mut State, candidate: usize, term: u8) {
        state.nodes[candidate].win(term);
        self.append(state, candidate, Cmd::Noop);
        if state.nodes.iter().filter(|node| node.leads).count() > 1 {
            self.note(seen::TWO_LEADERS);
        }
    }

    fn replicate(&self, state: &mut State, leader: usize, follower: usize) {
        let Node { term, log, .. } = state.nodes[leader];
        let node = &mut state.nodes[follower];
        node.follow(term);
        let (mut common, dropped) = node.take_next(&log);
        while self.last_term(term) && common < log.len() && log.entries()[common - 1].term < term {
            (common, _) = node.take_next(&log);
        }
        if dropped {
            self.note(seen::ENTRY_OVERWRITTEN);
        }
        let own = common > 0 && log.entries()[common - 1].term == term;
        if own && log.entries()[..common].iter().skip(state.committed.len()).any(|e| e.term < term)
        {
            self.note(seen::OLD_ENTRY_COMMITTED);
        }
        if own || self.bounds.has(Fault::OldTermCommittedByCount) {
            self.commit(state, leader, common);
        }
    }

    fn land(&self, state: &mut State, client: usize) {
        let client = &mut state.clients[client];
        let token = client.token;
        client.write = Request::Arrived;
        if client.phase != Phase::Holding {
            client.token = 0;
        }
        if token < state.resource {
            if !self.bounds.has(Fault::TokenNotChecked) {
                self.note(seen::LATE_WRITE_REFUSED);
                return;
            }
            state.broken |= broken::RESOURCE_FELL;
        }
        state.resource = token;
    }

    /// The replies that clients may receive.
    fn replies(&self, state: &State) -> Vec<Granted> {
        let mut replies = state.replayed.grants.clone();
        if self.bounds.has(Fault::ReplyBeforeCommit) {
            for node in state.nodes.iter().filter(|node| node.leads) {
                replies.extend_from_slice(&self.replays.of(&node.log, &self.bounds).grants);
            }
        }
        replies
    }

    fn node_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Bounds { terms, slots, .. } = self.bounds;
        let has = |fault| self.bounds.has(fault);
        for (index, node) in state.nodes.iter().enumerate() {
            let room = node.log.len() < usize::from(slots);
            if room && has(Fault::QuorumOfOne) && node.term < terms {
                actions.push(Action::ElectAlone { candidate: index });
            }
            for (other, peer) in state.nodes.iter().enumerate().filter(|(other, _)| *other != index)
            {
                let (forgets, compares) = (has(Fault::SecondVote), !has(Fault::VoteForLogBehind));
                for term in node.term + 1..=terms {
                    if room && peer.would_vote(term, &node.log, forgets, compares) {
                        actions.push(Action::Elect { candidate: index, voter: other, term });
                    }
                }
                let follows = peer.term < node.term || (peer.term == node.term && !peer.leads);
                let news = peer.term < node.term || node.log.common(&peer.log) < node.log.len();
                if node.leads && follows && news {
                    actions.push(Action::Replicate { leader: index, follower: other });
                }
            }
            if node.leads && room {
                self.appends(state, index, actions);
            }
        }
    }

    /// The commands in flight to a leader, in any order, and its own stamps.
    fn appends(&self, state: &State, leader: usize, actions: &mut Vec<Action>) {
        let node = &state.nodes[leader];
        let mut push = |cmd| actions.push(Action::Append { leader, cmd });
        if state.replayed.due().is_some_and(|due| due <= node.clock && node.log.last().stamp < due)
        {
            push(Cmd::Noop);
        }
        for (client, index) in state.clients.iter().zip(0..) {
            if client.phase != Phase::Idle && client.locks < self.bounds.lock_copies {
                let fresh = self.bounds.has(Fault::CopyCarriesFreshTime);
                let seen = if fresh { state.replayed.now() } else { client.seen };
                push(Cmd::Lock { client: index, seen });
            }
            if client.phase == Phase::Ended && client.unlocks < self.bounds.unlock_copies {
                push(Cmd::Unlock(index));
            }
            if client.extend == Request::Sent {
                push(Cmd::Extend(index));
            }
            if client.phase == Phase::Dead && state.replayed.waits(index) {
                let gone = |entry: &Entry| entry.cmd == Cmd::Gone(index);
                if !node.log.entries().iter().any(gone) {
                    push(Cmd::Gone(index));
                }
            }
        }
    }

    fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        let count = |is: fn(&Client) -> bool| state.clients.iter().filter(|c| is(c)).count();
        let may_die = count(|c| c.phase == Phase::Dead) < usize::from(bounds.deaths);
        let may_extend = count(|c| c.extend != Request::No) < usize::from(bounds.extends);
        let replies = self.replies(state);
        for (index, client) in state.clients.iter().enumerate().take(bounds.waits.len()) {
            let believes = client.believes(state.tick);
            match client.phase {
                Phase::Idle => actions.push(Action::Ask(index)),
                Phase::Asking => {
                    let ours = replies.iter().filter(|reply| usize::from(reply.client) == index);
                    actions.extend(ours.map(|reply| Action::Receive(index, *reply)));
                }
                _ => {}
            }
            if matches!(client.phase, Phase::Asking | Phase::Holding) {
                actions.push(Action::GiveUp(index));
                if may_die {
                    actions.push(Action::Die(index));
                }
            }
            if believes && may_extend && client.extend == Request::No {
                actions.push(Action::AskLonger(index));
            }
            let answered = client.extend == Request::Arrived && state.replayed.extended[index];
            if believes && answered {
                actions.push(Action::ReceiveLonger(index));
            }
            if believes && bounds.writes && client.write == Request::No {
                actions.push(Action::Write(index));
            }
            if client.write == Request::Sent {
                actions.push(Action::Land(index));
            }
        }
    }

    fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick { late } => {
                state.tick += 1;
                for node in state.nodes.iter_mut().filter(|node| node.leads && !late) {
                    node.clock += 1;
                }
                let holder = state.replayed.account.holder.map(usize::from);
                let gave_up = |c: &Client| c.phase == Phase::Holding && !c.believes(state.tick);
                if holder.is_some_and(|holder| gave_up(&state.clients[holder])) {
                    self.note(seen::HOLDER_GAVE_UP_FIRST);
                }
            }
            Action::Elect { candidate, voter, term } => {
                state.nodes[voter].vote(term);
                self.win(state, candidate, term);
            }
            Action::ElectAlone { candidate } => {
                let term = state.nodes[candidate].term + 1;
                self.win(state, candidate, term);
            }
            Action::Append { leader, cmd } => {
                match cmd {
                    Cmd::Noop | Cmd::Gone(_) => {}
                    Cmd::Lock { client, .. } => state.clients[usize::from(client)].locks += 1,
                    Cmd::Unlock(client) => state.clients[usize::from(client)].unlocks += 1,
                    Cmd::Extend(client) => {
                        state.clients[usize::from(client)].extend = Request::Arrived;
                    }
                }
                self.append(state, leader, cmd);
            }
            Action::Replicate { leader, follower } => self.replicate(state, leader, follower),
            Action::Ask(client) => {
                // Where nothing is forgotten it makes no difference.
                let forgets = self.bounds.nonce_memory < self.bounds.ticks;
                let seen = if forgets { state.replayed.now() } else { 0 };
                state.clients[client].ask(state.tick, seen);
            }
            Action::Receive(client, granted) => {
                let tick = state.tick;
                return state.clients[client].receive(&granted, tick, &self.bounds).then_some(());
            }
            Action::AskLonger(client) => state.clients[client].ask_longer(state.tick),
            Action::ReceiveLonger(client) => state.clients[client].receive_longer(&self.bounds),
            Action::GiveUp(client) => state.clients[client].give_up(),
            Action::Die(client) => state.clients[client].die(),
            Action::Write(client) => state.clients[client].write = Request::Sent,
            Action::Land(client) => self.land(state, client),
        }
        Some(())
    }
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    /// Node 0 leads term 1, and has appended its NOOP: which node begins makes no difference.
    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            tick: 0,
            nodes: [Node::default(); NODES],
            clients: [Client::default(); CLIENTS_MAX],
            committed: Log::default(),
            resource: 0,
            broken: 0,
            replayed: self.replays.of(&Log::default(), &self.bounds),
        };
        state.nodes[1].vote(1);
        self.win(&mut state, 0, 1);
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < self.bounds.ticks {
            actions.push(Action::Tick { late: false });
            if self.bounds.slow_clocks && state.nodes.iter().any(|node| node.leads) {
                actions.push(Action::Tick { late: true });
            }
        }
        self.node_actions(state, actions);
        self.client_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action)?;
        if self.bounds.reduced {
            self.reduce(&mut next);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
