//! Two candidates, one leader at a time: `cargo run --example leader_election [URL]`
//!
//! Leadership is a lock that is extended for as long as the leader lives.

use std::{env, error::Error, time::Duration};

use gaggle::{LockOptions, Locker, MaxWait};
use tokio::{task::JoinSet, time::sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

async fn candidate(locker: Locker, name: &'static str) -> Result<()> {
    let options = LockOptions::default()
        .duration(Duration::from_secs(2)) // after a crash the next leader starts 2 s later at most
        .max_wait(MaxWait::Forever)
        .label(name);
    let day = Duration::from_secs(24 * 3600);
    let guard = locker.lock_with("scheduler/leader", options).auto_extend(day).await?;

    println!("{name} leads, epoch {}", guard.fencing_token());
    tokio::select! {
        // Stop at once: another candidate may lead from now on.
        () = guard.lost() => println!("{name} lost the leadership"),
        // A real leader works until its process shuts down.
        () = work() => println!("{name} steps down"),
    }
    // Dropping the guard unlocks, and the next candidate is granted the key.
    Ok(())
}

async fn work() {
    sleep(Duration::from_millis(300)).await;
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "local:".into());
    let locker = gaggle::open(&url).await?;

    let mut candidates = JoinSet::new();
    candidates.spawn(candidate(locker.clone(), "a"));
    candidates.spawn(candidate(locker.clone(), "b"));
    while let Some(ended) = candidates.join_next().await {
        ended??;
    }

    locker.close().await;
    Ok(())
}
