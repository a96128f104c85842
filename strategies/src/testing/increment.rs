//! The atomic increment: the original's own test of mutual exclusion.
//!
//! Several members increment one counter in a store that knows only GET and SET: read, work,
//! write, under the lock. Without exclusion, updates are lost; the counter shows how many.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::sleep};

use super::resource::Store;
use crate::{Error, KeyedMutex, LockOptions};

/// How much to increment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The key to lock, and the name of the counter.
    pub key: String,
    /// How often each member increments, 20 by default.
    pub increments: u64,
    /// How long the critical section lasts between GET and SET, 15 ms by default.
    pub work: Duration,
    /// Of each lock: 10 s and 60 s by default.
    pub options: LockOptions,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            key: "counter".into(),
            increments: 20,
            work: Duration::from_millis(15),
            options: LockOptions::default().max_wait(Duration::from_secs(60)),
        }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The increments that were made.
    pub expected: u64,
    /// The counter at the end.
    pub got: u64,
}

impl Counted {
    /// How many updates were lost: 0 where exclusion held.
    #[must_use]
    pub const fn lost(self) -> u64 {
        self.expected.saturating_sub(self.got)
    }
}

/// Increments by all members at the same time.
///
/// # Errors
///
/// The first error of a lock or an unlock; the others are stopped.
pub async fn run(members: &[Arc<dyn KeyedMutex>], plan: &Plan) -> Result<Counted, Error> {
    let store = Arc::new(Store::default());
    let mut tasks = JoinSet::new();
    for member in members {
        tasks.spawn(one_member(member.clone(), plan.clone(), store.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a member's task neither panics nor is aborted")?;
    }
    let expected = plan.increments * members.len() as u64;
    Ok(Counted { expected, got: store.get(&plan.key) })
}

async fn one_member(
    member: Arc<dyn KeyedMutex>,
    plan: Plan,
    store: Arc<Store>,
) -> Result<(), Error> {
    for _ in 0..plan.increments {
        let lock = member.lock(&plan.key, plan.options.clone()).await?;
        let value = store.get(&plan.key);
        sleep(plan.work).await;
        store.set(&plan.key, value + 1);
        member.unlock(&lock).await?;
    }
    Ok(())
}
