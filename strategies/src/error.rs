//! The one public error: variants by what a caller can do.

use std::{error::Error as StdError, fmt, sync::Arc};

use humantime::format_duration;

use crate::{lock::Owner, options::MaxWait};

/// Why a call failed.
///
/// Variants are sorted by the caller's next step, not by backend. The text is one sentence with the
/// cause, the address and the remedy as far as they are known. `Debug` prints the same sentence, as
/// a `main` that returns this error does.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// `max_wait` was over while another acquisition held the key, or a grant had less than half of
    /// the lease left and was not extended in time. The second case occurs even on a free key, with
    /// leases that are short for the network.
    ///
    /// *Did it take effect?* No: the caller holds nothing and a withdrawal was sent. Until that
    /// arrives, the key may stay locked for at most one lease. *May I retry?* Yes.
    #[error("{}", timed_out(_0.as_deref()))]
    TimedOut(Option<Box<Contention>>),

    /// Another acquisition holds the key, or waits for it and may be alive; only for calls that do
    /// not wait.
    ///
    /// *Did it take effect?* No. *May I retry?* Yes.
    #[error("{}", held(_0.as_deref()))]
    Held(Option<Box<Contention>>),

    /// At unlock or extend, before the local deadline: this acquisition does not hold the key
    /// (it was unlocked already, or the granting side lost it).
    ///
    /// *Did it take effect?* No, and no other lock was touched. *May I retry?* No: it cannot
    /// succeed.
    #[error("the lock was lost before this call, another acquisition may hold the key")]
    NotHolder,

    /// The lease has expired: at unlock or extend from the local deadline on, or during a critical
    /// section. Another acquisition may have held the key since.
    ///
    /// *Did it take effect?* No. *May I retry?* Only by a new lock.
    #[error("the lease expired before this call, another acquisition may hold the key")]
    Expired,

    /// The backend cannot serve; `kind` says why.
    ///
    /// *Did it take effect?* No, or it was withdrawn; until the withdrawal arrives, the key may
    /// stay locked for at most one lease. An unlock is still sent until the lease ends. *May I
    /// retry?* Yes, later, unless [`is_permanent`](Self::is_permanent).
    #[error("{}", unavailable(*kind, cause.as_deref()))]
    Unavailable {
        /// The reason.
        kind: UnavailableKind,
        /// The error of the backend, if there is one. It is the text, and so not the `source()`.
        cause: Option<Box<dyn StdError + Send + Sync>>,
    },

    /// The request was sent, and its reply did not come by the deadline or was lost with its
    /// connection. An unlock that is sent again may then find nothing.
    ///
    /// *Did it take effect?* Perhaps; a lock was withdrawn, so that it lasts for at most one lease.
    /// *May I retry?* Yes: unlock and extend as they are, a lock as a new acquisition.
    #[error("no reply came; the request may have taken effect: send it again")]
    Unknown,

    /// This handle was closed. *Did it take effect?* No new request did. *May I retry?* On a new
    /// handle.
    #[error("this handle is closed: open a new one")]
    Closed,

    /// This handle has failed permanently. Its consensus member stopped on a broken invariant,
    /// another process runs under its name, or this process is a fork of the opener. *Did it take
    /// effect?* Perhaps; the lease's end frees the key. *May I retry?* On a new handle.
    #[error("this handle has failed: {cause}")]
    Failed {
        /// The cause. It is a part of the text, and so not the `source()`.
        cause: Box<dyn StdError + Send + Sync>,
    },

    /// The call waited for its key when `unlock_all` of its handle ended it.
    ///
    /// *Did it take effect?* No: it was withdrawn, so that the key may stay locked for at most one
    /// lease. *May I retry?* Yes.
    #[error("the wait was ended by unlock_all of this process")]
    Withdrawn,

    /// The strategy does not have this function. *Did it take effect?* No. *May I retry?* No.
    #[error("this strategy does not support {what}")]
    Unsupported {
        /// The function.
        what: &'static str,
    },

    /// The key is empty or too long. Nothing was sent.
    #[error("key is {bytes} bytes long, the limit is 1 to {limit} bytes")]
    InvalidKey {
        /// The key's length in bytes.
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
        /// The allowed values.
        limit: String,
    },

    /// A stated bound is reached: waiters per key, keys, nonces remembered, requests in flight.
    /// *Did it take effect?* No. *May I retry?* Yes, when load has fallen.
    #[error("the limit of {limit} {what} is reached")]
    Limit {
        /// The bounded quantity.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The key that a call did not get, as a `Locker` adds it to [`Error::TimedOut`] and
/// [`Error::Held`]; a strategy leaves it out.
///
/// ```
/// use std::time::Duration;
/// use gaggle_strategies::{Error, MaxWait, error::Contention, lock::Owner};
///
/// let holder = Some(Owner { host: "web-3".into(), pid: 711, label: None });
/// let max_wait = MaxWait::AtMost(Duration::from_secs(5));
/// let contention = Contention { key: "orders/42".into(), max_wait, holder };
/// let error = Error::TimedOut(Some(Box::new(contention)));
/// let text = "timed out after 5s waiting for \"orders/42\", held by web-3, pid 711";
/// assert_eq!(error.to_string(), text);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The key.
    pub key: Arc<str>,
    /// How long the call was to wait.
    pub max_wait: MaxWait,
    /// The holder when the call ended, for diagnostics; `None` if it is not known.
    pub holder: Option<Owner>,
}

