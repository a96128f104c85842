//! Plans: everything that is decided before a run.

use std::{fmt, time::Duration};

use gaggle_channels::NodeName;
use gaggle_strategies::{
    MemberOptions,
    limits::KEY_BYTES_MAX,
    lock::Owner,
    lock_table::TableConfig,
    member::{Policy, RunOptions},
};
use serde::{Deserialize, Serialize};

use super::{
    clock::MS,
    random::{Random, mixed},
};

/// The longest delay of a calm network.
const NEAR: u64 = 3 * MS;
const YEAR: u64 = 365 * 24 * 3_600 * 1_000 * MS;

/// Which clocks a simulation runs with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Clocks {
    /// Rates differ by no more than the drift bound, as the contract asks.
    #[default]
    WithinBound,
    /// Rates differ by far more, and clocks stand still at times: no holder's belief is safe, but
    /// one live lease and rising tokens still are.
    BeyondBound,
}

/// Everything that is decided before a run begins. This is swarm testing: each seed decides which
/// faults are on and how hard they are.
///
/// A plan that fails is kept as a file: its numbers stay, whatever later versions generate from its
/// seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Decides everything that is generated during the run.
    pub(super) seed: u64,
    pub(super) clocks: Clocks,
    pub(super) policy: Policy,
    pub(super) members: usize,
    pub(super) clients: usize,
    pub(super) keys: usize,
    /// Keys have at least this many bytes.
    pub(super) key_bytes: usize,
    /// How long faults are injected, in nanoseconds.
    pub(super) chaos: u64,
    pub(super) options: Timing,
    pub(super) network: NetworkPlan,
    pub(super) faults: FaultPlan,
    /// Clocks change rates while the run lasts.
    pub(super) drifts: bool,
    pub(super) work: WorkPlan,
    /// The processes are clients of one Redis, not members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redis: Option<ServerPlan>,
}

/// The faults of a server: mean times between two faults of a kind in nanoseconds, zero where the
/// kind is off; chances in a million.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerPlan {
    pub(super) connect_timeout_ms: u64,
    pub(super) lost_publication: u64,
    pub(super) late_publication: u64,
    pub(super) late_max: u64,
    pub(super) cut: u64,
    pub(super) flush: u64,
    pub(super) full: u64,
    pub(super) standstill: u64,
    pub(super) restart: u64,
    pub(super) wipe: u64,
    /// How long a standstill, a restart or a full memory lasts at most.
    pub(super) outage_max: u64,
    /// How many replicas must have a grant before it is reported, and how often too few have it.
    pub(super) replicas: u32,
    pub(super) few_replicas: u64,
    pub(super) failover: u64,
    #[serde(default)]
    pub(super) flush_all: u64,
}

/// The members' options that a seed decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Timing {
    pub(super) heartbeat_ms: u64,
    pub(super) compact_after: u64,
    pub(super) compact_keep: u64,
    pub(super) frame_limit: usize,
    pub(super) nonce_memory_ms: u64,
    pub(super) waiter_ttl_ms: u64,
    pub(super) waiters_max: u64,
    pub(super) nonces_max: u64,
    /// The longest lease that is held outside the members; zero where none is.
    pub(super) outside_ms: u64,
}

/// The effects of the network on frames; times in nanoseconds, chances in a million.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkPlan {
    pub(super) delay: (u64, u64),
    /// Order is kept per pair, as on a connection.
    pub(super) in_order: bool,
    pub(super) loss: u64,
    pub(super) repeat: u64,
    /// A few frames are held up for much longer.
    pub(super) spike: u64,
    pub(super) spike_max: u64,
}

