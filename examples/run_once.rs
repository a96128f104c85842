//! A job that every replica starts and one runs: `cargo run --example run_once [URL]`
//!
//! The lock keeps two replicas from running at the same time. The record of finished jobs keeps
//! a late replica from running the job again.

use std::{collections::BTreeSet, env, error::Error, sync::Arc, time::Duration};

use gaggle::{LockOptions, Locker};
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// Stands for a table of the database: the jobs that are done.
type Finished = Arc<Mutex<BTreeSet<&'static str>>>;

async fn replica(number: u32, locker: Locker, finished: Finished) -> Result<()> {
    const JOB: &str = "report/2026-11-26";
    let options = LockOptions::default().duration(Duration::from_secs(10));
    let guard = match locker.lock_with(JOB, options).try_now().await {
        Ok(guard) => guard,
        Err(gaggle::Error::Held(_)) => {
            println!("replica {number}: another replica runs it");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    if finished.lock().await.contains(JOB) {
        println!("replica {number}: it is done");
    } else {
        println!("replica {number}: runs it");
        sleep(Duration::from_millis(200)).await;
        finished.lock().await.insert(JOB);
    }
    guard.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "local:".into());
    let locker = gaggle::open(&url).await?;
    let finished = Finished::default();

    let mut replicas = JoinSet::new();
    for number in 1..=3 {
        replicas.spawn(replica(number, locker.clone(), Arc::clone(&finished)));
    }
    while let Some(ended) = replicas.join_next().await {
        ended??;
    }
    replica(4, locker.clone(), finished).await?; // a late one

    locker.close().await;
    Ok(())
}
