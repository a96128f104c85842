//! The state of the whole model, every step that it can take, and the properties after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    sync::{Arc, Mutex},
};

use stateright::{Model, Property};

use super::{
    Bounds, CLIENTS_MAX, Fault,
    client::{Client, Granted, Phase, Request},
    past::{Cmd, Entry, Past, seen},
};

/// The properties of every state.
pub(crate) mod rules {
    pub(crate) const REFERENCE: &str = "the table does what the reference does";
    pub(crate) const WITHDRAWN: &str = "nothing is granted for a nonce that has ended";
    pub(crate) const ONE_GRANT: &str = "a nonce is granted once";
    pub(crate) const SNAPSHOT: &str = "a table restored on the way comes to the same";
    pub(crate) const ONE_BELIEVER: &str = "no two clients believe that they hold";
    pub(crate) const BELIEVER_HOLDS: &str = "a client that believes holds";
}

/// The model: a group, and its clients, each with its clock.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    bounds: Bounds,
    /// Every log so far.
    pasts: Arc<Mutex<BTreeMap<Vec<Entry>, Arc<Past>>>>,
    /// The rare events reached so far.
    seen: Arc<Mutex<BTreeSet<&'static str>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    /// Real time, in ticks.
    tick: u8,
    /// The leader's cluster time. It continues from the last stamp, and may miss ticks.
    clock: u8,
    clients: [Client; CLIENTS_MAX],
    past: Arc<Past>,
}

impl State {
    fn parts(&self) -> impl PartialEq + Hash + '_ {
        let Self { tick, clock, clients, past } = self;
        (tick, clock, clients, &past.log)
    }

    fn believers(&self) -> impl Iterator<Item = u8> + '_ {
        let clients = self.clients.iter().zip(0..);
        clients.filter(|(client, _)| client.believes(self.tick)).map(|(_, index)| index)
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
    /// Time passes everywhere; `late`: but the leader's clock misses it.
    Tick {
        late: bool,
    },
    /// Another leader takes over. Uncommitted commands of the former were never in the log.
    ChangeLeader,
    /// The leader commits a command, which may have been in flight for long.
    Commit(Cmd),
    /// A client sends its LOCK.
    Lock(usize),
    /// A reply to its LOCK arrives.
    Receive(usize, Granted),
    /// A client sends its EXTEND.
    Extend(usize),
    /// The reply to that arrives.
    ReceiveExtended(usize),
    /// A client sends its UNLOCK: done, or no longer waiting.
    Unlock(usize),
    Die(usize),
}

