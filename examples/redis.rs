//! A lock on Redis: `REDIS_URL=redis://127.0.0.1:6379 cargo run --example redis`
//!
//! Start it twice at the same time: the second process waits for the first.

use std::{env, error::Error, time::Duration};

use gaggle::LockOptions;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let locker = gaggle::open(&url).await?;

    let options = LockOptions::default()
        .duration(Duration::from_secs(5)) // the lease: Redis frees the key then at the latest
        .max_wait(Duration::from_secs(30)) // the longest wait for the key
        .label("example"); // shown by `inspect`
    let guard = locker.lock_with("orders/42", options.clone()).await?;
    println!("locked, fencing token {}", guard.fencing_token());

    let holder = locker.inspect("orders/42").await?.expect("this process holds the key");
    println!("holder: {:?}, pid {}", holder.owner.label, holder.owner.pid);

    // A second request does not wait with `try_now`.
    let refused = locker.lock_with("orders/42", options).try_now().await;
    println!("second request: {}", refused.expect_err("the key is held"));

    sleep(Duration::from_secs(1)).await; // the work

    guard.unlock().await?;
    println!("unlocked");
    locker.close().await;
    Ok(())
}