/// The faults of processes: the mean time between two of a kind, in nanoseconds; zero
/// where the kind is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultPlan {
    pub(super) partition: u64,
    pub(super) slow: u64,
    pub(super) pause: u64,
    pub(super) pause_max: u64,
    pub(super) crash: u64,
    pub(super) crash_all: u64,
    pub(super) leave: u64,
    pub(super) transfer: u64,
    pub(super) drift: u64,
    pub(super) restore: u64,
    pub(super) client_death: u64,
    /// How many turns in a million take time, and how long at most.
    pub(super) stall: u64,
    pub(super) stall_max: u64,
}

/// The work of clients; times in nanoseconds, chances in a million.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkPlan {
    pub(super) think_max: u64,
    pub(super) lease_ms: (u64, u64),
    pub(super) wait_ms_max: u64,
    pub(super) try_lock: u64,
    pub(super) forever: u64,
    pub(super) cancel: u64,
    pub(super) extend: u64,
    pub(super) abandon: u64,
    pub(super) release: u64,
    pub(super) overstay: u64,
    /// How often a lock is transferred to another client, wherever that runs.
    pub(super) transfer_lock: u64,
    /// How often a caller does not look at its reply for a while, and for how long at most.
    pub(super) late: u64,
    pub(super) late_max: u64,
    /// How often a client ends the grant of a key, as an operator does.
    pub(super) force: u64,
    /// How often a caller gives the nonce, and may come to another process with it.
    #[serde(default)]
    pub(super) given: u64,
}

