//! The lock table: key -> holder, FIFO waiters, leases, tokens, nonces. For drivers; may change in
//! 0.x.
//!
//! [`LockTable::apply`] is a function of the table, the cluster time and one [`Command`]. Its
//! output is a list of [`Effect`]s. No clock, no randomness, no I/O, and no hash order: members
//! that apply the same commands at the same stamps hold byte-identical tables.
//!
//! # One step
//!
//! 1. The time becomes the later of the present time and the stamp: it never goes back. It stops at
//!    2⁶³ ms, so that the end of a lease is always later than its grant.
//! 2. Waiters whose deadline is reached leave the queue, in the order of (deadline, position). A
//!    deadline equal to the time is reached: where it falls together with the end of the lease
//!    before it, the waiter is dead and gets nothing.
//! 3. Leases whose end is reached end, in the order of (end, position). Each key goes to the head
//!    of its queue at this very stamp: the new lease counts from here, not from the end of the old.
//! 4. Nonces that no LOCK can repeat are forgotten, at most [`FORGOTTEN_PER_STEP`].
//! 5. The command.
//!
//! # Nonces and their memory (contract, rule 6)
//!
//! A nonce holds, waits, has ended or is unknown. Ended ones (unlocked, withdrawn, expired, or
//! withdrawn before their LOCK arrived) are remembered from the stamp at which they ended. A LOCK
//! of an unknown nonce is accepted if `seen + nonce_memory >= now`; a nonce that ended at `F` is
//! forgotten once `F + nonce_memory < now`. A sender cannot have seen a time later than the end of
//! its nonce (`seen <= F`), so every copy of a forgotten nonce's LOCK is refused as stale.
//!
//! Holding, waiting and remembered nonces together never exceed `nonces_max`: each LOCK that is
//! accepted brings the capacity for its own memory, and a full memory refuses new LOCKs. A
//! withdrawal of an unknown nonce is remembered while there is capacity. Without it the table
//! raises a *floor* instead: a LOCK that had seen nothing later than the floor is refused as stale.
//! That covers the withdrawn nonce with one number. Other LOCKs that it refuses are repeated by
//! their senders with a newer time, and would have met the full memory anyway.
//!
//! A waiter that was dropped (deadline, or its process silent) is not remembered: if its process
//! lives after all it queues again, at the tail; if its caller has ended, the caller's own
//! withdrawal is remembered.

mod check;
mod command;
mod config;
mod index;
mod key;
mod nonces;
mod queries;
mod row;
#[cfg(feature = "raft")]
mod snapshot;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

#[cfg(feature = "raft")]
pub(crate) use self::config::TIME_MAX;
pub(crate) use self::key::digest as key_digest;
#[cfg(feature = "raft")]
pub use self::snapshot::SnapshotError;
use self::{command::shared_owner, key::Key};
pub use self::{
    command::{
        Bound, ClusterTime, Command, Effect, Grant, LockRequest, PriorState, ProcessId, Refusal,
        Seen, Wait,
    },
    config::TableConfig,
    nonces::{FORGOTTEN_PER_STEP, Known},
    table::Sizes,
};
use crate::lock::{Nonce, Owner};

/// Holders, waiters, and the nonces that ended lately: a pure state machine.
///
/// The [module](self) describes one step. A step costs O(log n) in the mean of many, with a share
/// in what it ends; each waiter and each lease is ended once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTable {
    config: TableConfig,
    now: ClusterTime,
    last_token: u64,
    /// The position that the last accepted LOCK took.
    last_position: u64,
    rows: BTreeMap<Key, Row>,
    nonces: Nonces,
    index: Index,
}

/// The row of a held key. A key without a holder has no row, and so no waiters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    holder: Holder,
    /// The waiters by their positions, which is the order of arrival.
    queue: BTreeMap<u64, Waiter>,
}

/// The holder of a key, and its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    acquisition: Acquisition,
    token: u64,
    granted_at: ClusterTime,
    expires_at: ClusterTime,
}

/// A waiter in the queue of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Waiter {
    acquisition: Acquisition,
    /// The time from which on the waiter is dead; `None` waits indefinitely.
    deadline: Option<ClusterTime>,
}

/// The fields that a waiter and the holder it becomes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Acquisition {
    /// Counts the LOCKs that the table accepted: unique, and the order of arrival.
    position: u64,
    nonce: Nonce,
    /// The sender of its latest LOCK or EXTEND.
    process: ProcessId,
    #[serde(deserialize_with = "shared_owner")]
    owner: Arc<Owner>,
    duration_ms: u64,
    /// Moves with every LOCK of the nonce; the position does not.
    asked_at: ClusterTime,
}

/// A time, and the position of the acquisition to which something happens then.
type When = (ClusterTime, u64);

/// The key of each lease and waiter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Index {
    /// The ends of the leases.
    leases: BTreeMap<When, Key>,
    /// The deadlines of all waiters that have one.
    deadlines: BTreeMap<When, Key>,
    /// The positions of the waiters of each process that has any.
    processes: BTreeMap<ProcessId, BTreeMap<u64, Key>>,
}

/// An entry for each nonce that holds, waits or has ended lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Nonces {
    known: BTreeMap<Nonce, Known>,
    /// The ended nonces, the oldest first.
    ended: VecDeque<(ClusterTime, Nonce)>,
    /// The time of the last withdrawal that exceeded the capacity.
    floor: Option<ClusterTime>,
}
