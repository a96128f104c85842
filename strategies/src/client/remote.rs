//! [`KeyedMutex`] for every strategy that grants through a [`Client`].

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{backend::Backend, handle::Client};
use crate::{
    capabilities::Capabilities,
    clock::Clock,
    error::Error,
    lock::{Inspection, Lock},
    losses::LossWatch,
    mutex::KeyedMutex,
    operator::Operator,
    options::LockOptions,
    status::MemberStatus,
};

/// A strategy that is a [`Client`] of its backend.
pub trait Remote: Send + Sync + 'static {
    /// The granting side.
    type Backend: Backend;

    /// The handle that does what [`KeyedMutex`] asks for.
    fn client(&self) -> &Client<Self::Backend>;
}

impl<B: Backend> Remote for Client<B> {
    type Backend = B;

    fn client(&self) -> &Self {
        self
    }
}

#[async_trait]
impl<R: Remote> KeyedMutex for R {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        self.client().lock(key, &options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.client().unlock(lock).await
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        self.client().extend(lock, duration).await
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.client().inspect(key).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.client().ready().await
    }

    fn group_status(&self) -> Option<MemberStatus> {
        self.client().group_status()
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self.client())
    }

    async fn unlock_all(&self, prefix: &str) -> Result<(), Error> {
        self.client().unlock_all(prefix).await
    }

    fn capabilities(&self) -> Capabilities {
        self.client().capabilities()
    }

    async fn close(&self) {
        self.client().close().await;
    }

    fn release(&self, lock: &Lock) {
        self.client().release(lock);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.client().watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.client().clock()
    }
}
