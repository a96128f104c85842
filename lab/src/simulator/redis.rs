//! The server of a simulated Redis deployment, the connections to it, and its clients.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gaggle_strategies::{KeyedMutex, Queue, RedisOptions, clock::Clock as _, member::Policy};

use super::{
    clock::SimClock,
    invariants::{Acquisition, Scripts},
    machine::RedisClient,
    plan::{Plan, ServerPlan},
    random::Random,
    stream::{Arrived, Link, Sent, SimDial},
};
use crate::redis_server::{ConnectionId, KeySpace, Server};

/// The server's clock begins here, in microseconds since 1970.
const BEGINNING: u64 = 1_700_000_000_000_000;

/// The machine of the server.
pub(super) struct Host {
    pub(super) plan: ServerPlan,
    pub(super) server: Server,
    pub(super) clock: Arc<SimClock>,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    /// Refuses connections until then.
    pub(super) down_until: u64,
    /// Stands still until then: segments that arrive wait.
    pub(super) stands_until: u64,
    pub(super) full_until: u64,
    pub(super) backlog: Vec<(ConnectionId, Sent)>,
    /// The one that a failover promotes.
    pub(super) replica: Replica,
    pub(super) random: Random,
}

/// A connection, in both directions.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// When the last segment in this direction arrives.
    pub(super) at_server: u64,
    pub(super) at_client: u64,
    /// The connection was cut: no further bytes reach the server (`deaf`) or the client (`mute`).
    pub(super) deaf: bool,
    pub(super) mute: bool,
    /// Publications are on their way late until then.
    pub(super) late_until: u64,
}

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    Stands,
    Full,
    Restarts,
    Wiped,
    Failover,
    /// `FLUSHALL`: it loses its memory, and no connection.
    Flushed,
}

/// A replica, with what the server had at some time.
#[derive(Clone, Default)]
pub(super) struct Replica {
    pub(super) data: KeySpace,
    pub(super) scripts: Scripts,
}

/// The notice of a force-unlock that a process has not read.
#[derive(Clone, Copy)]
pub(super) struct Notice {
    pub(super) connection: ConnectionId,
    pub(super) acquisition: Acquisition,
    pub(super) arrived_at: u64,
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
) -> (Arc<dyn KeyedMutex>, RedisClient, Arc<Link>) {
    let server = plan.redis.as_ref().expect("a plan of Redis");
    let link = Link::new(slot, run);
    let ms = Duration::from_millis;
    let options = RedisOptions::new("redis://simulated")
        .clock(clock.clone())
        .queue(if plan.policy == Policy::Queue { Queue::Fifo } else { Queue::None })
        .connect_timeout(ms(server.connect_timeout_ms))
        .waiter_ttl(ms(plan.options.waiter_ttl_ms))
        .nonce_memory(ms(plan.options.nonce_memory_ms))
        .waiters_max(plan.options.waiters_max)
        .replicas(server.replicas)
        .busy_poll(Duration::ZERO);
    let (strategy, machine) =
        RedisClient::connect(options, clock, Box::new(SimDial(link.clone())), seed);
    (strategy, machine, link)
}
