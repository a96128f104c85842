use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
    task::Waker,
};

use bytes::Bytes;
use gaggle_channels::{NodeName, Received};

use super::{
    calls::Calls,
    channel::SimChannel,
    client::Client,
    clock::{SimClock, TRUE_RATE, VirtualTime},
    draw::{Draw, mixed},
    executor::{Executor, TaskId},
    faults::{Fault, Faults},
    invariants::Invariants,
    network::{Network, Ways},
    plan::{Clocks, Plan},
    process::{Process, Slot, Turn},
    recorder::Recorder,
    trace::{Trace, digest},
};
use crate::member::machine::{self, Machine};

pub(super) const MS: u64 = 1_000_000;

/// A simulated deployment: processes with their members and clients, and what lies between them.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) time: Arc<VirtualTime>,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) network: Network,
    pub(super) executor: Executor,
    /// The slot and run that each task belongs to, and its client.
    owners: BTreeMap<TaskId, (usize, u64, u32)>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) invariants: Invariants,
    pub(super) trace: Trace,
    pub(super) draw: Draw,
    stalls: Draw,
    pub(super) faults: Faults,
    clients: u32,
    /// Every call, for the history checker.
    pub(super) calls: Calls,
    pub(super) tally: Tally,
}

/// What a run amounted to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) events: u64,
    pub(super) operations: u64,
    pub(super) granted: u64,
    pub(super) two_believed: u64,
}

struct Scheduled {
    at: u64,
    /// Decided by the seed, so that events of one moment come in any order.
    tie: u64,
    number: u64,
    event: Event,
}

pub(super) enum Event {
    Frame { to: usize, from: usize, name: NodeName, frame: Bytes },
    Link { to: usize, received: Received },
    Turn { slot: usize, run: u64 },
    Wake { slot: usize, run: u64, number: u64 },
    Sleeper(Waker),
    Fault(Fault),
    Cut(Ways),
    Mend(Ways),
    Slow { slot: usize, times: u64 },
    Resume { slot: usize, run: u64 },
    Start { slot: usize },
    Rate { slot: usize, rate: u64 },
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.tie, self.number).cmp(&(other.at, other.tie, other.number))
    }
}

