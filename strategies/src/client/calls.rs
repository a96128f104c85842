//! The calls of users, and what the core returns to its driver.
//!
//! `id` and `caller` name a call, whose reply goes to it. `key` and `nonce` name an acquisition.
#![allow(missing_docs, reason = "what recurs is said above")]

use std::{sync::Arc, time::Duration};

use super::{backend::Cause, core::Delivery};
use crate::{
    clock::Instant,
    error::Error,
    lock::{Inspection, Lock, Nonce, Owner},
};

/// Names one call of this process, so that its reply finds it. Later calls have greater ids.
pub type CallId = u64;

/// Names a pending request. Where several are sent at a time, unlocks come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestId {
    /// The UNLOCK of an acquisition.
    Unlock(Nonce),
    /// An EXTEND, an INSPECT or a scan.
    Query(CallId),
    /// The LOCK of an acquisition.
    Lock(Nonce),
    /// A check of a waiter.
    WaiterCheck(Nonce),
    /// A check of a held lock.
    HeldCheck(Nonce),
}

/// A call of a user.
#[derive(Debug)]
pub enum Call {
    /// Requests a lock.
    Lock(LockCall),
    /// The future of a call was dropped: its request is withdrawn, and its grant released.
    Withdraw(RequestId),
    /// Frees an acquisition. The request is repeated until a reply comes, or until `until`.
    Unlock {
        /// The caller that waits for the reply, and when it stops waiting; `None` for a dropped
        /// guard.
        caller: Option<(CallId, Instant)>,
        lock: Lock,
        /// When the lease is over.
        until: Instant,
        /// A force-unlock: the process and the reason.
        forced: Option<Arc<str>>,
    },
    /// Ends at `limit`, with a reply or without.
    Query { id: CallId, limit: Instant, query: Query },
    /// A watch of this lock may have begun after its loss, which must be reported.
    Check { lock: Lock },
    /// Withdraws the LOCKs of keys that begin with `prefix`, for `unlock_all`.
    EndWaits { prefix: Arc<str> },
    /// Withdraws every wait, unlocks the locks whose guards exist, and ends within the request
    /// timeout.
    Close { watched: Vec<Lock> },
}

/// The LOCK of a call.
#[derive(Clone, Debug)]
pub struct LockCall {
    pub id: CallId,
    pub key: Arc<str>,
    pub nonce: Nonce,
    /// The length of the lease.
    pub lease: Duration,
    /// How long the granting side may let it wait.
    pub until: Until,
    /// When the call ends, granted or not.
    pub limit: Option<Instant>,
    /// The caller does not wait: silence means [`Error::Unknown`], not [`Error::TimedOut`].
    pub tries: bool,
    /// The process that an inspection shows.
    pub owner: Arc<Owner>,
    /// Why an earlier grant of this call, or of another call for the key, was withdrawn.
    pub unsafe_grant: Option<Cause>,
}

/// A request that is withdrawn with its caller, and leaves nothing behind.
#[derive(Debug)]
pub enum Query {
    /// Extends a lease, which lasts for `lease` from the extension on.
    Extend { lock: Lock, lease: Duration },
    /// Asks for the holder of a key.
    Inspect { key: Arc<str> },
    /// Asks for held keys that begin with `prefix`.
    Scan {
        /// The end of the previous part: a key or a cursor.
        after: Option<Arc<str>>,
        prefix: Arc<str>,
        /// About how many keys the reply has.
        limit: usize,
    },
}

/// How long a LOCK waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Does not wait.
    Now,
    /// Waits until this time.
    At(Instant),
    /// Waits indefinitely.
    Forever,
}

/// The reply to a call.
#[derive(Debug)]
pub enum Reply {
    /// The lock was granted, with its local deadline. The caller takes it by the delivery.
    Granted { lock: Lock, delivery: Delivery },
    /// Another acquisition holds the key, and this one is not queued.
    Held,
    /// The acquisition ended on the granting side before this process learned of its grant.
    Ended,
    /// A grant was withdrawn: the granting side is not safe enough.
    Unsafe(Cause),
    /// The lock was unlocked.
    Unlocked,
    /// An extension took effect.
    Extended {
        /// When its request was sent.
        sent: Instant,
        /// Revoked by a loss of the lock before the reply is read.
        delivery: Delivery,
    },
    /// An unlock or extend found that the acquisition does not hold the key.
    NotHeld,
    /// The holder of a key. An error: the stored value of the key is not a lock.
    Inspected(Result<Option<Inspection>, Error>),
    /// Some held keys, and the position at which to continue, if there may be more.
    Scanned { keys: Vec<Arc<str>>, next: Option<Arc<str>> },
    /// The call ends with this error.
    Failed(Error),
}

/// An output of the core to its driver.
#[derive(Debug)]
pub enum Output {
    /// Completes a caller.
    Reply { id: CallId, reply: Reply },
    /// An acquisition of this process can no longer be relied on.
    Lost {
        /// The lock. Without a deadline, or past it, the lease has expired.
        lock: Lock,
        /// An operator or another process unlocked it: the process and the reason, if known.
        forced: Option<Arc<str>>,
    },
    /// An extension of this lock has failed so far.
    Unextended { lock: Lock, cause: Cause },
    /// An acquisition was unlocked by this process.
    Released {
        lock: Lock,
        /// The UNLOCK of a dropped guard found that the lock was lost.
        is_loss: bool,
    },
}
