//! The calls of a lock service: several keys, scopes, waits for a release, and those of operators.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{
    Error, LockOptions, MaxWait,
    error::Contention,
    implement::{check_request, wait_until},
    operator::Operator,
    status::MemberStatus,
};

use super::Locker;
use crate::{Guard, lock_all, scope::Scope};

/// The pauses between two inspections of a key that `wait_for_release` awaits.
const LOOK_LEAST: Duration = Duration::from_millis(1);
const LOOK_MOST: Duration = Duration::from_millis(250);

impl Locker {
    /// Locks all of `keys`, or none, and returns their guards in the order of the keys given.
    ///
    /// The keys are locked one after the other in the order of their bytes, so that two such calls
    /// cannot wait for each other. `max_wait` counts for all of them together. Guards that wait for
    /// the others are extended, so that each has at least half of its lease when this returns. Every
    /// further extension is the caller's.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let options = gaggle::LockOptions::default().max_wait(Duration::from_secs(2));
    /// let accounts = locker.lock_all(["accounts/7", "accounts/3"], options).await?;
    /// assert_eq!(&*accounts[0].key(), "accounts/7");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`KeyedMutex::lock`](crate::KeyedMutex::lock): `TimedOut` and `Held` name the key that was
    /// not locked.
    /// [`Error::InvalidOptions`] naming `keys` if one is given twice. The others are unlocked.
    /// [`Error::NotHolder`] and [`Error::Expired`] if one was lost while the others were awaited.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future unlocks the keys that it has locked, as dropping their guards does.
    pub async fn lock_all<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        options: LockOptions,
    ) -> Result<Vec<Guard>, Error> {
        let keys = keys.into_iter().map(|key| key.as_ref().into()).collect();
        lock_all::lock_all(self, keys, options).await
    }

    /// Unlocks every key of this handle that begins with `prefix`, and ends its waits for such
    /// keys; an empty prefix means all of them. This is the UNLOCK_ALL of JGroups.
    ///
    /// The waits end first, as [`Error::Withdrawn`], so that none of them is granted a key that this
    /// unlocks. The guards are lost. Other lockers over the strategy are affected, too. A lock that
    /// was [transferred](Guard::into_lock) stays.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let guard = locker.lock("orders/42").await?;
    /// locker.unlock_all("orders/").await?;
    /// assert!(!guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::unlock_all`](crate::KeyedMutex::unlock_all).
    pub async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.mutex.unlock_all(prefix).await
    }

    /// Waits until no process holds `key`, for at most `max_wait`, without locking it.
    ///
    /// The key is inspected at the end of the holder's lease, and every 250 ms before. It may be
    /// locked again before this returns.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// locker.lock("migration").await?.unlock().await?;
    /// locker.wait_for_release("migration", Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`] with the holder, [`Error::InvalidOptions`] for a `max_wait` above 24 h,
    /// and those of [`KeyedMutex::inspect`](crate::KeyedMutex::inspect): it may be called again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_for_release(
        &self,
        key: &str,
        max_wait: impl Into<MaxWait>,
    ) -> Result<(), Error> {
        let max_wait = max_wait.into();
        check_request(key, &LockOptions::default().max_wait(max_wait))?;
        let clock = self.mutex.clock();
        let until = wait_until(clock.now(), max_wait);
        while let Some(holder) = self.mutex.inspect(key).await? {
            let now = clock.now();
            if until.is_some_and(|until| until <= now) {
                let (key, holder) = (key.into(), Some(holder.owner));
                return Err(Error::TimedOut(Some(Box::new(Contention { key, max_wait, holder }))));
            }
            let next = now.after(holder.remaining.clamp(LOOK_LEAST, LOOK_MOST));
            clock.sleep_until(until.map_or(next, |until| until.min(next))).await;
        }
        Ok(())
    }

    /// A locker of the keys that begin with `name` and a slash: a lock service with a name. It
    /// gives and takes keys without that prefix, and shares the strategy.
    ///
    /// Its [`close`](Self::close) unlocks the keys of the scope in this process, ends their waits
    /// with [`Error::Closed`], and leaves the strategy open. Another locker over the same strategy
    /// loses its guards for such keys, too, and its waits for them end as [`Error::Withdrawn`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let orders = locker.scope("orders");
    /// let guard = orders.lock("42").await?;
    /// assert!(locker.inspect("orders/42").await?.is_some());
    /// orders.close().await;
    /// assert!(!guard.is_valid() && locker.inspect("orders/42").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn scope(&self, name: &str) -> Self {
        let scope = Self::new(Scope::new(Arc::clone(&self.mutex), name));
        Self { thread: self.thread.clone(), ..scope }
    }

    /// Completes once an embedded member votes in a group that has a leader, so that rolling
    /// restarts can wait for it; at once with other strategies. It is optional: locks wait for a
    /// leader within their `max_wait`.
    ///
    /// # Errors, cancel safety
    ///
    /// As [`KeyedMutex::ready`](crate::KeyedMutex::ready).
    pub async fn ready(&self) -> Result<(), Error> {
        self.mutex.ready().await
    }

    /// The group's status as this process knows it: leader, term, readiness. `None` if the strategy
    /// has no group.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("gaggle+memory://status?name=a&members=a").await?;
    /// locker.ready().await?;
    /// let status = locker.group_status().expect("a member has a group");
    /// assert!(status.ready && status.leads);
    /// locker.close().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn group_status(&self) -> Option<MemberStatus> {
        self.mutex.group_status()
    }

    /// Returns the [`Operator`], which lists held keys and ends the locks of other processes;
    /// `None` if the strategy has none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let locker = gaggle::open("local:").await?;
    /// let _guard = locker.lock("orders/42").await?;
    /// let operator = locker.operator().expect("this strategy has one");
    /// let page = operator.list(gaggle::operator::ListOptions::default()).await?;
    /// assert_eq!(&*page.entries[0].key, "orders/42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn operator(&self) -> Option<&dyn Operator> {
        self.mutex.operator()
    }
}
