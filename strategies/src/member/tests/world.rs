//! Whole clusters of real nodes in virtual time: no task, clock or socket takes part.

mod calls;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use gaggle_channels::NodeName;

use crate::{
    client::{
        Core,
        calls::{CallId, Output, Reply},
        earlier,
    },
    clock::Instant,
    lock::Nonce,
    lock_table::{Grant, TableConfig},
    member::{
        MemberOptions,
        backend::{Policy, profile},
        group::Group,
        node::{Frame, NameInUse, Node},
        options::RunOptions,
        wire::{self, Body},
    },
    random::mix,
    status::MemberStatus,
};

const FRAME_LIMIT: usize = 64 * 1024;

/// A cluster of nodes joined by a network that the test controls: a list of frames, which tests
/// read, hold and forge one by one. The simulator's network decides the fate of each frame, between
/// a fixed number of processes, and a test could not state when a frame arrives.
pub(super) struct World {
    pub(super) now: Instant,
    options: MemberOptions,
    /// After how many entries processes that start from now on compact their log, and how many stay.
    compaction: (u64, u64),
    /// The bounds of their tables.
    pub(super) table: TableConfig,
    nodes: BTreeMap<String, Process>,
    frames: VecDeque<(Instant, String, String, Vec<u8>)>,
    cut: BTreeSet<(String, String)>,
    /// Drops one frame in `n`, if set, at random: every n-th may always be the same heartbeat.
    pub(super) drop_one_in: Option<u64>,
    /// How long a frame travels.
    pub(super) latency: Duration,
    /// A process whose frames leave this much later, as after a long turn.
    pub(super) slow: Option<(String, Duration)>,
    /// A process that receives this many bytes a second, and until when its link is busy.
    pub(super) narrow: Option<(String, u64, Instant)>,
    /// The time of all wall clocks in nanoseconds; virtual time, if not set.
    pub(super) wall: Option<u64>,
    sent: u64,
    pub(super) replies: BTreeMap<CallId, Reply>,
    grants: BTreeMap<CallId, Grant>,
    /// Which process relies on which acquisition.
    relied_on: BTreeSet<(String, Nonce)>,
    pub(super) lost: Vec<(String, Nonce)>,
    /// The processes that could not go on, and why.
    pub(super) failed: Vec<(String, String)>,
    calls: CallId,
    seeds: u64,
}

/// A member without its channel and its ticks, and the client core over it.
struct Process {
    node: Node,
    core: Core,
}

impl Process {
    /// Takes a turn without its arrivals. Returns the frames that leave.
    fn turn(&mut self, now: Instant) -> Result<Vec<Frame>, NameInUse> {
        let mut events = Vec::new();
        self.core.expire(now);
        loop {
            let more = self.node.flush(now, &mut events)?;
            events.drain(..).for_each(|event| self.core.handle(now, event));
            let node = &mut self.node;
            let sent = self.core.send_due(now, |command| node.submit(now, command));
            if !more && !sent {
                return Ok(self.node.end_turn(now));
            }
        }
    }
}

pub(super) const LATENCY: Duration = Duration::from_millis(1);
/// The lease of every lock.
pub(super) const LEASE: Duration = Duration::from_secs(10);

pub(super) fn name_of(name: &str) -> NodeName {
    NodeName::new(name).expect("tests name nodes shortly")
}

