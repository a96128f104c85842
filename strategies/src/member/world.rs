//! Whole clusters of real nodes in virtual time: no task, clock or socket takes part.

mod bytes;
mod forge;
pub(crate) mod hostile;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use gaggle_channels::NodeName;

use crate::{
    Instant, MemberOptions, Nonce, Owner,
    lock_table::{Ended, Grant},
    member::{
        group::Group,
        node::{Node, Output, Status},
        random::mix,
        requests::{Answer, Call, CallerId, LockCall, Until},
        wire::{self, Body},
    },
};

/// A cluster of nodes joined by a network that the test controls.
pub(super) struct World {
    pub(super) now: Instant,
    options: MemberOptions,
    nodes: BTreeMap<String, Node>,
    frames: VecDeque<(Instant, String, String, Vec<u8>)>,
    cut: BTreeSet<(String, String)>,
    /// Drops one frame in so many, if set: drawn, because every n-th may always be the same heartbeat.
    pub(super) drop_one_in: Option<u64>,
    /// How long a frame travels.
    pub(super) latency: Duration,
    /// What all wall clocks show in nanoseconds; virtual time, if not set.
    pub(super) wall: Option<u64>,
    sent: u64,
    pub(super) answers: BTreeMap<CallerId, Answer>,
    pub(super) lost: Vec<(String, Nonce)>,
    callers: CallerId,
    seeds: u64,
    /// Somebody forges frames: the log may then hold what no member wrote.
    hostile: bool,
}

pub(super) const LATENCY: Duration = Duration::from_millis(1);

pub(super) fn name_of(name: &str) -> NodeName {
    NodeName::new(name).expect("tests name nodes shortly")
}

impl World {
    /// `names` all running.
    pub(super) fn new(names: &[&str]) -> Self {
        Self::with(names, |options| options)
    }

    pub(super) fn with(names: &[&str], change: impl Fn(MemberOptions) -> MemberOptions) -> Self {
        let named = names.iter().map(|name| name_of(name));
        let mut world = Self::empty(change(MemberOptions::named("test", named)));
        names.iter().for_each(|name| world.start(name));
        world
    }

    pub(super) fn empty(options: MemberOptions) -> Self {
        Self {
            now: Instant::from_origin(Duration::from_secs(100)),
            options,
            nodes: BTreeMap::new(),
            frames: VecDeque::new(),
            cut: BTreeSet::new(),
            drop_one_in: None,
            latency: LATENCY,
            wall: None,
            sent: 0,
            answers: BTreeMap::new(),
            lost: Vec::new(),
            callers: 0,
            seeds: 0,
            hostile: false,
        }
    }

    /// What is started from now on has other options.
    pub(super) fn change_options(&mut self, change: impl FnOnce(MemberOptions) -> MemberOptions) {
        self.options = change(self.options.clone());
    }

    /// Starts a process under this name, with no memory of an earlier one.
    pub(super) fn start(&mut self, name: &str) {
        self.seeds += 1;
        let node = Node::new(name_of(name), &self.options, 64 * 1024, self.seeds);
        self.nodes.insert(name.into(), node);
    }

    pub(super) fn kill(&mut self, name: &str) {
        self.nodes.remove(name).expect("only what runs is killed");
    }

    pub(super) fn cut_off(&mut self, name: &str) {
        for other in self.nodes.keys().filter(|other| *other != name) {
            self.cut.insert((name.into(), other.clone()));
            self.cut.insert((other.clone(), name.into()));
        }
    }

