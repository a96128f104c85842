//! Starts and ends of processes and clients.

use std::sync::Arc;

use gaggle_channels::{NodeName, Received};
use gaggle_strategies::KeyedMutex;

use super::{
    channel::SimChannel,
    client::Client,
    clock::{MS, SimClock},
    event::Event,
    executor::TaskId,
    machine::Member,
    process::{Engine, Process},
    random::{Random, mixed},
    redis,
    world::World,
};

/// Processes and clients: how they begin and how they end.
impl World {
    /// A process starts under the slot's name, with no memory of an earlier one.
    pub(super) fn start(&mut self, slot: usize) {
        if self.slots[slot].process.is_some() {
            return;
        }
        let now = self.now();
        self.slots[slot].runs += 1;
        let run = self.slots[slot].runs;
        let name = self.slots[slot].name.clone();
        let (rate, booted) = (self.slots[slot].rate, self.plan.booted(slot));
        let clock = Arc::new(SimClock::new(self.time.clone(), rate, booted));
        let seed = mixed(mixed(self.plan.seed) ^ mixed(slot as u64) ^ mixed(run << 32));
        let (strategy, engine) = match self.host {
            Some(_) => {
                let (strategy, machine, link) =
                    redis::client(&self.plan, (slot, run), clock.clone(), seed);
                (strategy, Engine::Redis { machine: Box::new(machine), link })
            }
            None => self.member(&name, clock.clone(), seed),
        };
        self.trace.note(now, &[2, slot as u64, run], format_args!("start {name} run {run}"));
        if run > 1 {
            self.invariants.coverage.reach("restart");
        }
        self.slots[slot].process = Some(Process {
            run,
            engine,
            strategy,
            clock,
            standstill: Arc::default(),
            paused_until: None,
            paused_at: 0,
            turn: None,
            deferred: Vec::new(),
            tasks: std::collections::BTreeSet::new(),
            closing: false,
            notices: Vec::new(),
        });
        for number in 0..self.plan.clients {
            if number % self.plan.members == slot && !self.recorder.is_stopped() {
                self.start_client(slot);
            }
        }
        self.request_turn(slot);
    }

    fn member(
        &self,
        name: &NodeName,
        clock: Arc<SimClock>,
        seed: u64,
    ) -> (Arc<dyn KeyedMutex>, Engine) {
        let channel = Arc::new(SimChannel::new(name.clone(), self.plan.options.frame_limit));
        let names: Vec<NodeName> = self.slots.iter().map(|slot| slot.name.clone()).collect();
        let options = self.plan.member_options(&names).clock(clock.clone());
        let run = self.plan.run_options(name, seed);
        let (strategy, machine) =
            Member::join(channel.clone(), clock, &options, self.plan.policy, run);
        (strategy, Engine::Member { machine: Box::new(machine), channel })
    }

    /// A connection-minded channel says when the way to a peer closes.
    pub(super) fn notify_links_down(&mut self, slot: usize) {
        if !self.plan.network.in_order || self.host.is_some() {
            return;
        }
        for to in (0..self.slots.len()).filter(|to| *to != slot) {
            let received = Received::Down { peer: self.slots[slot].name.clone() };
            let at = self.now() + self.random.between(0, 5 * MS);
            self.schedule(at, Event::Link { to, received });
        }
        self.invariants.coverage.reach("connection down");
    }

    pub(super) fn start_client(&mut self, slot: usize) {
        let Some(process) = &self.slots[slot].process else { return };
        self.clients += 1;
        let id = self.clients;
        let long = self.plan.key_bytes;
        let keys =
            (0..self.plan.keys).map(|key| format!("{:k<long$}", format!("key {key}")).into());
        let keys = keys.collect();
        let client = Client {
            id,
            strategy: process.strategy.clone(),
            clock: process.clock.clone(),
            recorder: self.recorder.clone(),
            work: self.plan.work.clone(),
            keys,
            random: Random::new(self.plan.seed, mixed(1000 + u64::from(id))),
            handed: self.handed.clone(),
            claims: self.claims.clone(),
            adopting: false,
            outside: self.plan.options.outside_ms > 0,
            forgotten: 0,
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

    /// A process ends from one moment to the next: nothing of it is polled again.
    pub(super) fn kill(&mut self, slot: usize) {
        let now = self.now();
        let Some(process) = self.slots[slot].process.take() else { return };
        if self.host.is_some() {
            self.close_connections(slot, process.run);
        }
        self.agenda.unset_wake(slot);
        self.trace.note(now, &[7, slot as u64], format_args!("end of {slot}"));
        let held = self.invariants.process_killed(slot);
        self.calls.gave_up(now, &held);
        for task in &process.tasks {
            self.executor.kill(*task);
            self.owners.remove(task);
        }
        // Observations of dropped futures are discarded.
        self.recorder.take();
    }

    /// A member that was closed has come to its end, and its process with it.
    pub(super) fn closed(&mut self, slot: usize) {
        self.kill(slot);
        self.notify_links_down(slot);
        let at = self.now() + self.random.between(MS, 1_500 * MS);
        self.schedule(at, Event::Start { slot });
    }

    pub(super) fn kill_client(&mut self, slot: usize, task: TaskId) {
        let Some((_, _, client)) = self.owners.remove(&task) else { return };
        if let Some(process) = &mut self.slots[slot].process {
            process.tasks.remove(&task);
        }
        self.executor.kill(task);
        let held = self.invariants.client_dropped(client);
        self.calls.gave_up(self.now(), &held);
        self.calls.forget(client);
        self.recorder.take();
        self.request_turn(slot);
    }
}