impl Plan {
    /// Generates a plan. Of every sixteen seeds eight have every fault on (but the loss of
    /// connections, which a network that keeps no order does not have). One has none but calls that
    /// are given up. For the others each fault is on or off at random.
    #[must_use]
    pub fn generate(seed: u64, clocks: Clocks) -> Self {
        let mut random = Random::new(seed, 1);
        let all = seed.is_multiple_of(2);
        let none = seed % 16 == 1 && clocks == Clocks::WithinBound;
        let policy = if random.chance(650_000) { Policy::Queue } else { Policy::CompareAndSet };
        let members = [1, 2, 3, 3, 3, 4, 5, 5, 6, 7][random.index(10)];
        let clients = random.spread(1, 16) as usize;
        let heartbeat_ms = [50, 50, 100, 100, 200][random.index(5)];
        let compact_after = random.spread(8, 512);
        let mut options = Timing {
            heartbeat_ms,
            compact_after,
            compact_keep: random.between(0, compact_after - 1) / 2,
            frame_limit: [4096, 4096, 16 * 1024, 1 << 20][random.index(4)],
            nonce_memory_ms: random.spread(200, 30_000),
            waiter_ttl_ms: random.between(400, 3_000),
            waiters_max: if random.chance(100_000) { random.between(1, 3) } else { 1 << 17 },
            nonces_max: if random.chance(100_000) { random.between(4, 40) } else { 1 << 21 },
            outside_ms: 0,
        };
        let lease_low = random.spread(10, 200);
        let lease_high = random.spread(lease_low, 2_500);
        let mut work = WorkPlan {
            think_max: random.spread(4, 800) * MS,
            lease_ms: (lease_low, lease_high),
            wait_ms_max: random.spread(50, 5_000),
            try_lock: random.between(0, 300_000),
            forever: random.between(0, 60_000),
            cancel: random.between(0, 250_000),
            extend: random.between(0, 500_000),
            abandon: random.between(0, 120_000),
            release: random.between(0, 400_000),
            overstay: random.between(0, 200_000),
            transfer_lock: random.between(0, 300_000),
            late: random.between(0, 200_000),
            late_max: random.between(0, 2 * lease_high) * MS,
            force: 0,
            given: 0,
        };
        if random.chance(125_000) {
            // Clients extend to twice the longest. Leases are longer than a group takes to be
            // formed.
            let outside = (2 * lease_high).max(2_000);
            options.outside_ms = outside;
            work.lease_ms = (outside / 4, outside / 2);
        }
        let base = random.spread(10, 3_000) * 1_000;
        let calm =
            NetworkPlan { delay: (base, base * 2), in_order: true, ..NetworkPlan::default() };
        let on = |random: &mut Random| all || (!none && random.chance(500_000));
        let some = |random: &mut Random, value: u64| if on(random) { value } else { 0 };
        let mut network = calm;
        let (jitter, loss) = (random.spread(100, 40_000) * 1_000, random.spread(1_000, 300_000));
        network.delay.1 += some(&mut random, jitter);
        network.in_order = some(&mut random, 1) == 0;
        network.loss = some(&mut random, loss);
        let repeat = random.spread(1_000, 200_000);
        network.repeat = some(&mut random, repeat);
        let spike = random.spread(500, 50_000);
        network.spike = some(&mut random, spike);
        network.spike_max = random.spread(50, 4_000) * MS;
        let every = |random: &mut Random, low: u64, high: u64| {
            let mean = random.spread(low, high) * MS;
            some(random, mean)
        };
        let mut faults = FaultPlan {
            partition: every(&mut random, 300, 4_000),
            slow: every(&mut random, 500, 4_000),
            pause: every(&mut random, 400, 5_000),
            pause_max: 0,
            crash: every(&mut random, 400, 5_000),
            crash_all: every(&mut random, 4_000, 40_000),
            leave: every(&mut random, 800, 8_000),
            transfer: every(&mut random, 300, 4_000),
            drift: every(&mut random, 300, 4_000),
            restore: every(&mut random, 100, 2_000),
            client_death: every(&mut random, 300, 4_000),
            stall: 0,
            stall_max: 0,
        };
        faults.pause_max = random.spread(50, 2 * lease_high.max(2_000)) * MS;
        let stall = random.spread(200, 30_000);
        faults.stall = some(&mut random, stall);
        faults.stall_max = random.spread(1, 1_500) * MS;
        // In one plan of four, keys so long that a frame has few commands, and that an append ends
        // before the first entry of a new leader's own term.
        let long_keys = random.chance(250_000);
        let key_bytes =
            if long_keys { random.spread(16, KEY_BYTES_MAX as u64) as usize } else { 0 };
        // In one plan of three, force-unlocks.
        if !none && random.chance(333_333) {
            work.force = random.spread(2_000, 200_000);
        }
        // In one plan of three, given nonces.
        let mut given = Random::new(seed, 8);
        if !none && given.chance(333_333) {
            work.given = given.spread(20_000, 800_000);
            // A caller that comes later than this begins another acquisition.
            options.nonce_memory_ms = 30_000;
            options.nonces_max = 1 << 21;
        }
        Self {
            seed,
            clocks,
            policy,
            members,
            clients,
            keys: random.between(1, 4) as usize,
            key_bytes,
            // A group that waits for leases outside grants nothing meanwhile.
            chaos: (random.between(2_000, 9_000) + 3 * options.outside_ms) * MS,
            options,
            network,
            drifts: faults.drift > 0 || clocks == Clocks::BeyondBound,
            faults,
            work,
            redis: None,
        }
    }