/// The text of [`Error::TimedOut`].
fn timed_out(contention: Option<&Contention>) -> String {
    let Some(Contention { key, max_wait, holder }) = contention else {
        return "timed out before the lock was granted".into();
    };
    let after = match max_wait {
        MaxWait::AtMost(wait) => format!(" after {}", format_duration(*wait)),
        MaxWait::Forever => String::new(),
    };
    let held = holder.as_ref().map(|holder| format!(", held by {holder}")).unwrap_or_default();
    format!("timed out{after} waiting for {key:?}{held}")
}

/// The text of [`Error::Held`].
fn held(contention: Option<&Contention>) -> String {
    let Some(Contention { key, holder, .. }) = contention else {
        return "another acquisition holds the key, or waits for it".into();
    };
    match holder {
        Some(holder) => format!("{key:?} is held by {holder}"),
        None => format!("{key:?} is held by another acquisition, or one waits for it"),
    }
}

/// The text of [`Error::Unavailable`]: the cause and its chain of sources.
fn unavailable(kind: UnavailableKind, cause: Option<&(dyn StdError + Send + Sync)>) -> String {
    let Some(cause) = cause else { return format!("the lock service is unavailable ({kind})") };
    let chain = std::iter::successors(Some(cause as &dyn StdError), |&error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Why a backend cannot serve.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnavailableKind {
    /// There is no connection, it broke, or the server is silent. Usually transient.
    Unreachable,
    /// This member knows no leader of its group: a majority is missing, or an election is not over.
    /// Usually transient.
    NoQuorum,
    /// The server replied that it does not serve now: it is loading its data, busy, read-only or
    /// out of memory. Usually transient.
    Refused,
    /// An operator must change something: a wrong password, a missing right, a server that is too
    /// old or not a lock service, no tokio runtime.
    Misconfigured,
}

impl fmt::Display for UnavailableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "unreachable",
            Self::NoQuorum => "no quorum",
            Self::Refused => "refused",
            Self::Misconfigured => "misconfigured",
        })
    }
}

impl Error {
    /// `Unavailable` with its cause.
    ///
    /// ```
    /// use gaggle_strategies::{Error, error::UnavailableKind::Unreachable};
    ///
    /// let error = Error::unavailable(Unreachable, "cannot reach Redis at web-3:6379: refused");
    /// assert_eq!(error.to_string(), "cannot reach Redis at web-3:6379: refused");
    /// ```
    pub fn unavailable(
        kind: UnavailableKind,
        cause: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::Unavailable { kind, cause: Some(cause.into()) }
    }

    /// `Unavailable` where no leader is known.
    #[must_use]
    pub fn no_quorum() -> Self {
        Self::Unavailable { kind: UnavailableKind::NoQuorum, cause: None }
    }

    /// Whether repeating the call fails until something else changes: its arguments, the handle, or
    /// the configuration of the backend.
    ///
    /// ```
    /// use gaggle_strategies::{Error, error::UnavailableKind};
    ///
    /// assert!(Error::Closed.is_permanent());
    /// assert!(!Error::no_quorum().is_permanent());
    /// assert!(Error::unavailable(UnavailableKind::Misconfigured, "no such user").is_permanent());
    /// ```
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::TimedOut(_)
            | Self::Held(_)
            | Self::Unknown
            | Self::Withdrawn
            | Self::Limit { .. } => false,
            Self::Unavailable { kind, .. } => *kind == UnavailableKind::Misconfigured,
            Self::NotHolder
            | Self::Expired
            | Self::Closed
            | Self::Failed { .. }
            | Self::Unsupported { .. }
            | Self::InvalidKey { .. }
            | Self::InvalidOptions { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error::*, UnavailableKind::*};

    /// Contract, *Outcomes*, the column of retries.
    #[test]
    fn outcomes_say_whether_a_retry_can_succeed() {
        let unavailable = |kind| Unavailable { kind, cause: None };
        for passing in [
            TimedOut(None),
            Held(None),
            unavailable(Unreachable),
            unavailable(NoQuorum),
            unavailable(Refused),
            Unknown,
            Withdrawn,
            Limit { what: "keys", limit: 1 },
        ] {
            assert!(!passing.is_permanent(), "{passing:?}");
        }
        for permanent in [
            NotHolder,
            Expired,
            unavailable(Misconfigured),
            InvalidKey { bytes: 0, limit: 1 },
            InvalidOptions { field: "x", value: "1".into(), limit: "0".into() },
            Closed,
            Failed { cause: "x".into() },
            Unsupported { what: "x" },
        ] {
            assert!(permanent.is_permanent(), "{permanent:?}");
        }
    }
}
