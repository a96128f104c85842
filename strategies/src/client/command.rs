//! The commands of the core to a backend, and the events of a backend.

use std::{sync::Arc, time::Duration};

use super::call::{CallId, Until};
pub use super::cause::Cause;
use crate::{Capabilities, Drift, Inspection, Instant, Nonce, Owner};

/// A request to the granting side. `copies`: an earlier copy of this acquisition's LOCK may still
/// arrive there.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields of all commands mean the same")]
pub enum Command {
    /// Locks the key for the nonce, or queues it.
    Lock {
        nonce: Nonce,
        key: Arc<str>,
        lease: Duration,
        until: Until,
        owner: Arc<Owner>,
        copies: bool,
    },
    /// Frees what the nonce holds, or withdraws what it waits for.
    Unlock {
        nonce: Nonce,
        key: Arc<str>,
        copies: bool,
        /// A force-unlock: the token that it ends, the process and the reason.
        forced: Option<(u64, Arc<str>)>,
    },
    /// Lets the lease of a holder count from now on. The reply is `Extended`.
    Extend { id: CallId, nonce: Nonce, key: Arc<str>, token: u64, lease: Duration },
    /// Checks a waiter: the reply is `Granted`, `Queued`, `Ended` or `Forgotten`. With a token in
    /// `holds`, checks that the acquisition still holds the key: the reply is `Lost`, or none.
    Check { nonce: Nonce, key: Arc<str>, holds: Option<u64> },
    /// Asks for the holder of a key. The reply is `Inspected`.
    Inspect { id: CallId, key: Arc<str> },
    /// The reply is `Scanned`.
    Scan { id: CallId, after: Option<Arc<str>>, prefix: Arc<str>, limit: usize },
}

impl Command {
    /// The key that it is about; `None` for a scan.
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

    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Lock { nonce, .. } => Subject::Lock(*nonce),
            Self::Unlock { nonce, .. } => Subject::Unlock(*nonce),
            Self::Extend { id, .. } | Self::Inspect { id, .. } | Self::Scan { id, .. } => {
                Subject::Query(*id)
            }
            Self::Check { nonce, .. } => Subject::Check(*nonce),
        }
    }
}

/// Whether a command that was submitted may reach the granting side more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Once at most.
    One,
    /// The way there may repeat it.
    Many,
}

/// An event of the granting side, in the order in which they happened there.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are those of the commands")]
pub enum Event {
    /// The nonce holds the key.
    Granted {
        nonce: Nonce,
        key: Arc<str>,
        token: u64,
        /// From the request to the grant, by the granting side's clock (contract, rule 2).
        waited: Duration,
        /// From the grant on; or its rest at a repeated request.
        lease: Duration,
    },
    /// The nonce waits. With `check_in`, it asks for a `Check` after that time.
    Queued { nonce: Nonce, check_in: Option<Duration> },
    /// Refused: another acquisition holds the key.
    Held { nonce: Nonce },
    /// The nonce has ended: it was granted and its lease is over, or it was unlocked.
    Ended { nonce: Nonce },
    /// The LOCK may be older than the memory of nonces: it is sent again with a newer time.
    Stale { nonce: Nonce },
    /// A waiter is unknown there: it has to be queued again.
    Forgotten { nonce: Nonce },
    /// The reply to an UNLOCK; `held`: it freed the key.
    Unlocked { nonce: Nonce, held: bool },
    /// The reply to an EXTEND: the token, if the nonce holds the key.
    Extended { id: CallId, nonce: Nonce, token: Option<u64> },
    /// The reply to an INSPECT.
    Inspected {
        id: CallId,
        /// An error: the stored value of the key is no lock.
        found: Result<Option<Inspection>, Cause>,
    },
    /// Some held keys, and where to continue if there may be more.
    Scanned { id: CallId, keys: Vec<Arc<str>>, next: Option<Arc<str>> },
    /// It holds the key, and is not granted before the granting side is safe enough: `cause` says
    /// which condition is missing, for a call that ends before.
    Unconfirmed { nonce: Nonce, cause: Cause },
    /// Too few replicas have the grant that follows: it is withdrawn.
    Unsafe { nonce: Nonce, cause: Cause },
    /// A bound of the granting side is reached.
    Limit { nonce: Nonce, what: &'static str, limit: u64 },
    /// A request failed; `fate` says how far it got.
    Failed { of: Subject, fate: Fate, cause: Cause },
    /// A `Check` of a hold has no reply, or was refused: all holds are checked again.
    Unchecked { cause: Cause },
    /// The granting side ended this acquisition although this process did not unlock it.
    Lost {
        nonce: Nonce,
        key: Arc<str>,
        token: u64,
        /// An operator did: the process and the reason.
        forced: Option<Arc<str>>,
    },
    /// Nothing can be sent until [`Event::Up`]. With a cause, calls that do not wait fail with it.
    Down { cause: Option<Cause> },
    /// As [`Event::Down`], but [`Event::Up`] may follow soon: no call fails until its time is over.
    Reconnecting { cause: Cause },
    /// Commands can be sent.
    Up { memory: Memory },
}

/// The request that an event is about. Unlocks come first, as they do where several are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An UNLOCK of this nonce.
    Unlock(Nonce),
    /// An EXTEND, INSPECT or scan.
    Query(CallId),
    /// A LOCK of this nonce.
    Lock(Nonce),
    /// A `Check` of a waiter: repeated with the next one.
    Check(Nonce),
}

/// The fate of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never left this process.
    Unsent,
    /// It was sent, and may have taken effect.
    NoReply,
    /// The granting side refused it: it had no effect.
    Refused,
}

/// How much a granting side may have forgotten while it was unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Nothing, but replies may be lost in transit.
    Kept,
    /// Replies and events may be lost in transit, and it may have forgotten locks.
    Events,
    /// All: it is another granting side.
    Lost,
}

/// Whether the granting side can be reached.
#[derive(Debug)]
pub(super) enum Link {
    Up,
    Down(Option<Cause>),
}

/// The constant properties of a backend.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// The guarantees of the strategy.
    pub capabilities: Capabilities,
    /// Whether waiters queue on the granting side; if not, a refused call retries.
    pub queues: bool,
    /// The range of the random pause between a refusal and the next attempt.
    pub retry: (Duration, Duration),
    /// The pause before a pending request is sent again, and its limit: it doubles each time.
    /// `None` where the way there loses nothing without a [`Event::Failed`] or [`Event::Up`].
    pub resend: Option<(Duration, Duration)>,
    /// The longest lease, [`DURATION_MAX`](crate::DURATION_MAX) at most.
    pub lease_max: Duration,
    /// How long `unlock`, `extend`, `inspect` and a LOCK that does not wait may take.
    pub request_timeout: Duration,
    /// How many requests may be pending.
    pub requests_max: usize,
    /// The bound on the difference of clock rates.
    pub drift: Drift,
    /// For how long the driver polls before it sleeps.
    pub busy_poll: Duration,
}

/// When the next turn has to come, if at all.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
