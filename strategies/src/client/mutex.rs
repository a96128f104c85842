//! The handle as a strategy.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{backend::Backend, handle::Client};
use crate::{
    Capabilities, Clock, Error, Inspection, KeyedMutex, Lock, LockOptions, LossWatch, MemberStatus,
    Operator,
};

#[async_trait]
impl<B: Backend> KeyedMutex for Client<B> {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, Error> {
        self.lock(key, &options).await
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        self.unlock(lock).await
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        self.extend(lock, duration).await
    }

    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, Error> {
        self.inspect(key).await
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(self)
    }

    async fn ready(&self) -> Result<(), Error> {
        self.check_open()?;
        let mut status = self.status();
        let ready = status.wait_for(B::is_ready).await;
        ready.map(|_| ()).map_err(|_| self.end_error())
    }

    fn group_status(&self) -> Option<MemberStatus> {
        match self.check_open() {
            Ok(()) => B::group_status(&self.status().borrow()),
            Err(_) => B::group_status(&B::Status::default()),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.profile.capabilities
    }

    async fn close(&self) {
        self.close().await;
    }

    fn release(&self, lock: &Lock) {
        self.release(lock);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock()
    }
}
