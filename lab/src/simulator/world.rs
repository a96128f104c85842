//! The state of a simulated deployment, and its event loop.

use std::{collections::BTreeMap, sync::Arc};

use gaggle_channels::Received;

use super::{
    agenda::Agenda,
    calls::Calls,
    client::{Claims, Handed},
    clock::{MS, SimClock, TRUE_RATE, VirtualTime},
    coverage::STANDSTILL,
    event::Event,
    executor::{Executor, TaskId},
    fault_schedule::FaultSchedule,
    hostile::Attacker,
    invariants::Invariants,
    network::Network,
    plan::{Clocks, Plan},
    process::{Engine, Process, Slot, node_name},
    random::Random,
    recorder::Recorder,
    redis::Host,
    totals::Totals,
    trace::Trace,
};
use crate::simulator::digest::digest;

/// A simulated deployment: processes with members and clients, and the network between them.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) time: Arc<VirtualTime>,
    pub(super) agenda: Agenda,
    pub(super) slots: Vec<Slot>,
    pub(super) network: Network,
    /// The server, in a deployment of Redis.
    pub(super) host: Option<Box<Host>>,
    pub(super) executor: Executor,
    /// Tasks about to be polled; kept for its memory.
    pub(super) ready: Vec<TaskId>,
    /// The slot and run that each task belongs to, and its client.
    pub(super) owners: BTreeMap<TaskId, (usize, u64, u32)>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) handed: Arc<Handed>,
    pub(super) claims: Arc<Claims>,
    pub(super) invariants: Invariants,
    pub(super) trace: Trace,
    pub(super) random: Random,
    pub(super) stalls: Random,
    pub(super) faults: FaultSchedule,
    pub(super) clients: u32,
    /// Every call, for the history checker.
    pub(super) calls: Calls,
    pub(super) totals: Totals,
    /// With an attacker, the log may hold entries that no member wrote: no invariant is checked.
    pub(super) attacker: Option<Attacker>,
}

impl World {
    pub(super) fn new(plan: Plan, text: bool) -> Self {
        let seed = plan.seed;
        let mut random = Random::new(seed, 3);
        let slots = (0..plan.members).map(|slot| Slot {
            name: node_name(slot),
            runs: 0,
            rate: rate(&mut random, plan.clocks, true),
            process: None,
        });
        let slots: Vec<_> = slots.collect();
        let time = Arc::new(VirtualTime::default());
        let host = plan.redis.clone().map(|server| {
            let rate = rate(&mut random, plan.clocks, true);
            let clock = SimClock::new(time.clone(), rate, 0);
            Box::new(Host::new(server, seed, clock))
        });
        let nodes = plan.members + usize::from(host.is_some());
        let mut world = Self {
            time,
            agenda: Agenda::new(seed, plan.members),
            slots,
            network: Network::new(plan.network.clone(), nodes, seed),
            host,
            executor: Executor::default(),
            ready: Vec::new(),
            owners: BTreeMap::new(),
            recorder: Arc::new(Recorder::default()),
            handed: Arc::default(),
            claims: Arc::default(),
            invariants: Invariants::new(text),
            trace: Trace::new(text),
            random,
            stalls: Random::new(seed, 4),
            faults: FaultSchedule::new(&plan),
            clients: 0,
            calls: Calls::default(),
            totals: Totals::default(),
            attacker: None,
            plan,
        };
        for slot in 0..world.plan.members {
            let at = world.random.between(0, 300 * MS);
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
        self.agenda.schedule(at, event);
    }

    /// Runs until `done`, or until virtual time `end`. Whether it was done.
    pub(super) fn run_until(&mut self, end: u64, done: impl Fn(&Self) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            let Some((at, event)) = self.agenda.pop(end) else {
                self.time.set(end.max(self.now()));
                // Keys of a Redis expire without an event.
                return done(self);
            };
            self.time.set(at);
            self.totals.events += 1;
            self.happen(event);
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
            Event::Wake { slot } => self.request_turn(slot),
            Event::Sleeper(waker) => waker.wake(),
            Event::Fault(fault) => self.inject(fault),
            // Faults in flight when all faults stopped.
            Event::Cut(_) | Event::Slow { .. } | Event::Rate { .. } if self.faults.are_over() => {}
            Event::Cut(ways) => self.network.cut(&ways),
            Event::Reconnect(ways) => self.network.reconnect(&ways),
            Event::Slow { slot, times } => self.network.set_slow(slot, times),
            Event::Resume { slot, run } => self.resume(slot, run),
            Event::Start { slot } => self.start(slot),
            Event::Rate { slot, rate } => self.set_rate(slot, rate),
            Event::Server(event) => self.happen_at_server(event),
        }
    }

    fn arrive(&mut self, to: usize, received: Received) {
        let now = self.now();
        if let Some(process) = &self.slots[to].process
            && let Engine::Member { channel, .. } = &process.engine
        {
            channel.arrive(now, received);
            self.request_turn(to);
        }
    }

    pub(super) fn set_rate(&mut self, slot: usize, rate: u64) {
        self.slots[slot].rate = rate;
        let Some(process) = &mut self.slots[slot].process else { return };
        // A rate that has changed no reading is no fault.
        match process.clock.set_rate(rate) {
            (1.., 0) => self.invariants.coverage.reach(STANDSTILL),
            (passed, shown) if passed != shown => {
                self.invariants.coverage.reach("clock rate changed");
            }
            _ => {}
        }
        // Sleeping tasks must look at the clock again to know when to wake.
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
pub(super) fn rate(random: &mut Random, clocks: Clocks, starting: bool) -> u64 {
    const WITHIN: u64 = 4_900;
    match clocks {
        Clocks::WithinBound => random.between(TRUE_RATE - WITHIN, TRUE_RATE + WITHIN),
        Clocks::BeyondBound if !starting && random.chance(250_000) => 0,
        Clocks::BeyondBound => random.between(TRUE_RATE / 2, TRUE_RATE * 2),
    }
}
