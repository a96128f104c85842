//! One process locks, another continues and unlocks:
//! `REDIS_URL=redis://127.0.0.1:6379 cargo run --example transfer_a_lock`
//!
//! The lock travels as a value. Its deadline does not, so the receiver extends it first.

use std::{env, error::Error, process::Command, time::Duration};

use gaggle::{Lock, Locker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let locker = gaggle::open(&url).await?;
    match env::args().nth(1) {
        None => send(&locker).await?,
        Some(lock) => receive(&locker, &lock).await?,
    }
    locker.close().await;
    Ok(())
}

async fn send(locker: &Locker) -> Result<(), Box<dyn Error>> {
    let guard = locker.lock("orders/42").await?;
    println!("process 1 locked, fencing token {}", guard.fencing_token());

    // From here on this process neither extends nor unlocks. If no process adopts the lock, it
    // expires.
    let lock: Lock = guard.into_lock();
    let message = serde_json::to_string(&lock)?;
    let status = Command::new(env::current_exe()?).arg(message).status()?;
    assert!(status.success());

    let free = locker.inspect("orders/42").await?.is_none();
    println!("process 1 finds the key free: {free}");
    Ok(())
}

async fn receive(locker: &Locker, message: &str) -> Result<(), Box<dyn Error>> {
    let lock: Lock = serde_json::from_str(message)?;
    let guard = locker.adopt(&lock, Duration::from_secs(10)).await?;
    println!("process 2 adopted it, fencing token {}", guard.fencing_token());
    guard.unlock().await?;
    println!("process 2 unlocked");
    Ok(())
}
