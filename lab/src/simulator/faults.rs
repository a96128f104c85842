//! Injects faults.

use gaggle_strategies::clock::Clock;

use super::{
    clock::MS,
    event::{Event, Fault},
    machine::Member,
    network::Ways,
    plan::{Clocks, FaultPlan},
    process::Process,
    redis::Outage,
    world::{World, rate},
};

impl World {
    pub(super) fn inject(&mut self, fault: Fault) {
        let Some(pause) = self.faults.next(fault) else { return };
        let now = self.now();
        self.schedule(now + pause, Event::Fault(fault));
        self.trace.note(now, &[8, fault as u64], format_args!("fault: {fault:?}"));
        let slot = self.faults.random.index(self.slots.len());
        match fault {
            Fault::Partition => self.partition(),
            Fault::Slow => {
                let slot = match self.host {
                    Some(_) => self.faults.random.index(self.network.nodes()),
                    None => slot,
                };
                let times = self.faults.random.between(3, 30);
                let long = self.faults.random.spread(50, 2_000) * MS;
                if self.slots.len() > 1 {
                    self.invariants.coverage.reach("slow node");
                }
                self.network.set_slow(slot, times);
                self.schedule(now + long, Event::Slow { slot, times: 1 });
            }
            Fault::Pause => self.pause(slot),
            Fault::Crash => {
                if self.slots[slot].process.is_some() {
                    self.invariants.coverage.reach("crash");
                    self.crash(slot);
                }
            }
            Fault::CrashAll => {
                self.invariants.coverage.reach("crash of all");
                (0..self.slots.len()).for_each(|slot| self.crash(slot));
            }
            Fault::Leave => self.leave(slot),
            Fault::Transfer => {
                let leader = self.slots.iter_mut().filter_map(|slot| slot.process.as_mut());
                let mut leaders =
                    leader.filter(|p| p.member().and_then(Member::view).is_some_and(|g| g.leads));
                if let Some(process) = leaders.find(|p| p.paused_until.is_none())
                    && process.member_mut().is_some_and(Member::transfer_leadership)
                {
                    self.invariants.coverage.reach("transfer of leadership");
                }
            }
            Fault::Drift => {
                if let Some(host) = &self.host
                    && self.faults.random.index(self.slots.len() + 1) == 0
                {
                    let rate = rate(&mut self.faults.random, self.plan.clocks, false);
                    host.clock.set_rate(rate);
                }
                let rate = rate(&mut self.faults.random, self.plan.clocks, false);
                self.set_rate(slot, rate);
                if rate == 0 {
                    let long = self.faults.random.spread(20, 4_000) * MS;
                    self.schedule(now + long, Event::Rate { slot, rate: 1_000_000 });
                }
            }
            Fault::Restore => {
                let process = self.slots[slot].process.as_ref();
                if let Some(view) = process.and_then(Process::member).and_then(Member::view) {
                    self.invariants.restore_table(view.id);
                }
            }
            Fault::ClientDeath => self.client_death(slot),
            Fault::Cut => self.cut_connections(slot),
            Fault::FlushScripts => self.flush_scripts(),
            Fault::Full => self.break_server(Outage::Full),
            Fault::Standstill => self.break_server(Outage::Stands),
            Fault::ServerRestart => self.break_server(Outage::Restarts),
            Fault::MemoryLoss => self.break_server(Outage::Wiped),
            Fault::Failover => self.break_server(Outage::Failover),
            Fault::Flushed => self.break_server(Outage::Flushed),
        }
    }

    fn crash(&mut self, slot: usize) {
        if self.slots[slot].process.is_none() {
            return;
        }
        self.kill(slot);
        self.notify_links_down(slot);
        let down = self.faults.random.spread(1, 3_000) * MS;
        let at = self.now() + down;
        self.schedule(at, Event::Start { slot });
    }

    fn pause(&mut self, slot: usize) {
        let now = self.now();
        let long = self.faults.random.spread(MS, self.faults.pause_max());
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.paused_until.is_some() {
            return;
        }
        process.paused_until = Some(now + long);
        process.paused_at = now;
        process.standstill.begin(process.clock.now());
        let run = process.run;
        self.schedule(now + long, Event::Resume { slot, run });
    }

