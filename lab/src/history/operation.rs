//! A recorded call and its outcome.

use std::{fmt, sync::Arc, time::Duration};

use gaggle_strategies::{Error, Lock, clock::Instant, lock::Nonce};

/// A call and how it ended. All times are since one origin, on one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The caller: a task, a thread or a process, which makes one call at a time.
    pub client: u32,
    /// The key.
    pub key: Arc<str>,
    /// The acquisition that the call is about.
    pub nonce: Nonce,
    /// The call.
    pub call: Call,
    /// Before anything was sent.
    pub invoked: Duration,
    /// When it was known that this LOCK has a place in the queue, if it was. Evidence for the
    /// model of a queue; see [`ModelKind::Queued`](super::ModelKind::Queued) for what counts.
    pub queued: Option<Duration>,
    /// When the caller had the reply; `None` if it never came (the process died, or the run
    /// ended).
    pub completed: Option<Duration>,
    /// The reply.
    pub outcome: Outcome,
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Take the key.
    Lock {
        /// The lease asked for.
        duration: Duration,
        /// The longest wait: zero tries once, `None` is unbounded.
        max_wait: Option<Duration>,
    },
    /// Free the key. Also recorded for a guard that was dropped (completed at once, outcome
    /// unknown), for a guard that was lost before its deadline (the same), and for every
    /// guard that a `close` unlocks.
    Unlock,
    /// Make the lease longer.
    Extend {
        /// The lease asked for, from now.
        duration: Duration,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Granted {
        /// The fencing token.
        token: u64,
        /// The holder's local deadline, on the history's clock.
        until: Duration,
    },
    /// The unlock freed the key.
    Done,
    /// The lease is longer.
    Extended {
        /// The holder's new local deadline, on the history's clock.
        until: Duration,
    },
    /// The call was refused.
    Refused(Refusal),
    /// May have taken effect, or may take effect at any time after the invocation, or never. Also a
    /// call that was dropped or never got a reply.
    Unknown,
}

/// Why a call was refused, in the words of the contract; the conclusions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// `max_wait` is over, or the call does not wait and another acquisition held. The key may have
    /// been taken, or may be taken by a late copy, in the caller's name for at most one lease.
    TimedOut,
    /// A lock that ended for another reason, and was withdrawn (`Unavailable`, `Closed`,
    /// `Failed`): as after [`TimedOut`](Self::TimedOut).
    Withdrawn,
    /// At unlock or extend, before the local deadline: the nonce does not hold. No effect.
    NotHolder,
    /// At unlock or extend, from the local deadline on. No effect.
    Expired,
    /// Certainly without effect, and says nothing about the key (invalid input, a limit).
    NoEffect,
}

impl Call {
    /// Whether this asks for the key.
    #[must_use]
    pub const fn is_lock(&self) -> bool {
        matches!(self, Self::Lock { .. })
    }

    /// How this call ended, if it ended by `error`.
    ///
    /// An outcome that the error leaves open stays open: an unlock or extend that ended by
    /// `Unavailable`, `Closed` or `Failed` is [`Outcome::Unknown`], a lock is
    /// [`Refusal::Withdrawn`].
    #[must_use]
    pub fn failed(&self, error: &Error) -> Outcome {
        let refusal = match error {
            Error::TimedOut(_) | Error::Held(_) => Refusal::TimedOut,
            Error::NotHolder => Refusal::NotHolder,
            Error::Expired => Refusal::Expired,
            Error::InvalidKey { .. } | Error::InvalidOptions { .. } | Error::Limit { .. } => {
                Refusal::NoEffect
            }
            Error::Unavailable { .. } | Error::Closed | Error::Failed { .. } if self.is_lock() => {
                Refusal::Withdrawn
            }
            _ => return Outcome::Unknown,
        };
        Outcome::Refused(refusal)
    }

    /// Whether `outcome` can end this call at all.
    pub(super) fn admits(&self, outcome: &Outcome) -> bool {
        matches!(
            (self, outcome),
            (_, Outcome::Unknown | Outcome::Refused(Refusal::NoEffect))
                | (Self::Lock { .. }, Outcome::Granted { .. })
                | (Self::Lock { .. }, Outcome::Refused(Refusal::TimedOut | Refusal::Withdrawn))
                | (Self::Unlock, Outcome::Done)
                | (Self::Extend { .. }, Outcome::Extended { .. })
                | (
                    Self::Unlock | Self::Extend { .. },
                    Outcome::Refused(Refusal::NotHolder | Refusal::Expired),
                )
        )
    }
}

impl Outcome {
    /// A grant as the library returns it, if the strategy's clock is the history's clock: for the
    /// processes of one host with [`BootClock`](gaggle_strategies::clock::BootClock), or in one paused runtime. A lock
    /// without a deadline has no certain hold.
    #[must_use]
    pub fn granted(lock: &Lock) -> Self {
        Self::Granted { token: lock.fencing_token(), until: deadline(lock) }
    }

    /// An extension as the library returns it; the clock as for [`granted`](Self::granted).
    #[must_use]
    pub fn extended(lock: &Lock) -> Self {
        Self::Extended { until: deadline(lock) }
    }
}

fn deadline(lock: &Lock) -> Duration {
    lock.deadline().map_or(Duration::ZERO, Instant::since_origin)
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, key, nonce, call, invoked, queued, completed, outcome } = self;
        write!(f, "client {client} {key:?} {nonce} [{invoked:?}")?;
        if let Some(queued) = queued {
            write!(f, ", queued {queued:?}")?;
        }
        match completed {
            Some(completed) => write!(f, ", {completed:?}] {call}: {outcome}"),
            None => write!(f, ", never] {call}: {outcome}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock { duration, max_wait: None } => write!(f, "lock for {duration:?}"),
            Self::Lock { duration, max_wait: Some(wait) } => {
                write!(f, "lock for {duration:?} within {wait:?}")
            }
            Self::Unlock => f.write_str("unlock"),
            Self::Extend { duration } => write!(f, "extend by {duration:?}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted { token, until } => write!(f, "granted, token {token}, until {until:?}"),
            Self::Done => f.write_str("done"),
            Self::Extended { until } => write!(f, "extended until {until:?}"),
            Self::Refused(refusal) => write!(f, "refused, {refusal}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "timed out",
            Self::Withdrawn => "withdrawn",
            Self::NotHolder => "not the holder",
            Self::Expired => "expired",
            Self::NoEffect => "without effect",
        })
    }
}
