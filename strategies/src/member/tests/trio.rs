//! Three groups, without nodes and without a network: the test carries every message and drops
//! those that it names.

use std::collections::BTreeMap;

use gaggle_channels::NodeName;
use raft::eraftpb::Message;

use crate::{
    clock::Instant,
    lock::{Nonce, Owner},
    lock_table::{Command, Effect, LockRequest, ProcessId, Seen, Wait},
    member::{MemberOptions, group::Group, options::RunOptions, wire::RaftMessage},
};

/// Three groups; the first one leads.
pub(super) struct Trio {
    pub(super) groups: BTreeMap<u64, Group>,
    effects: BTreeMap<u64, Vec<Effect>>,
    pub(super) now: Instant,
}

/// A link that messages may take, from one to another.
pub(super) type Link = (u64, u64);
pub(super) const ALL: [Link; 6] = [(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)];

impl Trio {
    pub(super) fn led_by_the_first() -> Self {
        let name = |id: u64| NodeName::new(format!("m{id}")).unwrap();
        let roster: BTreeMap<u64, NodeName> = (1..=3).map(|id| (id, name(id))).collect();
        let timing = MemberOptions::named("test", roster.values().cloned())
            .timing(64 * 1024, &RunOptions::new(1));
        let found = |id| (id, Group::found(7, id, roster.clone(), &timing.table, &timing));
        let now = Instant::from_origin(std::time::Duration::from_secs(100));
        let groups = (1..=3).map(found).collect();
        let mut trio = Self { groups, effects: BTreeMap::new(), now };
        trio.group(1).campaign();
        trio.deliver(&ALL);
        assert!(trio.group(1).is_leader());
        trio
    }

    pub(super) fn group(&mut self, id: u64) -> &mut Group {
        self.groups.get_mut(&id).unwrap()
    }

    /// Takes what a group wants to send, and remembers what it has applied.
    pub(super) fn drain(&mut self, id: u64) -> Vec<Message> {
        let now = self.now;
        let out = self.group(id).drain(now);
        self.effects.entry(id).or_default().extend(out.effects);
        out.messages.into_iter().map(RaftMessage::into_message).collect()
    }

    pub(super) fn step(&mut self, message: Message) {
        let to = message.to;
        self.group(to).step(RaftMessage::of(message).unwrap()).unwrap();
    }

    /// Carries messages over these links, and drops all others, until there are none left.
    pub(super) fn deliver(&mut self, links: &[Link]) {
        loop {
            let said: Vec<Message> = (1..=3).flat_map(|id| self.drain(id)).collect();
            if said.is_empty() {
                return;
            }
            let carried = said.into_iter().filter(|m| links.contains(&(m.from, m.to)));
            carried.for_each(|message| self.step(message));
        }
    }

    /// Ticks the groups that these links join until one of them leads a later term.
    pub(super) fn elect(&mut self, links: &[Link]) -> u64 {
        let term = self.groups.values().map(Group::term).max().unwrap();
        for _ in 0..1_000 {
            let joined: Vec<u64> = (1..=3).filter(|id| links.iter().any(|l| l.0 == *id)).collect();
            self.now = self.now.after(std::time::Duration::from_millis(10));
            for &id in &joined {
                self.group(id).tick(1);
            }
            self.deliver(links);
            let leads = |id: &&u64| self.groups[id].is_leader() && self.groups[id].term() > term;
            if let Some(&leader) = joined.iter().find(leads) {
                return leader;
            }
        }
        panic!("no leader of a later term");
    }

    /// Isolates the first group, which leads, until it steps down.
    pub(super) fn step_down(&mut self) {
        while self.group(1).is_leader() {
            self.group(1).tick(1);
            self.deliver(&[]);
        }
    }

    /// Lets the leader's heartbeats bring the others to its commit index.
    pub(super) fn settle(&mut self, leader: u64, links: &[Link]) {
        for _ in 0..10 {
            self.group(leader).tick(1);
            self.deliver(links);
        }
    }

    /// Has the leader append a LOCK; it is not sent yet.
    pub(super) fn append_lock(&mut self, leader: u64, nonce: u128) {
        let now = self.now;
        self.group(leader).submit(Command::Lock(lock(nonce)));
        assert!(self.group(leader).flush(now));
    }

    pub(super) fn was_granted(&self, at: u64, nonce: u128) -> bool {
        let granted = |effect: &Effect| match effect {
            Effect::Granted(grant) => grant.nonce == Nonce::from_u128(nonce),
            _ => false,
        };
        self.effects.get(&at).is_some_and(|effects| effects.iter().any(granted))
    }
}

pub(super) fn lock(nonce: u128) -> LockRequest {
    LockRequest {
        key: "k".into(),
        nonce: Nonce::from_u128(nonce),
        process: ProcessId(1),
        duration_ms: 10_000,
        wait: Wait::Forever,
        seen: Seen::Now,
        owner: Owner::default().into(),
    }
}
