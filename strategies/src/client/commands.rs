//! The commands of the core to its backend, and the events of the granting side.
//!
//! `key` and `nonce` name an acquisition, `token` is its fencing token. `id` names the call that a
//! query is for. `copies`: an earlier copy of the acquisition's LOCK may still arrive at the
//! granting side.
#![allow(missing_docs, reason = "what recurs is said above")]

use std::{sync::Arc, time::Duration};

use super::{
    backend::Cause,
    calls::{CallId, RequestId, Until},
};
use crate::lock::{Inspection, Nonce, Owner};

/// A request to the granting side.
#[derive(Clone, Debug)]
pub enum Command {
    /// Requests a lock. The reply is `Granted`, `Queued`, `Held`, `Ended`, `Stale` or `Limit`.
    Lock {
        /// A nonce is granted once at most.
        nonce: Nonce,
        key: Arc<str>,
        /// The length of the lease.
        lease: Duration,
        /// How long it waits in the queue.
        until: Until,
        /// The process that an inspection shows.
        owner: Arc<Owner>,
        copies: bool,
    },
    /// Frees what the nonce holds, or withdraws what it waits for. The reply is `Unlocked`.
    Unlock {
        nonce: Nonce,
        key: Arc<str>,
        /// The token of the lock that it ends; 0 for a withdrawal.
        token: u64,
        copies: bool,
        /// Set for a force-unlock, which frees only a grant with `token`: the process and reason.
        forced: Option<Arc<str>>,
    },
    /// Extends a lease, which lasts for `lease` from the extension on. The reply is `Extended`.
    Extend { id: CallId, nonce: Nonce, key: Arc<str>, token: u64, lease: Duration },
    /// Checks an acquisition: without a token a waiter, to which the reply is `Granted`, `Queued`,
    /// `Ended` or `Forgotten`; with a token a held lock, to which the reply is `Lost`, or none.
    Check { nonce: Nonce, key: Arc<str>, token: Option<u64> },
    /// Asks for the holder of a key. The reply is `Inspected`.
    Inspect { id: CallId, key: Arc<str> },
    /// Asks for held keys that begin with `prefix`. The reply is `Scanned`.
    Scan {
        id: CallId,
        /// The end of the previous part.
        after: Option<Arc<str>>,
        prefix: Arc<str>,
        /// About how many keys the reply has.
        limit: usize,
    },
}

impl Command {
    /// The key that it is about; `None` for a scan.
    #[must_use]
    pub fn key(&self) -> Option<&Arc<str>> {
        match self {
            Self::Lock { key, .. }
            | Self::Unlock { key, .. }
            | Self::Extend { key, .. }
            | Self::Check { key, .. }
            | Self::Inspect { key, .. } => Some(key),
            Self::Scan { .. } => None,
        }
    }

    /// The request that an [`Event::Failed`] of this command names.
    #[must_use]
    pub fn request_id(&self) -> RequestId {
        match self {
            Self::Lock { nonce, .. } => RequestId::Lock(*nonce),
            Self::Unlock { nonce, .. } => RequestId::Unlock(*nonce),
            Self::Extend { id, .. } | Self::Inspect { id, .. } | Self::Scan { id, .. } => {
                RequestId::Query(*id)
            }
            Self::Check { nonce, token: None, .. } => RequestId::WaiterCheck(*nonce),
            Self::Check { nonce, token: Some(_), .. } => RequestId::HeldCheck(*nonce),
        }
    }
}

/// Whether a command that was submitted may reach the granting side more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// At most one copy arrives.
    One,
    /// The channel may repeat it.
    Many,
}

/// An event of the granting side. [`Backend`](super::backend::Backend) has the rules of their
/// order.
#[derive(Clone, Debug)]
pub enum Event {
    /// The acquisition holds the key.
    Granted {
        nonce: Nonce,
        key: Arc<str>,
        token: u64,
        /// The time from the request to the grant, by the granting side's clock (contract, rule 2).
        waited: Duration,
        /// The lease from the grant on, or its rest at a repeated request.
        lease: Duration,
    },
    /// The acquisition waits in the queue.
    Queued {
        nonce: Nonce,
        /// How long the lease of the present holder still lasts unless it is extended, if known.
        holder_lease: Option<Duration>,
    },
    /// Sets the shortest time between two checks of a waiter. The check at the end of the holder's
    /// lease may come earlier.
    MinCheckInterval(Duration),
    /// Refused: another acquisition holds the key.
    Held { nonce: Nonce },
    /// The nonce has ended: it was granted and its lease is over, or it was unlocked.
    Ended { nonce: Nonce },
    /// The LOCK may be older than the memory of nonces: it is sent again with a newer time.
    Stale { nonce: Nonce },
    /// A waiter is unknown there: it has to be queued again.
    Forgotten { nonce: Nonce },
    /// The reply to an UNLOCK: whether it freed the lock with this token.
    Unlocked { nonce: Nonce, held: bool },
    /// The reply to an EXTEND, with the token if the nonce holds the key.
    Extended { id: CallId, nonce: Nonce, token: Option<u64> },
    /// The reply to an INSPECT. An error: the stored value of the key is not a lock.
    Inspected { id: CallId, found: Result<Option<Inspection>, Cause> },
    /// The reply to a scan: some held keys, and the position at which to continue, if there may be
    /// more.
    Scanned { id: CallId, keys: Vec<Arc<str>>, next: Option<Arc<str>> },
    /// The acquisition holds the key, and is not granted before the granting side is safe enough.
    Unconfirmed {
        nonce: Nonce,
        /// Which condition is missing, for a call that ends before.
        cause: Cause,
    },
    /// Too few replicas have the grant that follows: it is withdrawn.
    Unsafe { nonce: Nonce, cause: Cause },
    /// A bound of the granting side, of this name, is reached.
    Limit { nonce: Nonce, what: &'static str, limit: u64 },
    /// A request failed.
    Failed {
        request: RequestId,
        /// How far it got.
        fate: Fate,
        cause: Cause,
    },
    /// The granting side ended this acquisition although this process did not unlock it.
    Lost {
        nonce: Nonce,
        key: Arc<str>,
        token: u64,
        /// An operator did: the process and the reason.
        forced: Option<Arc<str>>,
    },
    /// Nothing can be sent until [`Event::Up`].
    Down {
        /// The cause with which calls that do not wait fail; `None` fails none.
        cause: Option<Cause>,
    },
    /// Nothing can be sent, as after [`Event::Down`], but [`Event::Up`] may follow soon: no call
    /// fails before its limit.
    Reconnecting { cause: Cause },
    /// Commands can be sent.
    Up {
        /// What the granting side may have forgotten.
        state: ServerState,
    },
}

/// The fate of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The request never left this process.
    Unsent,
    /// The request was sent, and may have taken effect.
    NoReply,
    /// The granting side refused the request, which had no effect.
    Refused,
}

/// How much a granting side may have forgotten while it was unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// The granting side has forgotten nothing, but replies may be lost in transit.
    Same,
    /// Replies and events may be lost in transit, and locks may be forgotten: all are checked.
    MissedEvents,
    /// The granting side is another one, which knows nothing of the earlier one's locks.
    Replaced,
}