/// The name that a process runs under: `a'` is a second process of the name `a`.
fn name_in(key: &str) -> &str {
    key.trim_end_matches('\'')
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

    /// The same, with logs that are compacted `after` so many entries, of which `keep` stay.
    pub(super) fn compacting(names: &[&str], after: u64, keep: u64) -> Self {
        let mut world = Self::empty(MemberOptions::named("test", names.iter().map(|n| name_of(n))));
        world.compaction = (after, keep);
        names.iter().for_each(|name| world.start(name));
        world
    }

    pub(super) fn empty(options: MemberOptions) -> Self {
        Self {
            now: Instant::from_origin(Duration::from_secs(100)),
            options,
            compaction: (10_000, 1_000),
            table: TableConfig::default(),
            nodes: BTreeMap::new(),
            frames: VecDeque::new(),
            cut: BTreeSet::new(),
            drop_one_in: None,
            latency: LATENCY,
            slow: None,
            narrow: None,
            wall: None,
            sent: 0,
            replies: BTreeMap::new(),
            grants: BTreeMap::new(),
            relied_on: BTreeSet::new(),
            lost: Vec::new(),
            failed: Vec::new(),
            calls: 0,
            seeds: 0,
        }
    }

    /// Changes the options of processes that start from now on.
    pub(super) fn change_options(&mut self, change: impl FnOnce(MemberOptions) -> MemberOptions) {
        self.options = change(self.options.clone());
    }

    /// Starts a process under this name, with no memory of an earlier one.
    pub(super) fn start(&mut self, name: &str) {
        self.seeds += 1;
        let (compact_after, compact_keep) = self.compaction;
        let run = RunOptions::new(self.seeds);
        let run = RunOptions { compact_after, compact_keep, table: self.table.clone(), ..run };
        let name_of = name_of(name_in(name));
        let node = Node::new(name_of, &self.options, FRAME_LIMIT, &run, self.now);
        let core = Core::new(profile(&self.options, Policy::Queue), self.seeds);
        self.nodes.insert(name.into(), Process { node, core });
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

    /// Loses all frames from `from` to `to`; the other way stays open.
    pub(super) fn cut_one_way(&mut self, from: &str, to: &str) {
        self.cut.insert((from.into(), to.into()));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    pub(super) fn node(&mut self, name: &str) -> &mut Node {
        &mut self.nodes.get_mut(name).expect("it runs").node
    }

    /// When a turn of this process must come although nothing arrives, besides ticks.
    pub(super) fn next_wake(&self, name: &str) -> Option<Instant> {
        let Process { node, core } = &self.nodes[name];
        earlier(node.next_wake(), core.next_wake())
    }

    /// The processes that run.
    pub(super) fn running(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    fn all_nodes(&self) -> impl Iterator<Item = (&String, &Node)> {
        self.nodes.iter().map(|(name, process)| (name, &process.node))
    }

    /// A member's own table and log.
    pub(super) fn group(&self, name: &str) -> &Group {
        self.nodes[name].node.group().expect("it is in a group")
    }

    pub(super) fn status(&self, name: &str) -> MemberStatus {
        self.nodes[name].node.status()
    }

    /// The name of the leader that a majority of running nodes follows.
    pub(super) fn leader(&self) -> Option<String> {
        let leads = self.all_nodes().filter(|(_, node)| node.status().leads);
        let latest = leads.max_by_key(|(_, node)| node.status().term);
        latest.map(|(name, _)| name.clone())
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
                let Some(process) = self.nodes.get_mut(&name) else { continue };
                if millis.is_multiple_of(10) {
                    process.node.tick(now, wall);
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
            world.all_nodes().all(|(_, node)| node.status().ready)
        })
    }

    fn deliver(&mut self) {
        while let Some((at, ..)) = self.frames.front()
            && *at <= self.now
        {
            let (_, from, to, frame) = self.frames.pop_front().expect("it was just seen");
            let now = self.now;
            if let Some(process) = self.nodes.get_mut(&to) {
                process.node.receive(now, &name_of(name_in(&from)), &frame);
            }
        }
    }

    /// Takes a turn of a member that must not fail. Returns the frames that it sends.
    pub(super) fn turn(&mut self, name: &str) -> Vec<Frame> {
        let now = self.now;
        self.nodes.get_mut(name).expect("it runs").turn(now).expect("the member goes on")
    }

    fn flush(&mut self, name: &str) {
        let now = self.now;
        let process = self.nodes.get_mut(name).expect("it runs");
        let frames = match process.turn(now) {
            Ok(frames) => frames,
            Err(error) => {
                self.failed.push((name.into(), error.to_string()));
                // A member that cannot go on ends, as in the driver.
                self.kill(name);
                return;
            }
        };
        let outputs: Vec<Output> = process.core.outputs().collect();
        for Frame { to, bytes } in frames {
            self.send(name, to.as_str(), &bytes);
            // A channel that finds processes by name reaches all that run under it.
            let twin = format!("{to}'");
            if self.nodes.contains_key(&twin) {
                self.send(name, &twin, &bytes);
            }
        }
        for output in outputs {
            match output {
                Output::Reply { id, reply } => self.take_reply(name, id, reply),
                Output::Lost { lock, .. } => {
                    if self.relied_on.remove(&(name.into(), lock.nonce())) {
                        self.lost.push((name.into(), lock.nonce()));
                    }
                }
                Output::Unextended { .. } => {}
                Output::Released { lock, .. } => {
                    self.relied_on.remove(&(name.into(), lock.nonce()));
                }
            }
        }
    }

    fn take_reply(&mut self, name: &str, id: CallId, reply: Reply) {
        if let Reply::Granted { lock, .. } = &reply {
            // Another process may have ended it in the same turn.
            if let Some(grant) = self.group(name).table().holder(lock.key()) {
                self.grants.insert(id, grant);
            }
            self.relied_on.insert((name.into(), lock.nonce()));
        }
        self.replies.insert(id, reply);
    }

    /// Frames that a cluster sends while it forms, locks, and takes a restarted member in: one of
    /// each length.
    pub(super) fn record() -> Vec<Vec<u8>> {
        let mut world = Self::compacting(&["a", "b", "c"], 20, 5);
        let mut seen = BTreeMap::new();
        for step in 0..1_800_u32 {
            match step {
                150 => _ = world.must_lock("a", "k", 1),
                160 | 170 => _ = world.lock("b", "k", step.into(), 5_000),
                180 => _ = world.unlock("a", "k", 1),
                200 => (0..30).for_each(|n| _ = world.unlock("b", "l", n)),
                400 | 1_100 => world.kill("c"),
                410 | 1_110 => world.start("c"),
                _ => {}
            }
            world.run(1);
            let frames = world.frames.iter().map(|(.., frame)| (frame.len(), frame.clone()));
            seen.extend(frames.filter(|(length, _)| *length <= 2_048));
        }
        seen.into_values().collect()
    }

    fn send(&mut self, from: &str, to: &str, frame: &[u8]) {
        assert!(frame.len() <= FRAME_LIMIT, "a frame of {} bytes", frame.len());
        self.sent += 1;
        let dropped = self.drop_one_in.is_some_and(|n| mix(&[self.sent]).is_multiple_of(n));
        if !dropped && !self.cut.contains(&(from.into(), to.into())) {
            let late = self.slow.as_ref().filter(|(name, _)| name == from);
            let late = late.map_or(Duration::ZERO, |(_, late)| *late);
            let mut left_at = self.now;
            if let Some((_, rate, busy_until)) = self.narrow.as_mut().filter(|n| n.0 == to) {
                let micros = frame.len() as u64 * 1_000_000 / *rate;
                left_at = left_at.max(*busy_until).after(Duration::from_micros(micros));
                *busy_until = left_at;
            }
            let at = left_at.after(self.latency + late);
            let place = self.frames.partition_point(|(other, ..)| *other <= at);
            self.frames.insert(place, (at, from.into(), to.into(), frame.to_vec()));
        }
    }

    /// The bodies in flight from one process to another.
    pub(super) fn in_flight(&self, from: &str, to: &str) -> Vec<Body> {
        let frames =
            self.frames.iter().filter(|(_, sender, receiver, _)| sender == from && receiver == to);
        let bodies = |frame: &[u8]| wire::decode(frame).expect("members send what decodes").1;
        frames.flat_map(|(.., frame)| bodies(frame)).collect()
    }

    /// Whether a snapshot to this process is in flight, or a piece of one.
    pub(super) fn is_sent_snapshot(&self, to: &str) -> bool {
        let is_snapshot = |body: &Body| match body {
            Body::Raft(message) => message.is_snapshot(),
            body => matches!(body, Body::Chunk(_)),
        };
        self.nodes.keys().any(|from| self.in_flight(from, to).iter().any(is_snapshot))
    }

    /// The immediate replies of `to` to a frame from `from`; they are not delivered.
    pub(super) fn replies_to(&mut self, to: &str, from: &str, frame: &[u8]) -> Vec<Body> {
        let now = self.now;
        self.node(to).receive(now, &name_of(from), frame);
        let frames = self.turn(to).into_iter();
        let replies = frames.filter(|frame| frame.to.as_str() == from);
        replies.filter_map(|frame| Some(wire::decode(&frame.bytes).ok()?.1)).flatten().collect()
    }
}
