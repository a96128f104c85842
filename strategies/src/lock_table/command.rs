//! The commands of a lock table, and the effects.
//!
//! `key` and `nonce` name the acquisition. `process` is the sender of a command; in an effect it is
//! the receiver of the reply, or the process that holds or waits. `request` is the number that the
//! process gave its EXTEND.
#![allow(missing_docs, reason = "what recurs is said above")]

use std::{cell::RefCell, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};

use crate::lock::{Lock, Nonce, Owner};

/// Cluster time in milliseconds: the only clock that a lock table sees. Leaders stamp it into
/// entries; it never goes back, and it says nothing about the wall clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    /// This time plus `ms` milliseconds, at most the end of time.
    #[must_use]
    pub const fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`, zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The id of one incarnation of a process: a restarted process has another. Waiters of a process
/// live and die together.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProcessId(pub u64);

/// A command, as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Grants the key to the nonce, or queues it, or refuses it.
    Lock(LockRequest),
    /// Frees the acquisition of `nonce`, whether it holds or waits; for a nonce never seen it
    /// leaves a tombstone, so that a LOCK that arrives later grants nothing.
    Unlock {
        key: Arc<str>,
        nonce: Nonce,
        /// The sender knows that no copy of its LOCK can still arrive (it was sent once, and
        /// a reply came): then nothing need be remembered.
        forget: bool,
    },
    /// Ends the lease of `nonce` at the later of its present end and `duration_ms` from now.
    Extend {
        key: Arc<str>,
        nonce: Nonce,
        /// The sender, which holds from now on.
        process: ProcessId,
        request: u64,
        duration_ms: u64,
    },
    /// Drops every waiter of a process that was replaced, or was silent for `waiter_ttl`.
    DropWaiters { process: ProcessId },
    /// Moves the time on, and ends leases and waits.
    Noop,
}

/// A LOCK command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    pub key: Arc<str>,
    /// The acquisition. A repeated nonce keeps its grant or its position.
    pub nonce: Nonce,
    pub process: ProcessId,
    /// The lease, from the grant on.
    pub duration_ms: u64,
    pub wait: Wait,
    /// The latest cluster time that the sender had seen at the nonce's first send.
    pub seen: Seen,
    #[serde(deserialize_with = "shared_owner")]
    pub owner: Arc<Owner>,
}

/// How long a LOCK queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// The LOCK does not queue: it is refused if the key is held.
    No,
    /// The LOCK queues for this many milliseconds from the command's stamp.
    Ms(u64),
    /// The waiter has no deadline.
    Forever,
}

/// How old a LOCK is: it is refused once ended nonces of its age may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// The sender saw this time of this group.
    At {
        /// The group's random id; times of another group say nothing.
        group: u128,
        /// The time.
        time: ClusterTime,
    },
    /// This command is sent once and not delayed ([`Local`](crate::Local)): always young enough.
    Now,
}

/// An effect of a command. Effects come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The nonce holds the key (also the reply to a repeated LOCK).
    Granted(Grant),
    /// The nonce waits (also the reply to a repeated LOCK).
    Queued { key: Arc<str>, nonce: Nonce, process: ProcessId },
    /// The LOCK grants nothing. It is decided again when it is repeated.
    Refused { nonce: Nonce, process: ProcessId, reason: Refusal },
    /// The reply to an UNLOCK.
    Unlocked {
        key: Arc<str>,
        nonce: Nonce,
        /// The sender of its latest LOCK or EXTEND; `None` if it neither held nor waited.
        process: Option<ProcessId>,
        /// The state of the nonce before.
        was: PriorState,
    },
    /// The reply to an EXTEND.
    Extended {
        nonce: Nonce,
        process: ProcessId,
        request: u64,
        /// The token and the end of the lease; `None` if the nonce does not hold the key.
        held: Option<(u64, ClusterTime)>,
    },
    /// A lease expired.
    Expired { key: Arc<str>, nonce: Nonce, process: ProcessId, token: u64 },
    /// A waiter left the queue without a grant: its `max_wait` is over, or its process is silent.
    Dropped { key: Arc<str>, nonce: Nonce, process: ProcessId },
}

#[cfg(feature = "raft")]
impl Effect {
    /// The process whose acquisition or request it is about; `None` for an UNLOCK without effect.
    pub(crate) const fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Granted(Grant { process, .. })
            | Self::Queued { process, .. }
            | Self::Refused { process, .. }
            | Self::Extended { process, .. }
            | Self::Expired { process, .. }
            | Self::Dropped { process, .. } => Some(*process),
            Self::Unlocked { process, .. } => *process,
        }
    }
}

/// A grant, with both stamps that the holder's deadline needs.
///
/// The reply to a repeated LOCK has the stamps of the grant that it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub key: Arc<str>,
    pub nonce: Nonce,
    pub process: ProcessId,
    /// The fencing token, greater than every token before it in this table.
    pub token: u64,
    /// The stamp of the latest LOCK of this nonce. The holder counts its deadline from its own send
    /// of that LOCK or of an earlier one, so that a late repetition gains no time.
    pub asked_at: ClusterTime,
    /// The stamp of the grant.
    pub granted_at: ClusterTime,
    /// The end of the lease; the key is free from this time on.
    pub expires_at: ClusterTime,
}

impl Grant {
    /// Whether it granted `lock`, and not a later acquisition by its nonce.
    pub(crate) fn is_of(&self, lock: &Lock) -> bool {
        (self.nonce, self.token) == (lock.nonce(), lock.fencing_token())
    }
}

/// Why a LOCK grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another nonce holds the key, and the LOCK does not wait.
    Held,
    /// The LOCK is older than `nonce_memory`, or of another group: it is sent again with a newer
    /// time.
    Stale,
    /// The nonce has ended, or it holds or waits for another key.
    Spent,
    /// A bound is reached.
    Limit {
        /// The bounded quantity.
        what: Bound,
        /// The bound.
        limit: u64,
    },
}

/// A bound of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Waiters on one key.
    WaitersPerKey,
    /// Keys that are held.
    Keys,
    /// Nonces remembered.
    Nonces,
}

impl Bound {
    /// The name in [`Error::Limit`](crate::Error::Limit).
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WaitersPerKey => "waiters per key",
            Self::Keys => "keys held",
            Self::Nonces => "nonces remembered",
        }
    }
}

/// The state of a nonce when an UNLOCK arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorState {
    /// The nonce held the key.
    Held,
    /// The nonce waited for the key.
    Waited,
    /// The nonce had ended before.
    Ended,
    /// The table does not know it, or it holds or waits for another key.
    Unknown,
}

/// Reads an owner. A process has many locks: an owner that is equal to the last one is shared.
pub(super) fn shared_owner<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Owner>, D::Error> {
    thread_local! {
        static LAST: RefCell<Arc<Owner>> = RefCell::default();
    }
    let owner = Owner::deserialize(from)?;
    LAST.with_borrow_mut(|last| {
        if **last != owner {
            *last = Arc::new(owner);
        }
        Ok(last.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_times_saturate() {
        let (early, late) = (ClusterTime(3), ClusterTime(10));
        assert_eq!((late.since(early), early.since(late), late.since(late)), (7, 0, 0));
        assert_eq!(ClusterTime(u64::MAX).after(1), ClusterTime(u64::MAX));
    }

    #[test]
    fn bounds_are_named_in_the_plural() {
        let names = [Bound::WaitersPerKey, Bound::Keys, Bound::Nonces].map(Bound::name);
        assert_eq!(names, ["waiters per key", "keys held", "nonces remembered"]);
    }
}
