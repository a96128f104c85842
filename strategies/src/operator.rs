//! Operations on the locks of other processes: listing and force-unlock.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Error, Inspection, LABEL_BYTES_MAX, Owner, PAGE_MAX};

const PAGE_DEFAULT: usize = 100;

/// Lists held keys, and ends the lock of another process.
/// [`KeyedMutex::operator`](crate::KeyedMutex::operator) returns it.
///
/// ```
/// use gaggle_strategies::{KeyedMutex, Local, LockOptions, operator::{ForcedUnlock, ListOptions}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_strategies::Error> {
/// let mutex = Local::new();
/// let lock = mutex.lock("orders/42", LockOptions::default()).await?;
/// let operator = mutex.operator().expect("a Local has one");
/// let page = operator.list(ListOptions::default().prefix("orders/")).await?;
/// assert_eq!(page.entries[0].holder.fencing_token, lock.fencing_token());
///
/// let forced = operator.force_unlock("orders/42", None, "ticket 7: the job hangs").await?;
/// assert!(matches!(forced, ForcedUnlock::Unlocked(_)));
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Operator: Send + Sync {
    /// Returns a page of held keys, in no particular order. A page can be short or empty without
    /// being the last: only a page without [`next`](Page::next) is. It may have a few more entries
    /// than its limit.
    ///
    /// A key that is held from the first page to the last is listed. Each entry is consistent in
    /// itself; a listing is no snapshot. A member lists its own table, which may be behind the
    /// leader's.
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::inspect`](crate::KeyedMutex::inspect), and [`Error::InvalidOptions`] for a
    /// limit beyond [`PAGE_MAX`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn list(&self, options: ListOptions) -> Result<Page, Error>;

    /// Ends the grant of `key` and grants the key to the next waiter, as an unlock
    /// by the holder does; with a token, only the grant with that token.
    ///
    /// The holder is notified by its [watch](crate::KeyedMutex::watch). It may write until it sees
    /// that: only a resource that checks fencing tokens refuses this. The event is logged at WARN,
    /// with key, token, holder, this process and `reason` (at most 256 bytes).
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::unlock`](crate::KeyedMutex::unlock), but for the errors of a lock that was
    /// lost, and [`Error::InvalidOptions`] for a long reason. After [`Error::Unknown`] it may have
    /// taken effect; it may be repeated.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not withdraw a request that was sent.
    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error>;
}

/// Which keys a page lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    pub(crate) prefix: Arc<str>,
    pub(crate) limit: usize,
    pub(crate) after: Option<Cursor>,
}

impl Default for ListOptions {
    /// The first page of all keys, of 100 entries.
    fn default() -> Self {
        Self { prefix: "".into(), limit: PAGE_DEFAULT, after: None }
    }
}

impl ListOptions {
    /// Lists only keys that begin with this text.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<Arc<str>>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How many entries a page has, 1 to [`PAGE_MAX`].
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Lists the page that follows the one with this [`next`](Page::next).
    #[must_use]
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if (1..=PAGE_MAX).contains(&self.limit) {
            return Ok(());
        }
        let (value, limit) = (self.limit.to_string(), format!("1 to {PAGE_MAX}"));
        Err(Error::InvalidOptions { field: "limit", value, limit })
    }
}

/// Where a page ended. Only the strategy that made it can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub(crate) Arc<str>);

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The held keys, each once.
    pub entries: Vec<Entry>,
    /// Keys whose stored value is no lock: another program has written it. Each is logged at WARN.
    pub unreadable: Vec<Arc<str>>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
}

/// A key that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// Its holder, lease and waiters.
    pub holder: Inspection,
}

/// The outcome of a force-unlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForcedUnlock {
    /// This grant was ended.
    Unlocked(Inspection),
    /// No process held the key. Nothing changed.
    NotHeld,
    /// A grant with another token than the given one holds the key. Nothing changed.
    OtherToken(Inspection),
}

/// Checks a reason, before any I/O.
pub(crate) fn check_reason(reason: &str) -> Result<(), Error> {
    if reason.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(Error::InvalidOptions {
        field: "reason",
        value: format!("{} bytes", reason.len()),
        limit: format!("0 to {LABEL_BYTES_MAX} bytes"),
    })
}

/// What the holder learns of a force-unlock.
pub(crate) fn note(by: &Owner, reason: &str) -> Arc<str> {
    format!("{by}: {reason}").into()
}

/// Logs a force-unlock where it was requested. One event has one text.
pub(crate) fn log_forced(key: &str, ended: &Inspection, by: &Owner, reason: &str) {
    let (token, holder) = (ended.fencing_token, &ended.owner);
    tracing::warn!(key, token, %holder, %by, reason, "lock force-unlocked");
}