impl Group {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, pasts: Arc::default(), seen: Arc::default() }
    }

    /// How many different logs there were.
    pub(crate) fn logs(&self) -> usize {
        self.pasts.lock().unwrap().len()
    }

    pub(crate) fn seen(&self) -> BTreeSet<&'static str> {
        self.seen.lock().unwrap().clone()
    }

    fn note(&self, event: &'static str) {
        self.seen.lock().unwrap().insert(event);
    }

    fn commit(&self, state: &mut State, cmd: Cmd) {
        let entry = Entry { stamp: state.clock, cmd };
        let mut log = state.past.log.clone();
        log.push(entry);
        let known = self.pasts.lock().unwrap().get(&log).cloned();
        state.past = known.unwrap_or_else(|| {
            let past = Arc::new(state.past.then(entry, &self.bounds));
            self.seen.lock().unwrap().extend(&past.seen);
            self.pasts.lock().unwrap().insert(log, past.clone());
            past
        });
    }

    /// The commands in flight to the leader, in any order, and its own stamps.
    fn commits(&self, state: &State, actions: &mut Vec<Action>) {
        let past = &state.past;
        if past.log.len() == self.bounds.slots {
            return;
        }
        let mut push = |cmd| actions.push(Action::Commit(cmd));
        if state.clock > past.last_stamp() {
            push(Cmd::Noop);
        }
        for (client, index) in state.clients.iter().zip(0..) {
            if client.phase != Phase::Idle && client.locks < self.bounds.lock_copies {
                let fresh = self.bounds.has(Fault::CopyCarriesFreshTime);
                let seen = if fresh { past.now() } else { client.seen };
                push(Cmd::Lock { client: index, seen });
            }
            if client.phase == Phase::Ended && !client.unlocked {
                push(Cmd::Unlock(index));
            }
            if client.extend == Request::Sent {
                push(Cmd::Extend(index));
            }
            if client.phase == Phase::Dead && past.waits(index) {
                push(Cmd::DropWaiters(index));
            }
        }
    }

    fn client_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        let count = |is: fn(&Client) -> bool| state.clients.iter().filter(|c| is(c)).count();
        let may_die = count(|c| c.phase == Phase::Dead) < bounds.deaths;
        let may_extend = count(|c| c.extend != Request::No) < bounds.extends;
        for (index, client) in state.clients.iter().enumerate().take(bounds.waits.len()) {
            let believes = client.believes(state.tick);
            match client.phase {
                Phase::Idle => actions.push(Action::Lock(index)),
                Phase::Asking => {
                    let replies = state.past.grants.iter();
                    let ours = replies.filter(|reply| usize::from(reply.client) == index);
                    actions.extend(ours.map(|reply| Action::Receive(index, *reply)));
                }
                _ => {}
            }
            if matches!(client.phase, Phase::Asking | Phase::Holding) {
                actions.push(Action::Unlock(index));
                if may_die {
                    actions.push(Action::Die(index));
                }
            }
            if believes && may_extend && client.extend == Request::No {
                actions.push(Action::Extend(index));
            }
            if believes && client.extend == Request::Arrived && state.past.extended[index] {
                actions.push(Action::ReceiveExtended(index));
            }
        }
    }

    fn step(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick { late } => {
                state.tick += 1;
                state.clock += u8::from(!late);
                let holder = state.past.holder().map(|at| &state.clients[usize::from(at)]);
                if holder.is_some_and(|c| c.phase == Phase::Holding && !c.believes(state.tick)) {
                    self.note(seen::HOLDER_GAVE_UP_FIRST);
                }
            }
            Action::ChangeLeader => {
                let own = self.bounds.has(Fault::LeaderKeepsItsClock);
                state.clock = if own { state.tick } else { state.past.last_stamp() };
                self.note(seen::LEADER_CLOCK_BEHIND);
            }
            Action::Commit(cmd) => {
                if let Some(client) = cmd.client() {
                    state.clients[usize::from(client)].committed(cmd);
                }
                self.commit(state, cmd);
            }
            Action::Lock(client) => {
                // The time makes no difference where nothing is forgotten.
                let forgets = self.bounds.nonce_memory < self.bounds.ticks;
                let seen = if forgets { state.past.now() } else { 0 };
                state.clients[client].lock(state.tick, seen);
            }
            Action::Receive(client, granted) => {
                return state.clients[client].receive(&granted, state.tick).then_some(());
            }
            Action::Extend(client) => state.clients[client].extend(state.tick),
            Action::ReceiveExtended(client) => state.clients[client].receive_extended(),
            Action::Unlock(client) => state.clients[client].stop(Phase::Ended),
            Action::Die(client) => state.clients[client].stop(Phase::Dead),
        }
        Some(())
    }
}

impl Model for Group {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            tick: 0,
            clock: 0,
            clients: [Client::default(); CLIENTS_MAX],
            past: Arc::new(Past::empty(&self.bounds)),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.tick < self.bounds.ticks {
            actions.extend([Action::Tick { late: false }, Action::Tick { late: true }]);
        }
        if state.clock != state.past.last_stamp() {
            actions.push(Action::ChangeLeader);
        }
        self.commits(state, actions);
        self.client_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        vec![
            always(rules::REFERENCE, |_, s| s.past.keeps(rules::REFERENCE)),
            always(rules::WITHDRAWN, |_, s| s.past.keeps(rules::WITHDRAWN)),
            always(rules::ONE_GRANT, |_, s| s.past.keeps(rules::ONE_GRANT)),
            always(rules::SNAPSHOT, |_, s| s.past.keeps(rules::SNAPSHOT)),
            always(rules::ONE_BELIEVER, |_, s| s.believers().count() <= 1),
            always(rules::BELIEVER_HOLDS, |_, s| {
                s.believers().all(|index| Some(index) == s.past.holder())
            }),
        ]
    }
}
