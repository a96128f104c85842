//! A member of a setup: the lock that its tasks contend for, and their counter.

use std::{sync::Arc, time::Duration};

use gaggle::{Guard, LockOptions, Locker, Nonce};
use gaggle_workloads::{BoxError, Contender, Workload};

use super::store::Store;
use crate::{cluster, failure::Failure};

/// The least time that a task waits for a lock. Long work needs more.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A member that is ready to lock.
pub(super) struct Member {
    locker: Locker,
    options: LockOptions,
    /// If present, each critical section increments the counter of its key there.
    store: Option<Arc<Store>>,
}

impl Member {
    /// Opens a member whose critical sections last this long.
    pub(super) async fn open(
        url: &str,
        section: Duration,
        store: Option<Arc<Store>>,
    ) -> Result<Self, Failure> {
        let locker = gaggle::open(url).await.map_err(|error| Failure::of(&error))?;
        cluster::warm_up(&locker, &format!("gaggle:bench:warm-up:{}", Nonce::random())).await?;
        let options = LockOptions::default();
        let duration = options.get_duration().max(section * 4);
        let options = options.duration(duration).max_wait(MAX_WAIT.max(section * 1000));
        Ok(Self { locker, options, store })
    }

    pub(super) async fn close(&self) {
        self.locker.close().await;
    }
}

impl Contender for Member {
    type Hold = Guard;

    async fn lock(&self, key: &str) -> Result<Guard, BoxError> {
        Ok(self.locker.lock_with(key, self.options.clone()).await?)
    }

    async fn unlock(&self, guard: Guard) -> Result<(), BoxError> {
        Ok(guard.unlock().await?)
    }

    fn token(guard: &Guard) -> Option<u64> {
        Some(guard.fencing_token())
    }

    async fn work(&self, key: &str, workload: &Workload) -> Result<(), BoxError> {
        let Some(store) = &self.store else {
            workload.sleep_inside().await;
            return Ok(());
        };
        let value = store.get(key).await?;
        workload.sleep_inside().await;
        Ok(store.set(key, value + 1).await?)
    }
}
