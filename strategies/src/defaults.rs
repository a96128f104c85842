//! The default of every option, each stated once: `tests/defaults.rs` of the crate `gaggle` names
//! the texts that repeat one.

use std::time::Duration;

/// The lease of a lock: [`LockOptions::duration`](crate::LockOptions::duration).
pub const LEASE: Duration = Duration::from_secs(10);

/// The wait for a lock: [`LockOptions::max_wait`](crate::LockOptions::max_wait).
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// How long `unlock`, `extend` and a `lock` with a `max_wait` of zero wait for a reply.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process may be silent before its waiters are dropped.
pub const WAITER_TTL: Duration = Duration::from_secs(3);

/// How long an ended nonce is remembered, of which a copy may arrive.
pub const NONCE_MEMORY: Duration = Duration::from_secs(30);

/// How long a handle polls for a reply before it sleeps.
pub const BUSY_POLL: Duration = Duration::from_micros(100);

/// How far the clock rates of two machines may differ, in parts per million.
pub const DRIFT_PPM: u32 = 10_000;

/// How long one attempt to connect to a Redis may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The first part of every key and topic in a Redis.
pub const NAMESPACE: &str = "gaggle";

/// How many may wait for one key in a Redis.
pub const WAITERS_MAX: u64 = 65_536;

/// How often the leader of a group sends a heartbeat.
pub const HEARTBEAT: Duration = Duration::from_millis(50);

/// The bounds of the random time that a member waits for a leader before it campaigns.
pub const ELECTION_TIMEOUT: (Duration, Duration) =
    (Duration::from_millis(150), Duration::from_millis(300));

/// The longest lease that a server of a group grants to its clients. A new group grants nothing for
/// as long.
pub const SERVED_TTL: Duration = Duration::from_secs(10);
