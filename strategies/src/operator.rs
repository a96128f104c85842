//! Operations on the locks of other processes: listing and force-unlock.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    error::Error,
    limits::PAGE_MAX,
    lock::{Inspection, Owner},
    options::{check_option, check_text},
};

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
///
/// # For implementors
///
/// Check input with [`ListOptions::check`], [`check_key`] and [`check_reason`] before any I/O.
/// Notify the holder with [`LossRegistry::report`], and log with [`log_forced`].
///
/// [`check_key`]: crate::implement::check_key
/// [`check_reason`]: crate::implement::check_reason
/// [`LossRegistry::report`]: crate::implement::LossRegistry::report
/// [`log_forced`]: crate::implement::log_forced
///
/// ```
/// use std::{collections::BTreeMap, sync::{Arc, Mutex}};
///
/// use gaggle_strategies::{
///     Error, Inspection, Lock,
///     implement::{LossRegistry, check_key, check_reason, forced_note, log_forced},
///     lock::{LossCause, Owner},
///     operator::{Cursor, Entry, ForcedUnlock, ListOptions, Operator, Page},
/// };
///
/// struct Table {
///     rows: Mutex<BTreeMap<Arc<str>, Inspection>>,
///     losses: LossRegistry,
/// }
///
/// #[async_trait::async_trait]
/// impl Operator for Table {
///     async fn list(&self, options: ListOptions) -> Result<Page, Error> {
///         options.check()?;
///         // The text of a cursor of this table is the last key of its page.
///         let after = options.get_after().map_or("", Cursor::as_str);
///         let rows = self.rows.lock().expect("no panic holds it");
///         let listed = rows.iter().filter(|(key, _)| {
///             key.as_ref() > after && key.starts_with(options.get_prefix())
///         });
///         let entry = |(key, holder): (&Arc<str>, &Inspection)| Entry {
///             key: key.clone(),
///             holder: holder.clone(),
///         };
///         let entries: Vec<Entry> = listed.take(options.get_limit()).map(entry).collect();
///         let is_full = entries.len() == options.get_limit();
///         let last = entries.last().filter(|_| is_full);
///         let next = last.map(|last| Cursor::new(last.key.clone()));
///         Ok(Page { entries, unreadable: Vec::new(), next })
///     }
///
///     async fn force_unlock(
///         &self,
///         key: &str,
///         token: Option<u64>,
///         reason: &str,
///     ) -> Result<ForcedUnlock, Error> {
///         check_key(key)?;
///         check_reason(reason)?;
///         let mut rows = self.rows.lock().expect("no panic holds it");
///         let Some(found) = rows.get(key).cloned() else {
///             return Ok(ForcedUnlock::NotHeld);
///         };
///         if token.is_some_and(|token| token != found.fencing_token) {
///             return Ok(ForcedUnlock::OtherToken(found));
///         }
///         rows.remove(key);
///         drop(rows); // the notified holder may call
///         let by = Owner::this_process(None);
///         let note = forced_note(&by, reason);
///         let lost = Lock::new(key, found.nonce, found.fencing_token, None);
///         self.losses.report(&lost, LossCause::Forced, Some(&note));
///         log_forced(key, &found, &by, reason);
///         Ok(ForcedUnlock::Unlocked(found))
///     }
/// }
/// ```
#[async_trait]
pub trait Operator: Send + Sync {
    /// Returns a page of held keys, in no particular order. A page can be short or empty without
    /// being the last: only a page without [`next`](Page::next) is. On `Redis` it may have up to
    /// twice its limit.
    ///
    /// A key that is held from the first page to the last is listed. Each entry is consistent in
    /// itself; a listing is not a snapshot. A member lists its own table, which may be behind the
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
///
/// ```
/// use gaggle_strategies::operator::{Cursor, ListOptions};
///
/// let options = ListOptions::default().prefix("orders/").after(Cursor::new("orders/42"));
/// assert_eq!((options.get_prefix(), options.get_limit()), ("orders/", 100));
/// assert_eq!(options.get_after().map(Cursor::as_str), Some("orders/42"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListOptions {
    prefix: Arc<str>,
    limit: usize,
    after: Option<Cursor>,
}

/// The prefix, the limit and the text of the cursor.
type CheckedOptions = (Arc<str>, usize, Option<Arc<str>>);

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

    /// How many entries a page has, 1 to [`PAGE_MAX`]. A `Redis` scans this many keys of the
    /// database in a step: a small limit needs many steps.
    #[must_use]
    pub fn limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Lists the page that follows the one with this [`next`](Page::next).
    #[must_use]
    pub fn after(self, cursor: Cursor) -> Self {
        Self { after: Some(cursor), ..self }
    }

    /// The text with which listed keys begin; empty for all keys.
    #[must_use]
    pub fn get_prefix(&self) -> &str {
        &self.prefix
    }

    /// How many entries a page has.
    #[must_use]
    pub fn get_limit(&self) -> usize {
        self.limit
    }

    /// The cursor at which the page begins; `None` for the first page.
    #[must_use]
    pub fn get_after(&self) -> Option<&Cursor> {
        self.after.as_ref()
    }

    /// The values of the options, once they are checked.
    pub(crate) fn into_checked(self) -> Result<CheckedOptions, Error> {
        self.check()?;
        Ok((self.prefix, self.limit, self.after.map(|cursor| cursor.0)))
    }

    /// The check that every [`Operator`] makes, before any I/O.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidOptions`] naming `limit`.
    pub fn check(&self) -> Result<(), Error> {
        let (limit, allowed) = (self.limit, 1..=PAGE_MAX);
        check_option("limit", allowed.contains(&limit), limit, format_args!("1 to {PAGE_MAX}"))
    }
}

/// The position at which a page ended. Only the strategy that made the cursor can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(Arc<str>);

impl Cursor {
    /// Creates a cursor. Only strategies call this: users receive cursors.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text from which the strategy made it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The held keys, each once.
    pub entries: Vec<Entry>,
    /// Keys whose stored value is not a lock: another program has written it. Each is logged at
    /// WARN.
    pub unreadable: Vec<Arc<str>>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<Cursor>,
}

/// A key that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The key's holder, lease and waiters.
    pub holder: Inspection,
}

/// The outcome of a force-unlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForcedUnlock {
    /// The force-unlock ended this grant.
    Unlocked(Inspection),
    /// No process held the key. Nothing changed.
    NotHeld,
    /// A grant with another token than the given one holds the key. Nothing changed.
    OtherToken(Inspection),
}

/// Checks the reason of a force-unlock, before any I/O.
///
/// ```
/// use gaggle_strategies::implement::check_reason;
///
/// assert!(check_reason("ticket 7: the job hangs").is_ok());
/// assert!(check_reason(&"x".repeat(257)).is_err());
/// ```
///
/// # Errors
///
/// [`Error::InvalidOptions`] naming `reason`, above 256 bytes.
pub fn check_reason(reason: &str) -> Result<(), Error> {
    check_text("reason", reason)
}

/// The note for the holder whose lock was ended `by` another process, for
/// [`LossRegistry::report`](crate::implement::LossRegistry::report).
#[must_use]
pub fn forced_note(by: &Owner, reason: &str) -> Arc<str> {
    format!("{by}: {reason}").into()
}

/// Logs a force-unlock where it was requested, at WARN. One event has one text.
pub fn log_forced(key: &str, ended: &Inspection, by: &Owner, reason: &str) {
    let (token, holder) = (ended.fencing_token, &ended.owner);
    tracing::warn!(key, token, %holder, %by, reason, "lock force-unlocked");
}