    /// Generates a plan of clients of one Redis; which faults are on as in
    /// [`generate`](Self::generate).
    #[must_use]
    pub fn generate_redis(seed: u64) -> Self {
        let mut plan = Self::generate(seed, Clocks::WithinBound);
        let mut random = Random::new(seed, 7);
        let (all, none) = (seed.is_multiple_of(2), seed % 16 == 1);
        let some = |random: &mut Random, low: u64, high: u64| {
            let value = random.spread(low, high);
            if all || (!none && random.chance(500_000)) { value } else { 0 }
        };
        let replicas = if random.chance(250_000) { random.between(1, 3) as u32 } else { 0 };
        let few_replicas = if replicas > 0 { some(&mut random, 1_000, 300_000) } else { 0 };
        // Without replicas, a failover is as a loss of memory.
        let failover = if replicas > 0 { some(&mut random, 1_000, 16_000) * MS } else { 0 };
        plan.redis = Some(ServerPlan {
            connect_timeout_ms: random.spread(100, 2_000),
            lost_publication: some(&mut random, 1_000, 500_000),
            late_publication: some(&mut random, 1_000, 300_000),
            late_max: random.spread(1, 4_000) * MS,
            cut: some(&mut random, 200, 4_000) * MS,
            flush: some(&mut random, 200, 4_000) * MS,
            full: some(&mut random, 500, 8_000) * MS,
            standstill: some(&mut random, 500, 8_000) * MS,
            restart: some(&mut random, 1_000, 16_000) * MS,
            wipe: some(&mut random, 2_000, 32_000) * MS,
            outage_max: random.spread(20, 4_000) * MS,
            replicas,
            few_replicas,
            failover,
            flush_all: some(&mut random, 2_000, 32_000) * MS,
        });
        // In one plan of four, a server as far as waiter_ttl, which may be at its limit.
        if random.chance(250_000) {
            plan.options.waiter_ttl_ms = random.spread(100, 3_000);
            let way = random.spread(1, plan.options.waiter_ttl_ms.min(600) / 2) * MS;
            plan.network.delay = (plan.network.delay.0 + way, plan.network.delay.1 + way);
        }
        plan.options.nonce_memory_ms = plan.options.nonce_memory_ms.max(1_000);
        plan.options.outside_ms = 0;
        plan.faults.crash_all = 0;
        plan.faults.transfer = 0;
        plan.faults.restore = 0;
        plan
    }

    /// The seed that it was generated from.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The options of a member of this plan.
    pub(super) fn member_options(&self, names: &[NodeName]) -> MemberOptions {
        let Timing { heartbeat_ms, .. } = self.options;
        let heartbeat = Duration::from_millis(heartbeat_ms);
        let mut options = MemberOptions::named("simulated", names.iter().cloned());
        debug_assert_eq!(names.len(), self.members);
        options = options
            .heartbeat(heartbeat)
            .election_timeout(heartbeat * 3, heartbeat * 6)
            .waiter_ttl(Duration::from_millis(self.options.waiter_ttl_ms));
        if self.options.outside_ms > 0 {
            options = options.outside_max(Duration::from_millis(self.options.outside_ms));
        }
        options
    }

    /// The rest of what is decided for one run of a member. Its owner is the same on every host and
    /// in every process, so that logs are.
    pub(super) fn run_options(&self, name: &NodeName, seed: u64) -> RunOptions {
        let table = TableConfig {
            nonce_memory_ms: self.options.nonce_memory_ms,
            waiters_per_key_max: self.options.waiters_max,
            nonces_max: self.options.nonces_max,
            ..TableConfig::default()
        };
        RunOptions {
            owner: Owner { host: name.to_string(), pid: 0, label: None },
            seed,
            compact_after: self.options.compact_after,
            compact_keep: self.options.compact_keep,
            table,
        }
    }

    /// How long before virtual time began the machine of a slot did, in nanoseconds.
    pub(super) fn booted(&self, slot: usize) -> u64 {
        Random::new(self.seed, mixed(5_000 + slot as u64)).spread(1, YEAR)
    }

    /// A calm network: the plan's own delays, nothing else.
    pub(super) fn calm_network(&self) -> NetworkPlan {
        let low = self.network.delay.0.min(NEAR);
        NetworkPlan { delay: (low, low * 2), in_order: true, ..NetworkPlan::default() }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, policy, members, clients, keys, .. } = self;
        writeln!(f, "seed {seed}: {policy:?}, {members} members, {clients} clients, {keys} keys")?;
        writeln!(f, "  {:?}", self.options)?;
        writeln!(f, "  {:?}", self.network)?;
        writeln!(f, "  {:?}", self.faults)?;
        if let Some(server) = &self.redis {
            writeln!(f, "  {server:?}")?;
        }
        write!(f, "  {:?}", self.work)
    }
}
