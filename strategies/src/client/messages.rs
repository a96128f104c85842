//! The messages of the core: calls and replies with its callers, commands and events with its
//! backend.

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
        /// The lock to free.
        lock: Lock,
        /// When the lease is over.
        until: Instant,
        /// A force-unlock: the process and the reason.
        forced: Option<Arc<str>>,
    },
    /// Ends at `limit`, with a reply or without.
    Query {
        /// The caller.
        id: CallId,
        /// When the caller stops waiting.
        limit: Instant,
        /// The query.
        query: Query,
    },
    /// A watch of this lock may have begun after its loss, which must be reported.
    Check {
        /// The watched lock.
        lock: Lock,
    },
    /// Withdraws every wait, unlocks these locks, and ends within the request timeout.
    Close {
        /// The locks whose guards exist.
        watched: Vec<Lock>,
    },
}

/// The LOCK of a call.
#[derive(Clone, Debug)]
pub struct LockCall {
    /// The caller.
    pub id: CallId,
    /// The key to lock.
    pub key: Arc<str>,
    /// Names the acquisition.
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
    /// Extends a lease.
    Extend {
        /// The lock to extend.
        lock: Lock,
        /// The lease from the extension on.
        lease: Duration,
    },
    /// Asks for the holder of a key.
    Inspect {
        /// The key.
        key: Arc<str>,
    },
    /// Asks for held keys that begin with `prefix`.
    Scan {
        /// The end of the previous part: a key or a cursor.
        after: Option<Arc<str>>,
        /// What the keys begin with.
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
    /// The lock was granted.
    Granted {
        /// The lock, with its local deadline.
        lock: Lock,
        /// The handle by which the caller takes the lock.
        delivery: Delivery,
    },
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
    /// A part of a scan.
    Scanned {
        /// Some held keys.
        keys: Vec<Arc<str>>,
        /// The position at which to continue, if there may be more.
        next: Option<Arc<str>>,
    },
    /// The call ends with this error.
    Failed(Error),
}

/// An output of the core to its driver.
#[derive(Debug)]
pub enum Output {
    /// Completes a caller.
    Reply {
        /// The caller.
        id: CallId,
        /// The reply to the call.
        reply: Reply,
    },
    /// An acquisition of this process can no longer be relied on.
    Lost {
        /// The lock. Without a deadline, or past it, the lease has expired.
        lock: Lock,
        /// An operator or another process unlocked it: the process and the reason, if known.
        forced: Option<Arc<str>>,
    },
    /// An extension of this lock has failed so far.
    Unextended {
        /// The lock.
        lock: Lock,
        /// Why it failed.
        cause: Cause,
    },
    /// An acquisition was unlocked by this process.
    Released {
        /// The lock.
        lock: Lock,
        /// The UNLOCK of a dropped guard found that the lock was lost.
        is_loss: bool,
    },
}

/// A request to the granting side. `copies`: an earlier copy of this acquisition's LOCK may still
/// arrive there.
#[derive(Clone, Debug)]
pub enum Command {
    /// Requests a lock. The reply is `Granted`, `Queued`, `Held`, `Ended`, `Stale` or `Limit`.
    Lock {
        /// Names the acquisition. A nonce is granted once at most.
        nonce: Nonce,
        /// The key to lock.
        key: Arc<str>,
        /// The length of the lease.
        lease: Duration,
        /// How long it waits in the queue.
        until: Until,
        /// The process that an inspection shows.
        owner: Arc<Owner>,
        /// Whether an earlier copy may still arrive.
        copies: bool,
    },
    /// Frees what the nonce holds, or withdraws what it waits for. The reply is `Unlocked`.
    Unlock {
        /// Names the acquisition.
        nonce: Nonce,
        /// The key that it holds or waits for.
        key: Arc<str>,
        /// Whether a copy of its LOCK may still arrive.
        copies: bool,
        /// A force-unlock: the token that it ends, the process and the reason.
        forced: Option<(u64, Arc<str>)>,
    },
    /// Extends a lease. The reply is `Extended`.
    Extend {
        /// The caller.
        id: CallId,
        /// Names the acquisition.
        nonce: Nonce,
        /// The key that it holds.
        key: Arc<str>,
        /// The fencing token.
        token: u64,
        /// The lease from the extension on.
        lease: Duration,
    },
    /// Checks an acquisition: without a token a waiter, to which the reply is `Granted`, `Queued`,
    /// `Ended` or `Forgotten`; with a token a held lock, to which the reply is `Lost`, or none.
    Check {
        /// Names the acquisition.
        nonce: Nonce,
        /// The key that it holds or waits for.
        key: Arc<str>,
        /// The fencing token of a held lock.
        token: Option<u64>,
    },
    /// Asks for the holder of a key. The reply is `Inspected`.
    Inspect {
        /// The caller.
        id: CallId,
        /// The key.
        key: Arc<str>,
    },
    /// Asks for held keys. The reply is `Scanned`.
    Scan {
        /// The caller.
        id: CallId,
        /// The end of the previous part.
        after: Option<Arc<str>>,
        /// What the keys begin with.
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
        /// Names the acquisition.
        nonce: Nonce,
        /// The key.
        key: Arc<str>,
        /// The fencing token.
        token: u64,
        /// The time from the request to the grant, by the granting side's clock (contract, rule 2).
        waited: Duration,
        /// The lease from the grant on, or its rest at a repeated request.
        lease: Duration,
    },
    /// The acquisition waits in the queue.
    Queued {
        /// Names the acquisition.
        nonce: Nonce,
        /// How long the lease of the present holder still lasts unless it is extended, if known.
        holder_lease: Option<Duration>,
    },
    /// Refused: another acquisition holds the key.
    Held {
        /// Names the refused acquisition.
        nonce: Nonce,
    },
    /// The nonce has ended: it was granted and its lease is over, or it was unlocked.
    Ended {
        /// Names the acquisition.
        nonce: Nonce,
    },
    /// The LOCK may be older than the memory of nonces: it is sent again with a newer time.
    Stale {
        /// Names the acquisition.
        nonce: Nonce,
    },
    /// A waiter is unknown there: it has to be queued again.
    Forgotten {
        /// Names the acquisition.
        nonce: Nonce,
    },
    /// The reply to an UNLOCK.
    Unlocked {
        /// Names the acquisition.
        nonce: Nonce,
        /// Whether it freed the key.
        held: bool,
    },
    /// The reply to an EXTEND.
    Extended {
        /// The caller.
        id: CallId,
        /// Names the acquisition.
        nonce: Nonce,
        /// The token, if the nonce holds the key.
        token: Option<u64>,
    },
    /// The reply to an INSPECT.
    Inspected {
        /// The caller.
        id: CallId,
        /// The holder. An error: the stored value of the key is not a lock.
        found: Result<Option<Inspection>, Cause>,
    },
    /// The reply to a scan.
    Scanned {
        /// The caller.
        id: CallId,
        /// Some held keys.
        keys: Vec<Arc<str>>,
        /// The position at which to continue, if there may be more.
        next: Option<Arc<str>>,
    },
    /// The acquisition holds the key, and is not granted before the granting side is safe enough.
    Unconfirmed {
        /// Names the acquisition.
        nonce: Nonce,
        /// Which condition is missing, for a call that ends before.
        cause: Cause,
    },
    /// Too few replicas have the grant that follows: it is withdrawn.
    Unsafe {
        /// Names the acquisition.
        nonce: Nonce,
        /// Why it is not safe.
        cause: Cause,
    },
    /// A bound of the granting side is reached.
    Limit {
        /// Names the refused acquisition.
        nonce: Nonce,
        /// The bounded resource.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A request failed.
    Failed {
        /// The request.
        request: RequestId,
        /// How far it got.
        fate: Fate,
        /// Why it failed.
        cause: Cause,
    },
    /// The granting side ended this acquisition although this process did not unlock it.
    Lost {
        /// Names the acquisition.
        nonce: Nonce,
        /// The key.
        key: Arc<str>,
        /// The fencing token.
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
    Reconnecting {
        /// Why the connection was lost.
        cause: Cause,
    },
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