    /// What `from` sends to `to` is lost; the other way stays open.
    pub(super) fn cut_one_way(&mut self, from: &str, to: &str) {
        self.cut.insert((from.into(), to.into()));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(super) fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).expect("it runs")
    }

    /// What a member's own table and log hold.
    pub(super) fn group(&self, name: &str) -> &Group {
        self.nodes[name].group().expect("it is in a group")
    }

    pub(super) fn status(&self, name: &str) -> Status {
        self.nodes[name].status()
    }

    /// The name of the leader that a majority of running nodes follows.
    pub(super) fn leader(&self) -> Option<String> {
        let leads = self.nodes.iter().filter(|(_, node)| node.status().leads);
        let newest = leads.max_by_key(|(_, node)| node.status().term);
        newest.map(|(name, _)| name.clone())
    }

    pub(super) fn follower(&self) -> String {
        let leader = self.leader();
        self.nodes.keys().find(|name| Some(*name) != leader.as_ref()).expect("several run").clone()
    }

    /// Runs for `ms` milliseconds of virtual time.
    pub(super) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now = self.now.after(Duration::from_millis(1));
            self.deliver();
            let millis = self.now.since_origin().as_millis();
            let names: Vec<String> = self.nodes.keys().cloned().collect();
            for name in names {
                let now = self.now;
                let nanos = now.since_origin().as_nanos();
                let virtual_wall = u64::try_from(nanos).expect("not for centuries");
                let wall = self.wall.unwrap_or(virtual_wall);
                let Some(node) = self.nodes.get_mut(&name) else { continue };
                if millis.is_multiple_of(10) {
                    node.tick(now, wall);
                }
                self.flush(&name);
            }
        }
    }

    /// Runs until `done`, at most `ms`; panics if it never is.
    pub(super) fn run_until(&mut self, ms: u64, what: &str, done: impl Fn(&Self) -> bool) -> u64 {
        for spent in 0..ms {
            if done(self) {
                return spent;
            }
            self.run(1);
        }
        panic!("within {ms} ms: {what}");
    }

    pub(super) fn run_until_ready(&mut self) -> u64 {
        self.run_until(5_000, "all members are ready", |world| {
            world.nodes.values().all(|node| node.status().ready)
        })
    }

    fn deliver(&mut self) {
        while let Some((at, ..)) = self.frames.front()
            && *at <= self.now
        {
            let (_, from, to, frame) = self.frames.pop_front().expect("it was just seen");
            let now = self.now;
            if let Some(node) = self.nodes.get_mut(&to) {
                node.receive(now, &name_of(&from), &frame);
            }
        }
    }

    fn flush(&mut self, name: &str) {
        let now = self.now;
        let outputs = match self.node(name).flush(now) {
            Ok(outputs) => outputs,
            Err(error) => {
                assert!(self.hostile, "the log can be applied: {error}");
                // As the driver does: a member that cannot go on ends.
                self.kill(name);
                return;
            }
        };
        for output in outputs {
            match output {
                Output::Send { to, frame } => self.send(name, to.as_str(), &frame),
                Output::Broadcast { frame } => {
                    for to in self.nodes.keys().cloned().collect::<Vec<_>>() {
                        self.send(name, &to, &frame);
                    }
                }
                Output::Answer { caller, answer } => {
                    self.answers.insert(caller, answer);
                }
                Output::Lost { lock } => self.lost.push((name.into(), lock.nonce())),
                Output::Ended { .. } | Output::LostAll => {}
            }
        }
    }

    /// Frames that a cluster sends while it forms, locks, and takes a restarted member in: one of
    /// each length.
    pub(crate) fn record() -> Vec<Vec<u8>> {
        let mut world = Self::with(&["a", "b", "c"], |options| options.compaction(20, 5));
        let mut seen = BTreeMap::new();
        for step in 0..1_200_u32 {
            match step {
                150 => _ = world.must_lock("a", "k", 1),
                160 | 170 => _ = world.lock("b", "k", step.into(), 5_000),
                180 => _ = world.unlock("a", "k", 1),
                200 => (0..30).for_each(|n| _ = world.unlock("b", "l", n)),
                400 | 800 => world.kill("c"),
                410 | 810 => world.start("c"),
                _ => {}
            }
            world.run(1);
            let frames = world.frames.iter().map(|(.., frame)| (frame.len(), frame.clone()));
            seen.extend(frames.filter(|(length, _)| *length <= 2_048));
        }
        seen.into_values().collect()
    }

    fn send(&mut self, from: &str, to: &str, frame: &[u8]) {
        self.sent += 1;
        let dropped = self.drop_one_in.is_some_and(|n| mix(&[self.sent]).is_multiple_of(n));
        if !dropped && !self.cut.contains(&(from.into(), to.into())) {
            let at = self.now.after(self.latency);
            self.frames.push_back((at, from.into(), to.into(), frame.to_vec()));
        }
    }

    /// What is under way from one to another.
    pub(super) fn under_way(&self, from: &str, to: &str) -> Vec<Body> {
        let frames =
            self.frames.iter().filter(|(_, sender, receiver, _)| sender == from && receiver == to);
        let bodies = |frame: &[u8]| wire::decode(frame).expect("members send what decodes").1;
        frames.flat_map(|(.., frame)| bodies(frame)).collect()
    }

    /// What `to` answers at once to a frame that it receives from `from`, who gets nothing of it.
    pub(super) fn answer_to(&mut self, to: &str, from: &str, frame: &[u8]) -> Vec<Body> {
        let now = self.now;
        let node = self.node(to);
        node.receive(now, &name_of(from), frame);
        let outputs = node.flush(now).expect("the member goes on").into_iter();
        let bodies = outputs.filter_map(|output| match output {
            Output::Send { to, frame } if to.as_str() == from => Some(wire::decode(&frame).ok()?.1),
            _ => None,
        });
        bodies.flatten().collect()
    }

    pub(super) fn call(&mut self, name: &str, call: impl FnOnce(CallerId) -> Call) -> CallerId {
        self.callers += 1;
        let (now, caller) = (self.now, self.callers);
        self.node(name).call(now, call(caller));
        caller
    }

    /// Asks for `key` under `nonce`, waiting at most `wait_ms`.
    pub(super) fn lock(&mut self, name: &str, key: &str, nonce: u128, wait_ms: u64) -> CallerId {
        let until = match wait_ms {
            0 => Until::Now,
            ms => Until::At(self.now.after(Duration::from_millis(ms))),
        };
        let lock = LockCall {
            key: key.into(),
            nonce: Nonce::from_u128(nonce),
            drawn: true,
            unused: true,
            duration_ms: 10_000,
            until,
            retries: false,
            owner: Arc::new(Owner::default()),
        };
        self.call(name, |caller| Call::Lock { caller, lock })
    }

    pub(super) fn unlock(&mut self, name: &str, key: &str, nonce: u128) -> CallerId {
        let until = self.now.after(Duration::from_secs(10));
        let (key, nonce) = (key.into(), Nonce::from_u128(nonce));
        self.call(name, |caller| Call::Unlock { caller: Some(caller), key, nonce, until })
    }

    /// Asks for the lease of `nonce` to last `duration_ms` from now.
    pub(super) fn extend(
        &mut self,
        name: &str,
        key: &str,
        nonce: u128,
        duration_ms: u64,
    ) -> CallerId {
        let (key, nonce) = (key.into(), Nonce::from_u128(nonce));
        self.call(name, |caller| Call::Extend { caller, key, nonce, duration_ms })
    }

    pub(super) fn granted(&self, caller: CallerId) -> Option<&Grant> {
        match self.answers.get(&caller) {
            Some(Answer::Granted { grant, .. }) => Some(grant),
            _ => None,
        }
    }

    /// Locks, waiting up to 5 s of virtual time, and returns the grant.
    pub(super) fn must_lock(&mut self, name: &str, key: &str, nonce: u128) -> Grant {
        let caller = self.lock(name, key, nonce, 5_000);
        self.run_until(5_000, "the lock is granted", |world| world.granted(caller).is_some());
        self.granted(caller).expect("it was just granted").clone()
    }

    pub(super) fn must_unlock(&mut self, name: &str, key: &str, nonce: u128) {
        let caller = self.unlock(name, key, nonce);
        self.run_until(5_000, "the unlock is answered", |w| w.answers.contains_key(&caller));
        let was = match &self.answers[&caller] {
            Answer::Unlocked { was, .. } => *was,
            other => panic!("an unlock is answered by {other:?}"),
        };
        assert_eq!(was, Ended::Held);
    }
}
