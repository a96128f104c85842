//! What happens at the server of a simulated Redis deployment, and on the connections to it.

mod outages;
mod publications;

use std::mem;

use super::{
    clock::MS,
    digest::digest,
    event::Event,
    process::Engine,
    redis::{Host, ServerEvent},
    stream::{Arrived, Sent, process_of},
    world::World,
};
use crate::redis_server::{ConnectionId, Executed, KeySpace, Run, Verb};

impl World {
    fn host(&mut self) -> &mut Host {
        self.host.as_mut().expect("a deployment of Redis")
    }

    /// The server's node in the network: after all processes.
    const fn server_place(&self) -> usize {
        self.plan.members
    }

    pub(super) fn happen_at_server(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::AtServer(connection, sent) => {
                let now = self.now();
                let line = format_args!("at the server: {sent:?} on {connection:x}");
                self.trace.write(now, line);
                let host = self.host();
                let is_deaf = host.connections.get(&connection).is_none_or(|one| one.deaf);
                if !is_deaf && host.stands_until > now {
                    host.backlog.push((connection, sent));
                } else if !is_deaf {
                    self.serve(connection, sent);
                }
            }
            ServerEvent::AtClient(connection, arrived) => {
                let now = self.now();
                let line = format_args!("at the client: {arrived:?} on {connection:x}");
                self.trace.write(now, line);
                self.deliver(connection, arrived);
            }
            ServerEvent::Publish(connection, bytes) => self.send_to_client(connection, bytes),
            ServerEvent::Notice(connection, acquisition) => {
                self.notice_arrives(connection, acquisition);
            }
            ServerEvent::Fail => self.fail_over(),
            ServerEvent::Recover => self.recover(),
        }
    }

    /// Carries a segment of a process to the server.
    pub(super) fn send_to_server(&mut self, slot: usize, connection: ConnectionId, sent: Sent) {
        let (now, way) = (self.now(), (slot, self.server_place()));
        let host = self.host.as_mut().expect("a deployment of Redis");
        let one = match sent {
            Sent::Open => host.connections.entry(connection).or_default(),
            _ => match host.connections.get_mut(&connection) {
                Some(one) if !one.deaf => one,
                _ => return,
            },
        };
        one.at_server =
            self.network.segment(now, way, one.at_server, &mut self.invariants.coverage);
        let at = one.at_server;
        self.schedule(at, Event::Server(ServerEvent::AtServer(connection, sent)));
    }

    fn send_to_client(&mut self, connection: ConnectionId, mut bytes: Vec<u8>) {
        let way = (self.server_place(), process_of(connection).0);
        let now = self.now();
        let host = self.host.as_mut().expect("a deployment of Redis");
        let Some(one) = host.connections.get_mut(&connection).filter(|one| !one.mute) else {
            return;
        };
        let mut parts = Vec::new();
        if bytes.len() > 1 && host.random.chance(100_000) {
            let rest = bytes.split_off(host.random.between(1, bytes.len() as u64 - 1) as usize);
            parts.push(rest);
        }
        parts.insert(0, bytes);
        for part in parts {
            one.at_client =
                self.network.segment(now, way, one.at_client, &mut self.invariants.coverage);
            let event = ServerEvent::AtClient(connection, Arrived::Bytes(part));
            self.agenda.schedule(one.at_client, Event::Server(event));
        }
    }

    fn notify_client(&mut self, connection: ConnectionId, arrived: Arrived) {
        let at = self.now() + self.host().random.between(0, 5 * MS);
        self.schedule(at, Event::Server(ServerEvent::AtClient(connection, arrived)));
    }

    fn is_mute(&mut self, connection: ConnectionId) -> bool {
        self.host().connections.get(&connection).is_some_and(|one| one.mute)
    }

    fn deliver(&mut self, connection: ConnectionId, arrived: Arrived) {
        let now = self.now();
        if self.is_mute(connection) && arrived != Arrived::Ended {
            return;
        }
        let (slot, run) = process_of(connection);
        let Some(process) = &self.slots[slot].process else { return };
        if let Engine::Redis { link, .. } = &process.engine
            && process.run == run
        {
            link.arrive(now, connection, arrived);
            self.request_turn(slot);
        }
    }

    /// The server handles a segment that has arrived.
    fn serve(&mut self, connection: ConnectionId, sent: Sent) {
        let now = self.now();
        let host = self.host();
        let is_down = host.down_until > now;
        match sent {
            Sent::Open if is_down => {
                host.connections.remove(&connection);
                self.notify_client(connection, Arrived::Ended);
            }
            Sent::Open => {
                host.server.connect(connection);
                self.notify_client(connection, Arrived::Accepted);
            }
            Sent::Bytes(bytes) => {
                host.server.receive(connection, &bytes);
                self.execute(connection);
            }
            Sent::Close => {
                host.server.disconnect(connection);
                host.connections.remove(&connection);
            }
        }
    }

    fn execute(&mut self, connection: ConnectionId) {
        let mut replies = Vec::new();
        loop {
            let host = self.host();
            let now_us = host.now_us();
            let few = host.plan.few_replicas;
            let is_short = few > 0 && host.random.chance(few);
            host.server.set_replicas(host.plan.replicas - u32::from(is_short));
            let Some(Executed { reply, pushes, mut runs, waits }) =
                self.host().server.execute(connection, now_us)
            else {
                break;
            };
            if waits && is_short {
                self.invariants.coverage.reach("too few replicas");
            }
            for (to, push) in pushes {
                // A client's own publication at its handshake is not a grant.
                if runs.is_empty() {
                    replies.extend(push);
                } else {
                    self.publish(to, push, &runs);
                }
            }
            if reply.starts_with(b"-NOSCRIPT") {
                self.invariants.coverage.reach("script unknown to the server");
            }
            if runs.len() > 1 {
                self.invariants.coverage.reach("several requests in one script");
            }
            for (run, after) in &mut runs {
                self.ran(now_us, run, after);
            }
            replies.extend(reply);
            self.follow(waits, is_short);
        }
        if !replies.is_empty() {
            self.send_to_client(connection, replies);
        }
    }

    fn ran(&mut self, now_us: u64, run: &Run, after: &mut KeySpace) {
        let now = self.now();
        let nonce = run.args.get(if run.verb == Verb::Lock { 2 } else { 1 });
        let digest = nonce.map_or(0, |nonce| digest(nonce));
        let line = format_args!("{:?} {:?}", run.verb, run.reply);
        self.trace.note(now, &[10, run.verb as u64, digest], line);
        if run.reply.is_err() {
            self.invariants.coverage.reach("script refused for want of memory");
        }
        self.invariants.after_script(after, now_us, run);
        self.note_queues();
    }

    /// Cuts the connections of a process. Requests in flight may still be executed.
    pub(super) fn cut_connections(&mut self, slot: usize) {
        let ids: Vec<_> = self.host().connections.keys().copied().collect();
        for connection in ids.into_iter().filter(|id| process_of(*id).0 == slot) {
            self.cut(connection, false);
        }
    }

    fn cut(&mut self, connection: ConnectionId, by_server: bool) {
        let host = self.host();
        let lost = by_server || host.random.chance(500_000);
        let one = host.connections.get_mut(&connection).expect("it is there");
        if mem::replace(&mut one.mute, true) {
            return;
        }
        one.deaf = lost;
        if lost {
            host.server.disconnect(connection);
        }
        self.invariants.coverage.reach("connection cut");
        self.notify_client(connection, Arrived::Ended);
    }

    /// The process has ended; its operating system closes its connections.
    pub(super) fn close_connections(&mut self, slot: usize, run: u64) {
        let ids: Vec<_> = self.host().connections.keys().copied().collect();
        for connection in ids.into_iter().filter(|id| process_of(*id) == (slot, run)) {
            self.send_to_server(slot, connection, Sent::Close);
        }
    }

    pub(super) fn flush_scripts(&mut self) {
        self.host().server.flush_scripts();
        self.invariants.coverage.reach("scripts flushed");
    }
}
