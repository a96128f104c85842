//! A reentrant lock: `cargo run --example reentrant`
//!
//! A handle counts how often it has locked each key, and unlocks with the last `unlock`. The lease
//! is the longest that it asked for. The count ends with the lock: after a loss the handle has
//! nothing to unlock, and its next `lock` waits as any other.

use std::{collections::BTreeMap, error::Error, time::Duration};

use gaggle::{Guard, LockOptions, Locker};
use tokio::time::sleep;

/// The locks of one task. Another task has another handle, and waits for this one.
struct Reentrant {
    locker: Locker,
    held: BTreeMap<String, (Guard, u32)>,
}

impl Reentrant {
    fn new(locker: &Locker) -> Self {
        Self { locker: locker.clone(), held: BTreeMap::new() }
    }

    /// Locks `key`, or counts once more. Returns how often this handle has locked it.
    async fn lock(&mut self, key: &str, lease: Duration) -> Result<u32, gaggle::Error> {
        self.held.retain(|_, (guard, _)| guard.is_valid());
        if let Some((guard, count)) = self.held.get_mut(key) {
            guard.extend(lease).await?; // never shortens
            *count += 1;
            return Ok(*count);
        }
        let options = LockOptions::default().duration(lease).max_wait(Duration::from_millis(100));
        let guard = self.locker.lock_with(key, options).await?;
        self.held.insert(key.to_owned(), (guard, 1));
        Ok(1)
    }

    /// Undoes one `lock`. Returns how many are left; the last one unlocks the key.
    async fn unlock(&mut self, key: &str) -> Result<u32, gaggle::Error> {
        let Some((guard, mut count)) = self.held.remove(key) else {
            return Err(gaggle::Error::NotHolder);
        };
        count -= 1;
        if count == 0 || !guard.is_valid() {
            guard.unlock().await?; // an error if the lock was lost
        } else {
            self.held.insert(key.to_owned(), (guard, count));
        }
        Ok(count)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locker = gaggle::open("local:").await?;
    let (mut task, mut other) = (Reentrant::new(&locker), Reentrant::new(&locker));
    let (long, short) = (Duration::from_secs(10), Duration::from_millis(50));

    println!("locked {} times", task.lock("orders/42", long).await?);
    println!("locked {} times", task.lock("orders/42", short).await?);
    let (guard, _) = &task.held["orders/42"];
    println!("the longer lease counts: {}", guard.remaining() > short);
    println!("another task: {}", other.lock("orders/42", short).await.is_ok());
    println!("{} left", task.unlock("orders/42").await?);
    println!("another task: {}", other.lock("orders/42", short).await.is_ok());
    println!("{} left", task.unlock("orders/42").await?);

    println!("locked {} times", other.lock("orders/42", short).await?);
    println!("locked {} times", other.lock("orders/42", short).await?);
    sleep(2 * short).await; // the lease ends
    for _ in 0..2 {
        if let Err(error) = other.unlock("orders/42").await {
            println!("after the loss: {error}");
        }
    }
    println!("locked {} times", task.lock("orders/42", long).await?);

    locker.close().await;
    Ok(())
}