impl World {
    pub(super) fn new(plan: Plan, text: bool) -> Self {
        let seed = plan.seed;
        let mut draw = Draw::new(seed, 3);
        let slots = (0..plan.members).map(|slot| Slot {
            name: node_name(&plan, slot, 1),
            runs: 0,
            rate: rate(&mut draw, plan.clocks, true),
            process: None,
        });
        let mut world = Self {
            time: Arc::new(VirtualTime::default()),
            events: BinaryHeap::new(),
            scheduled: 0,
            slots: slots.collect(),
            network: Network::new(plan.network.clone(), seed),
            executor: Executor::default(),
            owners: BTreeMap::new(),
            recorder: Arc::new(Recorder::default()),
            invariants: Invariants::new(text),
            trace: Trace::new(text),
            draw,
            stalls: Draw::new(seed, 4),
            faults: Faults::new(&plan),
            clients: 0,
            calls: Calls::default(),
            tally: Tally::default(),
            plan,
        };
        for slot in 0..world.plan.members {
            let at = world.draw.between(0, 300 * MS);
            world.schedule(at, Event::Start { slot });
        }
        for (at, fault) in world.faults.first() {
            world.schedule(at, Event::Fault(fault));
        }
        world
    }

    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        let number = self.scheduled;
        let tie = mixed(self.plan.seed ^ mixed(number));
        self.events.push(Reverse(Scheduled { at, tie, number, event }));
    }

    /// Runs until `done`, or until virtual time `end`. Whether it was done.
    pub(super) fn run_until(&mut self, end: u64, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            match self.events.peek() {
                Some(Reverse(next)) if next.at <= end => {}
                _ => {
                    self.time.set(end.max(self.now()));
                    return false;
                }
            }
            let Reverse(next) = self.events.pop().expect("it was just seen");
            self.time.set(next.at);
            self.tally.events += 1;
            self.happen(next.event);
            self.poll_tasks();
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now();
        match event {
            Event::Frame { to, from, name, frame } => {
                let numbers = [1, to as u64, from as u64, digest(&frame)];
                let line = format_args!("frame {from} -> {to}, {} bytes", frame.len());
                self.trace.note(now, &numbers, line);
                self.arrive(to, Received::Frame { from: name, frame });
            }
            Event::Link { to, received } => self.arrive(to, received),
            Event::Turn { slot, run } => self.turn(slot, run),
            Event::Wake { slot, run, number } => {
                let due = |p: &&Process| p.run == run && p.wakes == number;
                if self.slots[slot].process.as_ref().filter(due).is_some() {
                    self.request_turn(slot);
                }
            }
            Event::Sleeper(waker) => waker.wake(),
            Event::Fault(fault) => self.inject(fault),
            // Faults that were on their way when all faults stopped.
            Event::Cut(_) | Event::Slow { .. } | Event::Rate { .. } if self.faults.are_over() => {}
            Event::Cut(ways) => self.network.cut(&ways),
            Event::Mend(ways) => self.network.mend(&ways),
            Event::Slow { slot, times } => self.network.set_slow(slot, times),
            Event::Resume { slot, run } => self.resume(slot, run),
            Event::Start { slot } => self.start(slot),
            Event::Rate { slot, rate } => self.set_rate(slot, rate),
        }
    }

    fn arrive(&mut self, to: usize, received: Received) {
        let now = self.now();
        if let Some(process) = &self.slots[to].process {
            process.channel.arrive(now, received);
            self.request_turn(to);
        }
    }

    /// A process starts under the slot's name, with no memory of an earlier one.
    pub(super) fn start(&mut self, slot: usize) {
        if self.slots[slot].process.is_some() {
            return;
        }
        let now = self.now();
        self.slots[slot].runs += 1;
        let run = self.slots[slot].runs;
        self.slots[slot].name = node_name(&self.plan, slot, run);
        let name = self.slots[slot].name.clone();
        let channel = Arc::new(SimChannel::new(name.clone(), self.plan.options.frame_limit));
        let clock = Arc::new(SimClock::new(self.time.clone(), self.slots[slot].rate));
        let names: Vec<NodeName> = self.slots.iter().map(|slot| slot.name.clone()).collect();
        let seed = mixed(mixed(self.plan.seed) ^ mixed(slot as u64) ^ mixed(run << 32));
        let mut options = self.plan.member_options(&names).clock(clock.clone()).seed(seed);
        options.owner = Some(machine::owner(name.as_str()));
        let (strategy, machine) = Machine::start(channel.clone(), options, self.plan.policy);
        self.trace.note(now, &[2, slot as u64, run], format_args!("start {name} run {run}"));
        if run > 1 {
            self.invariants.coverage.reach("restart");
        }
        self.slots[slot].process = Some(Process {
            run,
            machine,
            strategy,
            channel,
            clock,
            standstill: Arc::default(),
            paused_until: None,
            paused_at: 0,
            turn: None,
            deferred: Vec::new(),
            wakes: 0,
            tasks: std::collections::BTreeSet::new(),
            closing: false,
        });
        self.tell_links(slot, true);
        for number in 0..self.plan.clients {
            if number % self.plan.members == slot && !self.recorder.is_stopped() {
                self.start_client(slot);
            }
        }
        self.request_turn(slot);
    }

    /// A connection-minded channel says when the way to a peer opens or closes.
    pub(super) fn tell_links(&mut self, slot: usize, up: bool) {
        if !self.plan.network.in_order {
            return;
        }
        let peer = Some(self.slots[slot].name.clone());
        for to in (0..self.slots.len()).filter(|to| *to != slot) {
            let peer = peer.clone();
            let received = if up { Received::Up { peer } } else { Received::Down { peer } };
            let at = self.now() + self.draw.between(0, 5 * MS);
            self.schedule(at, Event::Link { to, received });
        }
        if !up {
            self.invariants.coverage.reach("connection down");
        }
    }

    pub(super) fn start_client(&mut self, slot: usize) {
        let Some(process) = &self.slots[slot].process else { return };
        self.clients += 1;
        let id = self.clients;
        let keys = (0..self.plan.keys).map(|key| format!("key {key}").into()).collect();
        let client = Client {
            id,
            strategy: process.strategy.clone(),
            clock: process.clock.clone(),
            recorder: self.recorder.clone(),
            work: self.plan.work.clone(),
            keys,
            draw: Draw::new(self.plan.seed, mixed(1000 + u64::from(id))),
            standstill: process.standstill.clone(),
        };
        self.spawn(slot, id, client.run());
    }

    pub(super) fn spawn(
        &mut self,
        slot: usize,
        client: u32,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> TaskId {
        let task = self.executor.spawn(future);
        let process = self.slots[slot].process.as_mut().expect("a task lives in a process");
        process.tasks.insert(task);
        self.owners.insert(task, (slot, process.run, client));
        task
    }

    /// A turn is wanted: something arrived, was asked for, or is due.
    pub(super) fn request_turn(&mut self, slot: usize) {
        let now = self.now();
        let plan = &self.plan.faults;
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.turn.is_some() || process.paused_until.is_some() {
            return;
        }
        let begun = now + self.stalls.between(2_000, 40_000);
        let mut turn = Turn { begun, drained: begun, ended: begun };
        if self.stalls.chance(plan.stall) {
            let long = self.stalls.spread(1, plan.stall_max);
            turn.ended = begun + long;
            turn.drained = self.stalls.between(begun, turn.ended);
            self.invariants.coverage.reach("turn stalled");
        }
        process.turn = Some(turn);
        let run = process.run;
        self.schedule(turn.ended, Event::Turn { slot, run });
    }

    fn turn(&mut self, slot: usize, run: u64) {
        let now = self.now();
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.run != run || process.paused_until.is_some() {
            return;
        }
        // A pause within a turn leaves two events for it: the one that comes first after it counts.
        let Some(mut turn) = process.turn.take_if(|turn| turn.ended <= now) else { return };
        process.standstill.add(now - turn.begun);
        // A pause in the middle makes the turn end later than it was to.
        turn.ended = now;
        let goes_on = process.step(turn, &self.stalls);
        if let Some(failure) = process.machine.failure() {
            panic!("member {} failed: {failure}", self.slots[slot].name);
        }
        for task in std::mem::take(&mut process.deferred) {
            self.executor.wake(task);
        }
        process.wakes += 1;
        let number = process.wakes;
        let wake = process.clock.virtual_time(process.machine.next_wake());
        let more = process.channel.has_arrived();
        let sent = process.channel.take_sent();
        self.trace.note(now, &[3, slot as u64, sent.len() as u64], format_args!("turn of {slot}"));
        self.invariants.after_turn(slot, run, &process.machine);
        self.note_losses(slot);
        self.schedule(wake.max(now + 1), Event::Wake { slot, run, number });
        for frame in sent {
            self.send(slot, frame.to.as_ref(), &frame.frame);
        }
        if !goes_on {
            return self.closed(slot);
        }
        if more {
            self.request_turn(slot);
        }
    }

    fn send(&mut self, from: usize, to: Option<&NodeName>, frame: &Bytes) {
        let receivers: Vec<usize> = match to {
            None => (0..self.slots.len()).collect(),
            Some(name) => {
                self.slots.iter().position(|slot| slot.name == *name).into_iter().collect()
            }
        };
        for to in receivers {
            let arrivals =
                self.network.route(self.now(), (from, to), &mut self.invariants.coverage);
            for at in arrivals {
                let name = self.slots[from].name.clone();
                self.schedule(at, Event::Frame { to, from, name, frame: frame.clone() });
            }
        }
    }

    fn resume(&mut self, slot: usize, run: u64) {
        let now = self.now();
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.run != run || process.paused_until.is_none_or(|until| until > now) {
            return;
        }
        process.paused_until = None;
        process.standstill.add(now - process.paused_at);
        self.trace.note(now, &[4, slot as u64], format_args!("resume {slot}"));
        for task in std::mem::take(&mut process.deferred) {
            self.executor.wake(task);
        }
        match process.turn {
            // The rest of the turn that was under way.
            Some(turn) => self.schedule(turn.ended.max(now), Event::Turn { slot, run }),
            None => self.request_turn(slot),
        }
    }

    /// Polls what was woken, until nothing more is.
    fn poll_tasks(&mut self) {
        loop {
            for (at, waker) in self.time.take_sleepers() {
                let at = at.max(self.now() + 1);
                self.schedule(at, Event::Sleeper(waker));
            }
            let ready = self.executor.take_ready();
            if ready.is_empty() {
                return;
            }
            for task in ready {
                self.poll(task);
            }
        }
    }

    fn poll(&mut self, task: TaskId) {
        let Some(&(slot, run, client)) = self.owners.get(&task) else { return };
        let now = self.now();
        let Some(process) = self.slots[slot].process.as_mut().filter(|p| p.run == run) else {
            return;
        };
        if !process.runs_at(now) {
            process.deferred.push(task);
            // A waking that was put off must be possible again.
            return self.executor.put_off(task);
        }
        self.executor.poll(task);
        self.trace.note(
            now,
            &[5, slot as u64, u64::from(client)],
            format_args!("client {client} of {slot}"),
        );
        if !self.executor.lives(task) {
            process.tasks.remove(&task);
            self.owners.remove(&task);
        }
        self.observe(slot);
        self.note_losses(slot);
        self.request_turn(slot);
    }

    /// A process is gone from one moment to the next: nothing of it is polled again.
    pub(super) fn kill(&mut self, slot: usize) {
        let now = self.now();
        let Some(process) = self.slots[slot].process.take() else { return };
        self.trace.note(now, &[7, slot as u64], format_args!("end of {slot}"));
        let held = self.invariants.process_gone(slot);
        self.calls.gave_up(now, &held);
        for task in &process.tasks {
            self.executor.kill(*task);
            self.owners.remove(task);
        }
        // What dropped futures say is said to nobody.
        self.recorder.take();
    }

    /// A member that was closed has come to its end, and its process with it.
    fn closed(&mut self, slot: usize) {
        self.kill(slot);
        self.tell_links(slot, false);
        let at = self.now() + self.draw.between(MS, 1_500 * MS);
        self.schedule(at, Event::Start { slot });
    }

    pub(super) fn kill_client(&mut self, slot: usize, task: TaskId) {
        let Some((_, _, client)) = self.owners.remove(&task) else { return };
        if let Some(process) = &mut self.slots[slot].process {
            process.tasks.remove(&task);
        }
        self.executor.kill(task);
        let held = self.invariants.client_gone(client);
        self.calls.gave_up(self.now(), &held);
        self.calls.forget(client);
        self.recorder.take();
        self.request_turn(slot);
    }

    pub(super) fn set_rate(&mut self, slot: usize, rate: u64) {
        self.slots[slot].rate = rate;
        let Some(process) = &mut self.slots[slot].process else { return };
        process.clock.set_rate(rate);
        // Those asleep must look at the clock again to know when to wake.
        for task in &process.tasks {
            self.executor.wake(*task);
        }
        self.request_turn(slot);
    }

    pub(super) fn clients_run(&self) -> bool {
        !self.owners.is_empty()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.slots.iter().filter_map(|slot| slot.process.as_ref())
    }
}

/// The rate of a clock: within half the drift bound of true time, so that any two differ by no more
/// than the bound; or far beyond it.
pub(super) fn rate(draw: &mut Draw, clocks: Clocks, starting: bool) -> u64 {
    const WITHIN: u64 = 4_900;
    match clocks {
        Clocks::WithinBound => draw.between(TRUE_RATE - WITHIN, TRUE_RATE + WITHIN),
        Clocks::BeyondBound if !starting && draw.chance(250_000) => 0,
        Clocks::BeyondBound => draw.between(TRUE_RATE / 2, TRUE_RATE * 2),
    }
}

fn node_name(plan: &Plan, slot: usize, run: u64) -> NodeName {
    let name = if plan.named { format!("m{slot}") } else { format!("m{slot}.{run}") };
    NodeName::new(name).expect("a short name")
}
