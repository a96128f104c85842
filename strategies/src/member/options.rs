//! The options of a member, the limits, and what the core makes of them.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use gaggle_channels::NodeName;
use humantime::format_duration;

use super::wire::Times;
use crate::{
    client::busy_poll::BUSY_POLL_MAX,
    clock::{BootClock, Clock},
    deadline::{Drift, whole_ms},
    defaults,
    error::Error,
    limits::{CLUSTER_NAME_BYTES_MAX, DURATION_MAX, MEMBERS_MAX},
    lock::Owner,
    lock_table::TableConfig,
    options::{check_option, check_span},
};

/// The shortest and the longest heartbeat. A process is heard at its ticks, and takes part in a
/// forming for half a second after: two ticks of the longest.
pub(super) const HEARTBEAT: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_secs(1));
/// A tick of the engine is this part of a heartbeat.
pub(super) const HEARTBEAT_TICKS: u32 = 5;
/// How many entries are applied before the log is compacted, and how many of them stay for
/// followers that are slightly behind.
const COMPACT_AFTER: u64 = 10_000;
const COMPACT_KEEP: u64 = 1_000;
/// Members are heard with the leader's heartbeats: none is silent before this many of them.
const SILENT_HEARTBEATS: u32 = 4;

/// The bytes of an invitation besides the members: the frame's header, an id, the table's bounds.
const INVITATION_BYTES_MAX: usize = 160 + 100;
/// The bytes of an invitation for a member besides the name: the name's length, the incarnation.
const INVITED_BYTES_MAX: usize = 2 + 10;

/// Names for a message, with commas between them.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a NodeName>) -> String {
    names.into_iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

/// How long a frame can be that invites all members to form a group: one body, which is never cut.
/// Where that fits, a presence that lists them fits as well.
fn invitation_bytes(members: &BTreeSet<NodeName>) -> usize {
    let names: usize = members.iter().map(|name| name.as_str().len()).sum();
    INVITATION_BYTES_MAX + members.len() * INVITED_BYTES_MAX + names
}

/// How a member of the Raft family is run.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use gaggle_channels::NodeName;
/// use gaggle_strategies::MemberOptions;
///
/// let names = ["a", "b", "c"].map(|name| NodeName::new(name).expect("a short name"));
/// let options = MemberOptions::named("orders", names)
///     .heartbeat(Duration::from_millis(100))
///     .election_timeout(Duration::from_millis(300), Duration::from_millis(600));
/// ```
#[derive(Clone, Debug)]
pub struct MemberOptions {
    pub(crate) cluster: String,
    pub(crate) members: BTreeSet<NodeName>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) election_timeout: (Duration, Duration),
    pub(crate) heartbeat: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) outside_max: Option<Duration>,
    pub(crate) waiter_ttl: Duration,
    pub(crate) busy_poll: Duration,
}

/// What a driver decides for one run of a member.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The process that the other members and `inspect` name: this one, unless set.
    pub owner: Owner,
    /// Decides all ids and election timeouts. No two members, and no two runs of one, share a seed.
    pub seed: u64,
    /// How many entries are applied before the log is compacted: 10,000, unless set. An entry holds
    /// up to 16 commands. A log of more than 1 MiB is compacted earlier.
    pub compact_after: u64,
    /// How many of them stay for followers that are slightly behind, which is less: 1,000, unless
    /// set.
    pub compact_keep: u64,
    /// The bounds of the lock table. A group has those of the member that formed it. Its group id
    /// and first token are set by the forming, its `outside_max_ms` by
    /// [`MemberOptions::outside_max`].
    pub table: TableConfig,
}

impl RunOptions {
    /// The defaults, and a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            owner: Owner::this_process(None),
            seed,
            compact_after: COMPACT_AFTER,
            compact_keep: COMPACT_KEEP,
            table: TableConfig::default(),
        }
    }
}

impl MemberOptions {
    /// A member of the group of exactly these names. The channel's own name is one of them.
    #[must_use]
    pub fn named(cluster: impl Into<String>, names: impl IntoIterator<Item = NodeName>) -> Self {
        Self {
            cluster: cluster.into(),
            members: names.into_iter().collect(),
            clock: Arc::new(BootClock),
            election_timeout: defaults::ELECTION_TIMEOUT,
            heartbeat: defaults::HEARTBEAT,
            request_timeout: defaults::REQUEST_TIMEOUT,
            outside_max: None,
            waiter_ttl: defaults::WAITER_TTL,
            busy_poll: defaults::BUSY_POLL,
        }
    }

    /// Sets where local time is read, [`BootClock`] by default.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the bounds of the random time that a follower waits for a leader before it campaigns:
    /// 150 to 300 ms by default. `min` is at least three heartbeats, and `max` at least one more.
    #[must_use]
    pub fn election_timeout(mut self, min: Duration, max: Duration) -> Self {
        self.election_timeout = (min, max);
        self
    }

    /// Sets how often a leader sends a heartbeat: 5 ms to 1 s, 50 ms by default. A fifth of it is
    /// the engine's tick.
    #[must_use]
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets how long `unlock`, `extend` and a `lock` with a `max_wait` of zero take at most: 1 ms
    /// to 1 h, 1 s by default.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets how long a process may be silent before its waiters are dropped: 3 s by default. It is
    /// never less than four heartbeats, because a member may send nothing between them.
    #[must_use]
    pub fn waiter_ttl(mut self, ttl: Duration) -> Self {
        self.waiter_ttl = ttl;
        self
    }

