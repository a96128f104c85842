//! Publications of a simulated Redis, and what a process must know once it has read one.

use super::{ConnectionId, Engine, Event, KeySpace, Run, ServerEvent, World, process_of};
use crate::simulator::{
    invariants::{Acquisition, Invariants},
    redis::Notice,
};

impl World {
    /// Sends a publication of a script: in time, late, or not at all.
    pub(super) fn publish(&mut self, to: ConnectionId, push: Vec<u8>, runs: &[(Run, KeySpace)]) {
        let now = self.now();
        let host = self.host.as_mut().expect("a deployment of Redis");
        if host.random.chance(host.plan.lost_publication) {
            self.invariants.coverage.reach("publication lost");
        } else if host.random.chance(host.plan.late_publication) {
            let at = now + host.random.between(0, host.plan.late_max);
            if let Some(one) = host.connections.get_mut(&to) {
                one.late_until = one.late_until.max(at);
            }
            self.invariants.coverage.reach("publication late");
            self.schedule(at, Event::Server(ServerEvent::Publish(to, push)));
        } else {
            self.send_to_client(to, push.clone());
            let host = self.host.as_ref().expect("a deployment of Redis");
            // No server sends a grant after the notice that it was ended.
            let one = host.connections.get(&to).filter(|one| !one.mute && one.late_until < now);
            let forced = runs.iter().find_map(|(run, _)| Invariants::forced_by(run, &push));
            if let (Some(one), Some(acquisition)) = (one, forced) {
                let event = ServerEvent::Notice(to, acquisition);
                self.agenda.schedule(one.at_client + 1, Event::Server(event));
            }
        }
    }

    pub(super) fn notice_arrives(&mut self, connection: ConnectionId, acquisition: Acquisition) {
        let arrived_at = self.now();
        if self.is_mute(connection) {
            return;
        }
        let (slot, run) = process_of(connection);
        if let Some(process) = self.slots[slot].process.as_mut().filter(|one| one.run == run) {
            process.notices.push(Notice { connection, acquisition, arrived_at });
        }
    }

    /// After a turn that saw what had arrived until `drained`.
    pub(in crate::simulator) fn check_notices(&mut self, slot: usize, drained: u64) {
        let Some(process) = &mut self.slots[slot].process else { return };
        let Engine::Redis { link, machine } = &process.engine else { return };
        if !machine.is_connected() {
            // What comes during a handshake is read after it.
            return process.notices.retain(|notice| link.is_open(notice.connection));
        }
        let read = process.notices.extract_if(.., |notice| notice.arrived_at <= drained);
        // A connection that was given up may have been so before it was read.
        let read = read.filter(|notice| link.is_open(notice.connection));
        read.for_each(|notice| self.invariants.notify(slot, notice.acquisition));
    }
}
