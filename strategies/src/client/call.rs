//! The calls that the core takes, and its replies.

use std::{sync::Arc, time::Duration};

use super::{cause::Cause, held::Delivery};
use crate::{Error, Inspection, Instant, Lock, Nonce, Owner};

/// Names one call of this process, so that its reply finds it. Later calls have greater ids.
pub type CallId = u64;

/// A call of a user.
#[derive(Debug)]
pub(crate) enum Call {
    Lock(LockCall),
    /// The future of a lock was dropped: its request is withdrawn, or its grant released.
    Withdraw {
        nonce: Nonce,
    },
    /// Frees an acquisition. Repeated until a reply comes, or until `until`.
    Unlock {
        /// The caller that waits for the reply, and when it stops waiting; `None` for a dropped
        /// guard.
        caller: Option<(CallId, Instant)>,
        lock: Lock,
        until: Instant,
        /// A force-unlock: the process and the reason.
        forced: Option<Arc<str>>,
    },
    /// Ends at `limit`, with a reply or without.
    Query {
        id: CallId,
        limit: Instant,
        query: Query,
    },
    /// A watch of this lock may have begun after its loss, which must be reported.
    Check {
        lock: Lock,
    },
    /// The future of an unlock, an extend or an inspection was dropped.
    Abandon {
        id: CallId,
    },
    /// Withdraws every wait, unlocks these locks, and ends within the request timeout.
    Close {
        watched: Vec<Lock>,
    },
}

/// The LOCK of a call.
#[derive(Clone, Debug)]
pub(crate) struct LockCall {
    pub(crate) id: CallId,
    pub(crate) key: Arc<str>,
    pub(crate) nonce: Nonce,
    pub(crate) lease: Duration,
    /// How long the granting side may let it wait.
    pub(crate) until: Until,
    /// When the call ends, granted or not.
    pub(crate) limit: Option<Instant>,
    /// The caller does not wait: silence means [`Error::Unknown`], not [`Error::TimedOut`].
    pub(crate) tries: bool,
    pub(crate) owner: Arc<Owner>,
    /// Why a grant of an earlier nonce of this call was taken back.
    pub(crate) taken_back: Option<Cause>,
}

/// A request that is abandoned with its caller.
#[derive(Debug)]
pub(crate) enum Query {
    Extend {
        lock: Lock,
        lease: Duration,
    },
    Inspect {
        key: Arc<str>,
    },
    /// Held keys that begin with `prefix`, behind the key or place `after`.
    Scan {
        after: Option<Arc<str>>,
        prefix: Arc<str>,
        limit: usize,
    },
}

/// How long a LOCK waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Not at all.
    Now,
    /// Until this time of the local clock.
    At(Instant),
    /// Without a limit.
    Forever,
}

/// The reply to a call.
#[derive(Debug)]
pub(crate) enum Reply {
    Granted {
        lock: Lock,
        delivery: Delivery,
    },
    /// Another acquisition holds the key, and this one is not queued.
    Held,
    /// The acquisition ended on the granting side before this process learned of its grant.
    Ended,
    /// A grant was taken back: the granting side is not safe enough.
    TakenBack(Cause),
    Unlocked,
    /// The extension that was sent at `sent` took effect.
    Extended {
        sent: Instant,
        delivery: Delivery,
    },
    /// An unlock or extend found that the acquisition does not hold the key.
    NotHeld,
    /// An error: the stored value of the key is no lock.
    Inspected(Result<Option<Inspection>, Error>),
    Scanned {
        keys: Vec<Arc<str>>,
        next: Option<Arc<str>>,
    },
    Failed(Error),
}

/// An output of the core to its driver.
#[derive(Debug)]
pub(crate) enum Output {
    Reply {
        id: CallId,
        reply: Reply,
    },
    /// An acquisition of this process can no longer be relied on.
    Lost {
        lock: Lock,
        /// An operator or another process unlocked it: the process and the reason, if known.
        forced: Option<Arc<str>>,
    },
    /// An extension of this lock has failed so far.
    Unextended {
        lock: Lock,
        cause: Cause,
    },
    /// An acquisition was unlocked by this process.
    Released {
        lock: Lock,
        /// The UNLOCK of a dropped guard found that the lock was lost.
        is_loss: bool,
    },
}