    pub(super) fn leave(&mut self, slot: usize) {
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.closing || process.paused_until.is_some() {
            return;
        }
        process.closing = true;
        self.invariants.coverage.reach("leave");
        let strategy = process.strategy.clone();
        self.spawn(slot, 0, async move { strategy.close().await });
    }

    fn client_death(&mut self, slot: usize) {
        let Some(process) = &self.slots[slot].process else { return };
        let tasks: Vec<_> = process.tasks.iter().copied().collect();
        if tasks.is_empty() || process.closing {
            return;
        }
        let task = tasks[self.faults.random.index(tasks.len())];
        self.invariants.coverage.reach("client died");
        self.kill_client(slot, task);
        self.start_client(slot);
    }

    fn partition(&mut self) {
        let (now, count) = (self.now(), self.network.nodes());
        if count < 2 {
            return;
        }
        let random = &mut self.faults.random;
        let long = random.spread(30, 4_000) * MS;
        let one = random.index(count);
        let pairs = |cut: &dyn Fn(usize, usize) -> bool| -> Ways {
            let all = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            all.filter(|(from, to)| from != to && cut(*from, *to)).collect()
        };
        match random.index(5) {
            0 => {
                let deaf = self.faults.random.chance(500_000);
                let ways = pairs(&|from, to| if deaf { to == one } else { from == one });
                self.cut_for(Some("one-way partition"), ways, now, now + long);
            }
            1 => {
                let ways = pairs(&|from, to| from == one || to == one);
                self.cut_for(Some("two-way partition"), ways, now, now + long);
            }
            2 => {
                let sides = self.faults.random.next();
                let side = |slot: usize| sides >> (slot % 64) & 1;
                let ways = pairs(&|from, to| side(from) != side(to));
                self.cut_for(Some("two-way partition"), ways, now, now + long);
            }
            3 => {
                // Two halves that one member still hears: the bridge.
                let sides = self.faults.random.next();
                let side = |slot: usize| sides >> (slot % 64) & 1;
                let ways = pairs(&|a, b| a != one && b != one && side(a) != side(b));
                self.cut_for(Some("two-way partition"), ways, now, now + long);
            }
            _ => {
                // Swizzled: cut off one by one, reconnected in another order.
                let mut what = Some("swizzled partition");
                for slot in 0..count {
                    let from = now + self.faults.random.between(0, long);
                    let to = from + self.faults.random.between(1, long);
                    if self.faults.random.chance(600_000) {
                        let ways = pairs(&|a, b| a == slot || b == slot);
                        self.cut_for(what.take(), ways, from, to);
                    }
                }
            }
        }
    }

    /// Random sides may all be one: a cut of no way is no fault.
    fn cut_for(&mut self, what: Option<&'static str>, ways: Ways, from: u64, to: u64) {
        if let Some(what) = what.filter(|_| !ways.is_empty()) {
            self.invariants.coverage.reach(what);
        }
        self.schedule(from, Event::Cut(ways.clone()));
        self.schedule(to, Event::Reconnect(ways));
    }

    /// Faults stop: nothing is cut, lost, slow, paused or dead any more, and all clocks run within
    /// the bound.
    pub(super) fn calm(&mut self) {
        self.faults.stop();
        self.plan.faults = FaultPlan::default();
        let plan = self.plan.calm_network();
        self.network.calm(plan);
        self.recorder.stop();
        if self.host.is_some() {
            self.calm_server();
        }
        let now = self.now();
        for slot in 0..self.slots.len() {
            if self.plan.clocks == Clocks::BeyondBound {
                let rate = rate(&mut self.random, Clocks::WithinBound, true);
                self.set_rate(slot, rate);
            }
            match &mut self.slots[slot].process {
                Some(process) if process.paused_until.is_some() => {
                    process.paused_until = Some(now);
                    let run = process.run;
                    self.schedule(now, Event::Resume { slot, run });
                }
                Some(_) => {}
                None => self.schedule(now, Event::Start { slot }),
            }
        }
        self.trace.note(now, &[9], format_args!("faults stop"));
    }
}
