//! Turns of drivers and polls of clients.

use bytes::Bytes;
use gaggle_channels::NodeName;
use gaggle_strategies::{client::Failure, clock::Clock};

use super::{
    clock::MS,
    event::Event,
    executor::TaskId,
    process::{Engine, Turn},
    world::World,
};

/// Turns of drivers and of clients.
impl World {
    /// A turn is wanted: something arrived, was asked for, or is due.
    pub(super) fn request_turn(&mut self, slot: usize) {
        let now = self.now();
        let plan = &self.plan.faults;
        let slowness = self.network.slowness(slot);
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.turn.is_some() || process.paused_until.is_some() {
            return;
        }
        let waits = self.stalls.between(2_000, 40_000);
        let begun = now + waits * slowness;
        let mut turn = Turn { begun, drained: begun, ended: begun, stalls: false };
        if slowness > 1 {
            turn.ended = begun + waits * (slowness - 1);
            turn.drained = self.stalls.between(begun, turn.ended);
        }
        if self.stalls.chance(plan.stall) {
            let until = begun + self.stalls.spread(1, plan.stall_max);
            turn.stalls = until > turn.ended;
            turn.ended = turn.ended.max(until);
            turn.drained = self.stalls.between(begun, turn.ended);
        }
        process.turn = Some(turn);
        process.standstill.begin(process.clock.now());
        let run = process.run;
        self.schedule(turn.ended, Event::Turn { slot, run });
    }

    pub(super) fn turn(&mut self, slot: usize, run: u64) {
        let now = self.now();
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.run != run || process.paused_until.is_some() {
            return;
        }
        // A pause within a turn leaves two events for it: the first after the pause counts.
        let Some(mut turn) = process.turn.take_if(|turn| turn.ended <= now) else { return };
        process.standstill.end(process.clock.now());
        // A pause in the middle makes the turn end later than it was to.
        turn.ended = now;
        let (goes_on, early) = process.step(turn, &self.stalls);
        if turn.stalls && early {
            self.invariants.coverage.reach("turn stalled");
        }
        if let Some(failure) = process.engine.failure() {
            let is_attacked = self.attacker.is_some() && !matches!(failure, Failure::Panic(_));
            assert!(is_attacked, "member {slot} failed: {failure}");
        }
        for task in std::mem::take(&mut process.deferred) {
            self.executor.wake(task);
        }
        let wake = process.clock.virtual_time(process.engine.next_wake());
        let more = process.engine.has_arrived();
        let (mut frames, mut segments) = (Vec::new(), Vec::new());
        match &process.engine {
            Engine::Member { machine, channel } => {
                frames = channel.take_sent();
                if self.attacker.is_none() {
                    self.invariants.after_turn(slot, run, process.clock.now(), machine);
                }
            }
            Engine::Redis { link, .. } => segments = link.take_sent(),
        }
        let sent = frames.len() + segments.len();
        self.trace.note(now, &[3, slot as u64, sent as u64], format_args!("turn of {slot}"));
        self.check_notices(slot, turn.drained);
        self.note_losses(slot);
        self.agenda.set_wake(slot, wake.max(now + 1));
        for frame in frames {
            self.send(slot, &frame.to, &frame.frame);
        }
        for (connection, sent) in segments {
            self.send_to_server(slot, connection, sent);
        }
        if !goes_on {
            return self.closed(slot);
        }
        if more {
            self.request_turn(slot);
        }
    }

    fn send(&mut self, from: usize, to: &NodeName, frame: &Bytes) {
        let Some(to) = self.slots.iter().position(|slot| slot.name == *to) else { return };
        let now = self.now();
        let arrivals = self.network.route(now, (from, to), &mut self.invariants.coverage);
        if let Some(attacker) = &mut self.attacker {
            attacker.see(from, to, frame);
        }
        for at in arrivals.into_iter().flatten() {
            let name = self.slots[from].name.clone();
            self.schedule(at, Event::Frame { to, from, name, frame: frame.clone() });
        }
    }

    pub(super) fn resume(&mut self, slot: usize, run: u64) {
        let now = self.now();
        let Some(process) = &mut self.slots[slot].process else { return };
        if process.run != run || process.paused_until.is_none_or(|until| until > now) {
            return;
        }
        process.paused_until = None;
        let stood = now - process.paused_at;
        if stood >= MS {
            self.invariants.coverage.reach("pause");
        }
        if stood > self.plan.work.lease_ms.1 * MS {
            self.invariants.coverage.reach("pause beyond a lease");
        }
        self.trace.note(now, &[4, slot as u64], format_args!("resume {slot}"));
        for task in std::mem::take(&mut process.deferred) {
            self.executor.wake(task);
        }
        match process.turn {
            // The rest of the interrupted turn.
            Some(turn) => self.schedule(turn.ended.max(now), Event::Turn { slot, run }),
            None => {
                process.standstill.end(process.clock.now());
                self.request_turn(slot);
            }
        }
    }

    /// Polls woken tasks until none is left.
    pub(super) fn poll_tasks(&mut self) {
        loop {
            for (at, waker) in self.time.take_sleepers() {
                let at = at.max(self.now() + 1);
                self.schedule(at, Event::Sleeper(waker));
            }
            let mut ready = std::mem::take(&mut self.ready);
            self.executor.take_ready(&mut ready);
            let none = ready.is_empty();
            ready.drain(..).for_each(|task| self.poll(task));
            self.ready = ready;
            if none {
                return;
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
}
