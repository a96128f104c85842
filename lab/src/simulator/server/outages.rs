//! Outages of a simulated Redis.

use std::mem;

use super::{Event, MS, ServerEvent, World};
use crate::simulator::redis::{Outage, Replica};

impl World {
    pub(in crate::simulator) fn break_server(&mut self, outage: Outage) {
        let now = self.now();
        let host = self.host();
        if host.down_until > now {
            return;
        }
        let longest = match outage {
            Outage::Failover => host.plan.outage_max.min(100 * MS),
            _ => host.plan.outage_max,
        };
        let until = now + host.random.spread(MS, longest.max(MS));
        match outage {
            Outage::Flushed => {}
            Outage::Stands => host.stands_until = until,
            Outage::Full => {
                host.server.set_full(true);
                host.full_until = until;
            }
            Outage::Restarts | Outage::Wiped | Outage::Failover => {
                host.down_until = until;
                host.backlog.clear();
                let ids: Vec<_> = host.connections.keys().copied().collect();
                ids.into_iter().for_each(|connection| self.cut(connection, true));
                self.host().connections.clear();
                self.host().server.restart();
            }
        }
        self.invariants.coverage.reach(match outage {
            Outage::Stands => "server stood still",
            Outage::Full => "server's memory full",
            Outage::Restarts => "server restarted",
            Outage::Wiped => "server lost its memory",
            Outage::Failover => "failover to a replica",
            Outage::Flushed => "server was flushed",
        });
        if matches!(outage, Outage::Wiped | Outage::Flushed) {
            self.host().replica = Replica::default();
            self.promote(true);
        } else if outage == Outage::Failover {
            self.promote(false);
        }
        self.schedule(until, Event::Server(ServerEvent::Recover));
    }

    /// After a request the replica may have all that the server has. It is promoted most often
    /// where it has not.
    pub(super) fn follow(&mut self, waits: bool, is_short: bool) {
        let now = self.now();
        let host = self.host();
        if host.plan.failover == 0 {
            return;
        }
        if waits && is_short && host.random.chance(500_000) {
            let at = now + host.random.between(0, 100 * MS);
            self.schedule(at, Event::Server(ServerEvent::Fail));
        } else if (waits && !is_short) || host.random.chance(20_000) {
            self.replicate();
        }
    }

    pub(super) fn fail_over(&mut self) {
        if self.host().plan.failover > 0 {
            self.break_server(Outage::Failover);
        }
    }

    fn replicate(&mut self) {
        let scripts = self.invariants.scripts();
        let host = self.host();
        host.replica = Replica { data: host.server.data(), scripts };
    }

    /// The replica takes the server's place.
    fn promote(&mut self, may_lose: bool) {
        let now = self.now();
        let Replica { data, scripts } = self.host().replica.clone();
        self.host().server.set_data(data);
        let lost = self.invariants.replace_server(scripts, may_lose);
        // A failover may undo the force-unlocks of these notices.
        let processes = self.slots.iter_mut().filter_map(|slot| slot.process.as_mut());
        processes.for_each(|process| process.notices.clear());
        if may_lose {
            self.recorder.forget();
        }
        self.calls.gave_up(now, &lost);
        self.calls.all_dropped();
    }

    pub(super) fn recover(&mut self) {
        let now = self.now();
        let host = self.host();
        if host.full_until <= now {
            host.server.set_full(false);
        }
        if host.stands_until <= now {
            for (connection, sent) in mem::take(&mut host.backlog) {
                let is_deaf = self.host().connections.get(&connection).is_none_or(|one| one.deaf);
                if !is_deaf {
                    self.serve(connection, sent);
                }
            }
        }
    }

    /// The server works again, and keeps working.
    pub(in crate::simulator) fn calm_server(&mut self) {
        let now = self.now();
        let host = self.host();
        (host.stands_until, host.full_until, host.down_until) = (now, now, now);
        (host.plan.lost_publication, host.plan.late_publication) = (0, 0);
        (host.plan.few_replicas, host.plan.failover) = (0, 0);
        self.recover();
    }
}
