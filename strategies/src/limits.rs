//! The limits of keys and options, the same for every strategy.

use std::time::Duration;

/// The longest key, in bytes of UTF-8. It bounds an entry, a frame and a table row.
pub const KEY_BYTES_MAX: usize = 1024;
/// The shortest lease. Leases are kept in whole milliseconds.
pub const DURATION_MIN: Duration = Duration::from_millis(1);
/// The longest lease: a day, so that no lost unlock keeps a key indefinitely.
pub const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest bounded wait; longer is [`MaxWait::Forever`](crate::MaxWait::Forever).
pub const MAX_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest owner label, in bytes.
pub const LABEL_BYTES_MAX: usize = 256;
/// The longest host name in bytes, as DNS has it.
#[cfg(feature = "raft")]
pub(crate) const HOST_BYTES_MAX: usize = 255;
/// The most entries that a page of a listing may be asked for.
pub const PAGE_MAX: usize = 1_000;

/// The most members of a group. More make no lock safer and every lock slower.
pub const MEMBERS_MAX: usize = 31;
/// The longest name of a cluster, in bytes: it travels in every frame.
#[cfg(feature = "raft")]
pub const CLUSTER_NAME_BYTES_MAX: usize = 64;
