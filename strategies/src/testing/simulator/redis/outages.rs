//! Outages of a simulated Redis.

use std::mem;

use super::{Event, MS, ServerEvent, World};

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::testing::simulator) enum Outage {
    Stands,
    Full,
    Restarts,
    Wiped,
}

impl World {
    pub(in crate::testing::simulator) fn break_server(&mut self, outage: Outage) {
        let now = self.now();
        let host = self.host();
        if host.down_until > now {
            return;
        }
        let until = now + host.random.spread(MS, host.plan.outage_max.max(MS));
        match outage {
            Outage::Stands => host.stands_until = until,
            Outage::Full => {
                host.server.set_full(true);
                host.full_until = until;
            }
            Outage::Restarts | Outage::Wiped => {
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
        });
        if outage == Outage::Wiped {
            self.host().server.wipe();
            self.recorder.forget();
            let held = self.invariants.forget_server();
            self.calls.gave_up(now, &held);
            self.calls.all_dropped();
        }
        self.schedule(until, Event::Server(ServerEvent::Recover));
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
    pub(in crate::testing::simulator) fn calm_server(&mut self) {
        let now = self.now();
        let host = self.host();
        (host.stands_until, host.full_until, host.down_until) = (now, now, now);
        (host.plan.lost_publication, host.plan.late_publication) = (0, 0);
        host.plan.few_replicas = 0;
        self.recover();
    }
}
