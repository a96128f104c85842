//! A strategy of your own around another one: `cargo run --example custom_strategy`

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gaggle::{
    Capabilities, Clock, Inspection, KeyedMutex, Lock, LockOptions, Locker, MemberStatus,
    strategies::Local,
};

struct Counted<M> {
    inner: M,
    grants: Arc<Mutex<BTreeMap<String, u64>>>,
}

#[async_trait::async_trait]
impl<M: KeyedMutex> KeyedMutex for Counted<M> {
    async fn lock(&self, key: &str, options: LockOptions) -> Result<Lock, gaggle::Error> {
        let lock = self.inner.lock(key, options).await?;
        // No await after the grant: a future dropped there would leave the key locked.
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        *grants.entry(key.into()).or_default() += 1;
        Ok(lock)
    }
    async fn unlock(&self, lock: &Lock) -> Result<(), gaggle::Error> {
        self.inner.unlock(lock).await
    }
    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, gaggle::Error> {
        self.inner.extend(lock, duration).await
    }
    async fn inspect(&self, key: &str) -> Result<Option<Inspection>, gaggle::Error> {
        self.inner.inspect(key).await
    }
    async fn ready(&self) -> Result<(), gaggle::Error> {
        self.inner.ready().await
    }
    fn group_status(&self) -> Option<MemberStatus> {
        self.inner.group_status()
    }
    fn operator(&self) -> Option<&dyn gaggle::operator::Operator> {
        self.inner.operator()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn close(&self) {
        self.inner.close().await;
    }
    fn release(&self, lock: &Lock) {
        self.inner.release(lock);
    }
    fn watch(&self, lock: &Lock) -> gaggle::strategies::implement::LossWatch {
        self.inner.watch(lock)
    }
    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }
}

#[tokio::main]
async fn main() -> Result<(), gaggle::Error> {
    let grants = Arc::<Mutex<BTreeMap<_, _>>>::default();
    let locker = Locker::new(Counted { inner: Local::new(), grants: Arc::clone(&grants) });
    for key in ["orders/42", "orders/7", "orders/42"] {
        locker.lock(key).await?.unlock().await?;
    }
    println!("{:?}", grants.lock().unwrap_or_else(PoisonError::into_inner));
    locker.close().await;
    Ok(())
}
