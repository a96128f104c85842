//! The server of a simulated Redis deployment, and the connections to it.

mod outages;
mod publications;

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use self::outages::Replica;
pub(super) use self::{outages::Outage, publications::Notice};
use super::{
    clock::SimClock,
    event::Event,
    invariants::{Acquisition, Invariants},
    plan::{Plan, ServerPlan},
    process::Engine,
    random::Random,
    stream::{Arrived, Link, Sent, SimDial, process_of},
    world::{MS, World},
};
use crate::{
    Clock as _, KeyedMutex, Queue, RedisOptions,
    member::Policy,
    redis::machine::Machine,
    testing::{
        digest::digest,
        redis_server::{ConnectionId, Executed, Run, Server, Verb},
    },
};

/// The server's clock begins here, in microseconds since 1970.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// The machine of the server.
pub(super) struct Host {
    pub(super) plan: ServerPlan,
    pub(super) server: Server,
    pub(super) clock: Arc<SimClock>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Refuses connections until then.
    down_until: u64,
    /// Stands still until then: segments that arrive wait.
    stands_until: u64,
    full_until: u64,
    backlog: Vec<(ConnectionId, Sent)>,
    /// The one that a failover promotes.
    replica: Replica,
    random: Random,
}

/// One connection, in both directions.
#[derive(Debug, Default)]
struct Connection {
    /// When the last segment in this direction arrives.
    at_server: u64,
    at_client: u64,
    /// It was cut: no more bytes reach the server (`deaf`) or the client (`mute`).
    deaf: bool,
    mute: bool,
    /// Publications are on their way late until then.
    late_until: u64,
}

/// An event at the server, or on a connection to it.
#[derive(Debug)]
pub(super) enum ServerEvent {
    AtServer(ConnectionId, Sent),
    AtClient(ConnectionId, Arrived),
    /// A publication leaves late.
    Publish(ConnectionId, Vec<u8>),
    /// All of the notice of a force-unlock has arrived.
    Notice(ConnectionId, Acquisition),
    Fail,
    /// A standstill, a restart or a full memory may be over.
    Recover,
}

impl Host {
    pub(super) fn new(plan: ServerPlan, seed: u64, clock: SimClock) -> Self {
        Self {
            plan,
            server: Server::new(),
            clock: Arc::new(clock),
            connections: BTreeMap::new(),
            down_until: 0,
            stands_until: 0,
            full_until: 0,
            backlog: Vec::new(),
            replica: Replica::default(),
            random: Random::new(seed, 6),
        }
    }

    pub(super) fn now_us(&self) -> u64 {
        let shown = self.clock.now().since_origin().as_micros();
        BEGINNING + u64::try_from(shown).expect("centuries")
    }

    /// The keys of locks and queues that are left in the server.
    pub(super) fn keys_left(&self) -> Vec<String> {
        let left = self.server.residue(self.now_us()).into_iter();
        left.filter(|key| !key.ends_with(":x") && !key.contains(":g:")).collect()
    }

    pub(super) fn has_forgotten(&self) -> bool {
        self.server.residue(self.now_us()).is_empty()
    }
}

/// A client as the strategy's users hold it, and its driver.
pub(super) fn client(
    plan: &Plan,
    (slot, run): (usize, u64),
    clock: Arc<SimClock>,
    seed: u64,
) -> (Arc<dyn KeyedMutex>, Engine) {
    let server = plan.redis.as_ref().expect("a plan of Redis");
    let link = Link::new(slot, run);
    let ms = Duration::from_millis;
    let options = RedisOptions::new("redis://simulated")
        .clock(clock)
        .queue(if plan.policy == Policy::Queue { Queue::Fifo } else { Queue::None })
        .connect_timeout(ms(server.connect_timeout_ms))
        .waiter_ttl(ms(plan.options.waiter_ttl_ms))
        .nonce_memory(ms(plan.options.nonce_memory_ms))
        .waiters_max(plan.options.waiters_max)
        .replicas(server.replicas)
        .busy_poll(Duration::ZERO);
    let (strategy, machine) = Machine::start(options, Box::new(SimDial(link.clone())), seed);
    (strategy, Engine::Redis { machine: Box::new(machine), link })
}

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
            let Some(Executed { reply, pushes, run, waits }) =
                self.host().server.execute(connection, now_us)
            else {
                break;
            };
            if waits && is_short {
                self.invariants.coverage.reach("too few replicas");
            }
            for (to, push) in pushes {
                // A client's own publication at its handshake is not a grant.
                if let Some(run) = &run {
                    self.publish(to, push, run);
                } else {
                    replies.extend(push);
                }
            }
            if let Some(run) = run {
                self.ran(now_us, &run);
            } else if reply.starts_with(b"-NOSCRIPT") {
                self.invariants.coverage.reach("script unknown to the server");
            }
            replies.extend(reply);
            self.follow(waits, is_short);
        }
        if !replies.is_empty() {
            self.send_to_client(connection, replies);
        }
    }

    fn ran(&mut self, now_us: u64, run: &Run) {
        let now = self.now();
        let nonce = run.args.get(if run.verb == Verb::Lock { 3 } else { 2 });
        let digest = nonce.map_or(0, |nonce| digest(nonce));
        let line = format_args!("{:?} {:?}", run.verb, run.reply);
        self.trace.note(now, &[10, run.verb as u64, digest], line);
        if run.reply.is_err() {
            self.invariants.coverage.reach("script refused for want of memory");
        }
        let host = self.host.as_ref().expect("a deployment of Redis");
        self.invariants.after_script(&host.server, now_us, run);
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
