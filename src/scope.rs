//! A named part of a strategy's keys, which is closed alone.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use gaggle_strategies::{
    Capabilities, Error, Inspection, KeyedMutex, Lock, LockOptions,
    clock::Clock,
    implement::{LossWatch, check_key},
    operator::{Entry, ForcedUnlock, ListOptions, Operator, Page},
    status::MemberStatus,
};
use tokio::sync::watch;

/// The keys of a strategy that begin with a prefix. Callers give and receive keys without it.
pub(crate) struct Scope {
    inner: Arc<dyn KeyedMutex>,
    prefix: String,
    closed: watch::Sender<bool>,
}

impl Scope {
    pub(crate) fn new(inner: Arc<dyn KeyedMutex>, name: &str) -> Self {
        Self { inner, prefix: format!("{name}/"), closed: watch::Sender::new(false) }
    }

    /// The key of the strategy, which checks its length.
    fn absolute(&self, key: &str) -> Result<String, Error> {
        check_key(key)?;
        Ok(format!("{}{key}", self.prefix))
    }

    fn relative(&self, key: &str) -> Arc<str> {
        key.strip_prefix(&self.prefix).unwrap_or(key).into()
    }

    /// The lock as the strategy knows it.
    fn inner_lock(&self, lock: &Lock) -> Lock {
        let key = format!("{}{}", self.prefix, lock.key());
        Lock::new(key, lock.nonce(), lock.fencing_token(), lock.deadline())
    }

    fn outer_lock(&self, lock: &Lock) -> Lock {
        let key = self.relative(lock.key());
        Lock::new(key, lock.nonce(), lock.fencing_token(), lock.deadline())
    }

    fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    async fn closing(&self) {
        let mut closed = self.closed.subscribe();
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

#[async_trait]
impl KeyedMutex for Scope {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        let key = self.absolute(key)?;
        self.check_open()?;
        let lock = tokio::select! {
            biased;
            lock = self.inner.lock(&key, options) => lock,
            () = self.closing() => return Err(Error::Closed),
        };
        if self.is_closed() {
            if let Ok(lock) = &lock {
                self.inner.release(lock);
            }
            return Err(Error::Closed);
        }
        lock.map(|lock| self.outer_lock(&lock))
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        check_key(lock.key())?;
        self.check_open()?;
        self.inner.unlock(&self.inner_lock(lock)).await
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        check_key(lock.key())?;
        self.check_open()?;
        let extended = self.inner.extend(&self.inner_lock(lock), duration).await?;
        Ok(self.outer_lock(&extended))
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        let key = self.absolute(key)?;
        self.check_open()?;
        self.inner.inspect(&key).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.check_open()?;
        self.inner.ready().await
    }

    fn group_status(&self) -> Option<MemberStatus> {
        self.inner.group_status()
    }

    fn operator(&self) -> Option<&dyn Operator> {
        self.inner.operator().map(|_| self as &dyn Operator)
    }

    async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.check_open()?;
        self.inner.unlock_all(&format!("{}{prefix}", self.prefix)).await
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// Closes the scope alone: the strategy stays open.
    async fn close(&self) {
        self.closed.send_replace(true);
        if let Err(error) = self.inner.unlock_all(&self.prefix).await {
            tracing::debug!(scope = self.prefix, %error, "unlock at close failed; leases will expire");
        }
    }

    fn release(&self, lock: &Lock) {
        self.inner.release(&self.inner_lock(lock));
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        let lock = self.inner_lock(lock);
        let watch = self.inner.watch(&lock);
        if self.is_closed() {
            self.inner.release(&lock);
        }
        watch
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

#[async_trait]
impl Operator for Scope {
    async fn list(&self, options: ListOptions) -> Result<Page, Error> {
        self.check_open()?;
        let operator = self.inner.operator().ok_or(UNSUPPORTED)?;
        let prefix = format!("{}{}", self.prefix, options.get_prefix());
        let page = operator.list(options.prefix(prefix)).await?;
        let entry = |Entry { key, holder }| Entry { key: self.relative(&key), holder };
        Ok(Page {
            entries: page.entries.into_iter().map(entry).collect(),
            unreadable: page.unreadable.iter().map(|key| self.relative(key)).collect(),
            next: page.next,
        })
    }

    async fn force_unlock(
        &self,
        key: &str,
        token: Option<u64>,
        reason: &str,
    ) -> Result<ForcedUnlock, Error> {
        let key = self.absolute(key)?;
        self.check_open()?;
        let operator = self.inner.operator().ok_or(UNSUPPORTED)?;
        operator.force_unlock(&key, token, reason).await
    }
}

const UNSUPPORTED: Error = Error::Unsupported { what: "listing and force-unlock" };
