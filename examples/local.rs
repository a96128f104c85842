//! Ten tasks increment a counter that has only GET and SET, one at a time: `cargo run --example
//! local`

use std::{error::Error, sync::Arc, time::Duration};

use tokio::{sync::Mutex, task::JoinSet, time::sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A store without an atomic increment, as many HTTP APIs are.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<u64>>);

impl Store {
    async fn get(&self) -> u64 {
        *self.0.lock().await
    }

    async fn set(&self, value: u64) {
        *self.0.lock().await = value;
    }
}

async fn increment(locker: gaggle::Locker, store: Store) -> Result<()> {
    let guard = locker.lock("counter").await?;
    let value = store.get().await;
    sleep(Duration::from_millis(5)).await; // without the lock another task would read the same value
    store.set(value + 1).await;
    guard.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let locker = gaggle::open("local:").await?;
    let store = Store::default();

    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        tasks.spawn(increment(locker.clone(), store.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }

    println!("10 increments, counter is {}", store.get().await);
    locker.close().await;
    Ok(())
}
