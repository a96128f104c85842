//! A critical section that ends with its lock: `cargo run --example critical_section`

use std::{error::Error, time::Duration};

use gaggle::{LockOptions, SectionError};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locker = gaggle::open("local:").await?;
    let lease = LockOptions::default().duration(Duration::from_millis(200));

    // The section receives the lock. The key is unlocked afterwards, also after a panic.
    let total = locker
        .with_lock("orders/42", lease.clone(), |lock| async move {
            assert!(lock.fencing_token() > 0); // pass it to the resource
            sleep(Duration::from_millis(20)).await;
            42
        })
        .await?;
    println!("finished: {total}");

    // A section that outlasts its lease is dropped at its current await.
    let outcome = locker
        .with_lock("orders/42", lease.clone(), |_| async {
            sleep(Duration::from_secs(10)).await;
        })
        .await;
    match outcome {
        Err(SectionError::Lost(_)) => println!("dropped: the lease ended first"),
        other => return Err(format!("expected a loss, got {other:?}").into()),
    }

    // For long work the lease is extended in the background, here for at most 5 s.
    let extended = locker.lock_with("orders/42", lease).auto_extend(Duration::from_secs(5));
    extended
        .run(|_| async {
            sleep(Duration::from_millis(600)).await;
        })
        .await?;
    println!("finished: work of three leases");

    locker.close().await;
    Ok(())
}
