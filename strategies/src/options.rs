//! The options of a lock request, and the checks of keys and requests.

use std::{fmt::Display, time::Duration};

use humantime::format_duration;

use crate::{
    defaults,
    error::Error,
    limits::{DURATION_MAX, DURATION_MIN, KEY_BYTES_MAX, LABEL_BYTES_MAX, MAX_WAIT_MAX},
    lock::Nonce,
};

/// The lease, wait and label of a lock request.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use gaggle_strategies::LockOptions;
///
/// let options = LockOptions::default() // 10 s and 5 s
///     .duration(Duration::from_secs(30))
///     .max_wait(Duration::from_millis(500));
/// assert_eq!(options.get_duration(), Duration::from_secs(30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOptions {
    duration: Duration,
    max_wait: MaxWait,
    label: Option<String>,
    nonce: Option<Nonce>,
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            duration: defaults::LEASE,
            max_wait: MaxWait::AtMost(defaults::MAX_WAIT),
            label: None,
            nonce: None,
        }
    }
}

impl LockOptions {
    /// Sets the lease: 3 ms to 24 h, 10 s by default. A fraction of a millisecond is cut off.
    ///
    /// The holder's local deadline is earlier, by 1 % of wait and lease and by 1 ms. A lease below
    /// 3 ms is refused, because a lock with less than half of its lease left is not returned.
    #[doc(alias = "ttl")]
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Sets how long to wait: 0 to 24 h or [`MaxWait::Forever`], 5 s by default.
    #[doc(alias = "timeout")]
    #[must_use]
    pub fn max_wait(mut self, max_wait: impl Into<MaxWait>) -> Self {
        self.max_wait = max_wait.into();
        self
    }

    /// Sets the owner's label, which an inspection shows with host and process id: at most 256
    /// bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the nonce of the acquisition: for a server whose clients name their acquisitions, and
    /// may come to another process with the same name. Use [`Nonce::given`].
    ///
    /// A repeated call with the nonce keeps the position in the queue, also in another process, which
    /// then gets the grant, or returns the lock that the nonce holds. If the connection to a Redis
    /// breaks during the call, the other process may stay the waiter: if it is dead, the call queues
    /// again. The call makes one acquisition: where others retry under a fresh nonce, it ends as
    /// [`Error::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws nothing: the wait ends with its `max_wait`, and a lock with its
    /// lease. [`KeyedMutex::unlock`](crate::KeyedMutex::unlock) withdraws it.
    #[doc(hidden)]
    #[must_use]
    pub fn nonce(mut self, nonce: Nonce) -> Self {
        self.nonce = Some(Nonce::given(nonce.as_u128()));
        self
    }

    /// The nonce that the caller gave.
    #[doc(hidden)]
    #[must_use]
    pub fn get_nonce(&self) -> Option<Nonce> {
        self.nonce
    }

    /// The requested lease.
    #[must_use]
    pub fn get_duration(&self) -> Duration {
        self.duration
    }

    /// How long the caller waits.
    #[must_use]
    pub fn get_max_wait(&self) -> MaxWait {
        self.max_wait
    }

    /// The owner's label.
    #[must_use]
    pub fn get_label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    fn check(&self) -> Result<(), Error> {
        check_duration(self.duration)?;
        if let MaxWait::AtMost(wait) = self.max_wait {
            check_span("max_wait", wait, Duration::ZERO, MAX_WAIT_MAX)?;
        }
        check_text("label", self.label.as_deref().unwrap_or_default())
    }
}

/// How long `lock` waits for a key that another acquisition holds.
///
/// ```
/// use gaggle_strategies::{LockOptions, MaxWait};
///
/// let options = LockOptions::default().max_wait(MaxWait::Forever);
/// assert_eq!(options.get_max_wait(), MaxWait::Forever);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxWait {
    /// Waits at most this long, 0 to 24 h; zero is one attempt.
    AtMost(Duration),
    /// Waits until the key is granted or the strategy closed. A refusal or a limit ends the call as
    /// well. An outage is logged and does not end it, even if only an operator can end the outage.
    Forever,
}

impl From<Duration> for MaxWait {
    fn from(wait: Duration) -> Self {
        Self::AtMost(wait)
    }
}

/// Checks a key, before any I/O.
///
/// # Errors
///
/// [`Error::InvalidKey`].
pub fn check_key(key: &str) -> Result<(), Error> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(Error::InvalidKey { bytes: key.len(), limit: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Checks a lease, before any I/O.
///
/// # Errors
///
/// [`Error::InvalidOptions`] naming `duration`.
pub fn check_duration(duration: Duration) -> Result<(), Error> {
    check_span("duration", duration, DURATION_MIN, DURATION_MAX)
}

/// Checks that a duration is of `min` to `max`.
pub(crate) fn check_span(
    field: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let value = format_duration(value).to_string();
    let limit = format!("{} to {}", format_duration(min), format_duration(max));
    Err(Error::InvalidOptions { field, value, limit })
}

/// Checks an option: the error shows its value and limit.
pub(crate) fn check_option(
    field: &'static str,
    holds: bool,
    value: impl Display,
    limit: impl Display,
) -> Result<(), Error> {
    let error =
        || Error::InvalidOptions { field, value: value.to_string(), limit: limit.to_string() };
    if holds { Ok(()) } else { Err(error()) }
}

/// Checks a human-readable text: a label, or a reason.
pub(crate) fn check_text(field: &'static str, text: &str) -> Result<(), Error> {
    let (bytes, most) = (text.len(), LABEL_BYTES_MAX);
    let (value, limit) = (format_args!("{bytes} bytes"), format_args!("0 to {most} bytes"));
    check_option(field, bytes <= most, value, limit)
}

/// The check that every strategy makes of a lock request, before any I/O.
///
/// # Errors
///
/// [`Error::InvalidKey`] or [`Error::InvalidOptions`] naming the field.
pub fn check_request(key: &str, options: &LockOptions) -> Result<(), Error> {
    check_key(key)?;
    options.check()
}