    /// Admits leases that are held outside the members: a [`Lock`](crate::Lock) that was
    /// transferred to another process, for which a member extends and unlocks it.
    /// Each is of at most `lease`, 1 ms to 24 h. Longer ones are refused with
    /// [`Error::InvalidOptions`], also the default of 10 s where `lease` is shorter: extend them as
    /// needed. Off by default. Every member must have the same value: to shorten it, stop all
    /// members, wait for the former value, then start them.
    ///
    /// Such a holder does not learn that its group has lost its majority. So a group that is
    /// formed, even the very first, grants nothing for `lease` and the clocks' drift. A call with
    /// a wait goes on waiting; a call without one ends [`Error::Unknown`] with nothing held.
    #[must_use]
    pub fn outside_max(mut self, lease: Duration) -> Self {
        self.outside_max = Some(lease);
        self
    }

    /// Sets how long the member polls for a reply before it sleeps, if no other request is pending:
    /// 0 (never) to 1 ms, 100 µs by default. Waking an idle core often takes longer than the other
    /// members need. Other tasks of the runtime run in between. If replies are later, fewer
    /// requests poll, down to one in 64.
    #[must_use]
    pub fn busy_poll(mut self, limit: Duration) -> Self {
        self.busy_poll = limit;
        self
    }

    /// Checks everything, for a member whose channel has this name and this limit of a frame.
    pub(crate) fn validate(&self, name: &NodeName, frame_limit: usize) -> Result<(), Error> {
        let ms = Duration::from_millis;
        let (heartbeat, (min, max)) = (self.heartbeat, self.election_timeout);
        let (cluster, count) = (self.cluster.len(), self.members.len());
        let bytes = invitation_bytes(&self.members);
        let outside = self.outside_max.unwrap_or(DURATION_MAX);
        check_span("heartbeat", heartbeat, HEARTBEAT.0, HEARTBEAT.1)?;
        check_span("outside_max", outside, ms(1), DURATION_MAX)?;
        check_span("request_timeout", self.request_timeout, ms(1), ms(3_600_000))?;
        check_span("busy_poll", self.busy_poll, Duration::ZERO, BUSY_POLL_MAX)?;
        let has_name = (1..=CLUSTER_NAME_BYTES_MAX).contains(&cluster);
        check_option("cluster", has_name, format_args!("{cluster} bytes"), "1 to 64 bytes")?;
        check_option("members", (1..=MEMBERS_MAX).contains(&count), count, "1 to 31 members")?;
        let names = format!("one of {}", listed(&self.members));
        check_option("name", self.members.contains(name), name, names)?;
        let value = format!("{count}, {bytes} bytes together");
        let limit = format!("the channel's frame of {frame_limit} bytes");
        check_option("members", bytes <= frame_limit, value, limit)?;
        let elects = min >= heartbeat.saturating_mul(3) && max >= min.saturating_add(heartbeat);
        // The default is not an option that the caller has set: the heartbeat alone is too long.
        if self.election_timeout == defaults::ELECTION_TIMEOUT {
            let limit = "5ms to 50ms, or more with a longer election_timeout";
            return check_option("heartbeat", elects, format_duration(heartbeat), limit);
        }
        let range = format!("{} to {}", format_duration(min), format_duration(max));
        let limit = "at least three heartbeats, and a span of at least one";
        check_option("election_timeout", elects, range, limit)
    }

    /// The times that must be equal at all members.
    pub(super) fn times(&self) -> Times {
        Times { heartbeat: self.heartbeat, election_timeout: self.election_timeout }
    }

    /// The time from one tick of the engine to the next.
    pub(super) fn tick(&self) -> Duration {
        self.heartbeat / HEARTBEAT_TICKS
    }

    /// The core's options, for a channel that carries frames of `frame_limit` bytes.
    pub(super) fn timing(&self, frame_limit: usize, run: &RunOptions) -> Timing {
        let tick = self.tick();
        let ticks = |span: Duration| {
            usize::try_from(span.as_nanos().div_ceil(tick.as_nanos())).unwrap_or(usize::MAX)
        };
        Timing {
            tick,
            election_ticks: (ticks(self.election_timeout.0), ticks(self.election_timeout.1)),
            waiter_ttl: self.waiter_ttl.max(self.heartbeat * SILENT_HEARTBEATS),
            compact_after: run.compact_after,
            compact_keep: run.compact_keep,
            table: TableConfig {
                outside_max_ms: self.outside_max.map_or(0, whole_ms),
                ..run.table.clone()
            },
            drift: Drift::default(),
            append_bytes_max: frame_limit as u64 / 4,
        }
    }
}

/// The options that the pure core needs, in its own units.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) tick: Duration,
    pub(crate) election_ticks: (usize, usize),
    pub(crate) waiter_ttl: Duration,
    pub(crate) compact_after: u64,
    pub(crate) compact_keep: u64,
    pub(crate) table: TableConfig,
    pub(crate) drift: Drift,
    /// The longest append message: with its header, two of them fit in a frame.
    pub(crate) append_bytes_max: u64,
}

impl Timing {
    pub(super) fn longest_election(&self) -> Duration {
        let ticks = u32::try_from(self.election_ticks.1).unwrap_or(u32::MAX);
        self.tick.saturating_mul(ticks)
    }
}
