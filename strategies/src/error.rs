use std::{error::Error as StdError, time::Duration};

/// Why a call did not do what was asked.
///
/// Variants say what the caller can do, not which backend spoke; the cause is in `source()`.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `max_wait` ran out while somebody else held the key, or less than half of the lease remained when
    /// it was granted and no extension came in time: also on a free key, with leases of a few
    /// milliseconds.
    ///
    /// *Did it take effect?* No: the caller holds nothing and a withdrawal was sent. Until that
    /// lands, the key may be taken in the caller's name for at most one lease. *May I retry?* Yes.
    #[error("timed out before the lock was granted")]
    TimedOut,

    /// Somebody else holds the key; only for calls that do not wait.
    ///
    /// *Did it take effect?* No. *May I retry?* Yes.
    #[error("another acquisition holds the key")]
    Held,

    /// At unlock or extend, before the local deadline: this acquisition does not hold the key
    /// (it was unlocked already, or the granting side lost it).
    ///
    /// *Did it take effect?* No, and nobody else's lock was touched. *May I retry?* No: it cannot succeed.
    #[error("this acquisition does not hold the key")]
    NotHolder,

    /// The lease ran out: at unlock or extend from the local deadline on, or during a critical
    /// section. Another acquisition may have held the key meanwhile.
    ///
    /// *Did it take effect?* No. *May I retry?* Only by a new lock.
    #[error("the lease has expired")]
    Expired,

    /// The backend cannot serve: no quorum, no leader, the server is down or refuses; or auto-extend
    /// was asked for outside a tokio runtime.
    ///
    /// *Did it take effect?* No, or it was withdrawn; until the withdrawal lands, a key may be taken in the
    /// caller's name for at most one lease. *May I retry?* Yes, later, unless the source says what does not
    /// pass by itself (a server that is too old, a right that is missing).
    #[error("the lock service is unavailable")]
    Unavailable {
        /// What the backend said, if it said anything.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },

    /// The request was sent and no answer came by the deadline.
    ///
    /// *Did it take effect?* Perhaps; a lock was withdrawn, so that it lasts for at most one lease.
    /// *May I retry?* Yes: unlock and extend as they are, a lock as a new acquisition.
    #[error("no answer by the deadline, the outcome is unknown")]
    Unknown,

    /// This handle was closed. *Did it take effect?* No new request did. *May I retry?* On a new
    /// handle.
    #[error("this handle is closed")]
    Closed,

    /// This handle has failed for good (its consensus member stopped on a broken invariant or on
    /// an entry of an unknown version). *Did it take effect?* Perhaps; the lease's end frees the
    /// key. *May I retry?* On a new handle.
    #[error("this handle has failed")]
    Failed {
        /// What broke.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The nonce given names an acquisition that has ended: it was unlocked, withdrawn, or its
    /// lease ran out. *Did it take effect?* No. *May I retry?* With a new nonce.
    #[error("this nonce's acquisition has ended")]
    Spent,

    /// The key is empty or too long. Nothing was sent.
    #[error("key is {bytes} bytes long, the limit is 1 to {limit} bytes")]
    InvalidKey {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },

    /// An option is outside its limit. Nothing was sent.
    #[error("invalid {field}: {value}, the limit is {limit}")]
    InvalidOptions {
        /// The option's name.
        field: &'static str,
        /// The value given.
        value: String,
        /// What is allowed.
        limit: String,
    },

    /// A stated bound is reached: waiters per key, keys, nonces remembered, requests in flight,
    /// members of a cluster. *Did it take effect?* No. *May I retry?* Yes, when load has fallen; as a
    /// member of a cluster that is full, not before another has left.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
}

impl Error {
    /// `Unavailable` with its cause.
    pub fn unavailable(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Unavailable { source: Some(source.into()) }
    }

    /// `InvalidOptions` for a duration outside `min..=max`.
    pub(crate) fn duration(
        field: &'static str,
        value: Duration,
        min: Duration,
        max: Duration,
    ) -> Self {
        Self::InvalidOptions {
            field,
            value: format!("{value:?}"),
            limit: format!("{min:?} to {max:?}"),
        }
    }
}
