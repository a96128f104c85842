//! The bounds of a lock table.

use serde::{Deserialize, Serialize};

use super::command::ClusterTime;
use crate::{deadline::whole_ms, defaults};

/// More than the 100,000 that the table is measured at, and about 47 MB; 37 MB if none times out.
const WAITERS_PER_KEY_MAX: u64 = 131_072;
/// The million that the table is measured at, and about 400 MB with keys of moderate length.
const KEYS_MAX: u64 = 1 << 20;
/// A full table of keys and as many again that are remembered: 35,000 unlocks a second over the
/// 30 s of their memory.
const NONCES_MAX: u64 = 1 << 21;

/// The greatest token at which a table may begin: the wall clock reaches it in the year 2262, and
/// as many grants again remain above it.
pub(super) const FIRST_TOKEN_MAX: u64 = 1 << 63;

/// Cluster time stops here. No clock comes near, and the end of every lease lies above it, so that
/// arithmetic on times never saturates where order matters.
pub(crate) const TIME_MAX: ClusterTime = ClusterTime(1 << 63);

/// The bounds of a table, and its group. Every member of a group has the same; a snapshot carries
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableConfig {
    /// The group's random id, 0 by default. Times of other groups mean nothing here.
    pub group: u128,
    /// The smallest token that the table grants, 1 by default. A table that begins empty takes the
    /// wall clock's nanoseconds, so that tokens grow across a loss of memory. At most 2⁶³; more
    /// counts as that.
    pub first_token: u64,
    /// How long an ended nonce is remembered, in milliseconds; 30 s by default: longer than a
    /// channel delays a frame, and short enough that the memory of a busy table stays small.
    pub nonce_memory_ms: u64,
    /// Waiters on one key, 131,072 by default.
    pub waiters_per_key_max: u64,
    /// Keys held at one time, 1,048,576 by default.
    pub keys_max: u64,
    /// Nonces held, waiting and remembered together, 2,097,152 by default.
    pub nonces_max: u64,
    /// The longest lease, in milliseconds, where a lock may be held outside the processes of the
    /// members; 0, the default, where it may not. The table only carries it, for the leader.
    pub outside_max_ms: u64,
}

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            group: 0,
            first_token: 1,
            nonce_memory_ms: whole_ms(defaults::NONCE_MEMORY),
            waiters_per_key_max: WAITERS_PER_KEY_MAX,
            keys_max: KEYS_MAX,
            nonces_max: NONCES_MAX,
            outside_max_ms: 0,
        }
    }
}
