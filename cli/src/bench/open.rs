//! Opening a member, in this process or in a child's.

use std::{sync::Arc, time::Duration};

use gaggle::{LockOptions, Locker, Nonce};

use super::args::Args;
use crate::{
    cluster::{self, Setup, StrategyName},
    failure::Failure,
};

/// How long a member may take until it votes.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Locks once in the Redis of `--redis`.
pub(super) async fn reach(args: &Args) -> Result<(), Failure> {
    let setup = Setup { strategy: StrategyName::Redis, channel: None };
    let urls = cluster::urls(setup, 1, args.redis.as_ref(), "")?;
    member(&urls[0]).await?.close().await;
    Ok(())
}

/// Opens a member and waits until it has locked once, which opens what opens lazily.
pub(super) async fn member(url: &str) -> Result<Arc<Locker>, Failure> {
    let locker =
        gaggle::open(url).await.map_err(|error| Failure::new("the strategy").because(&error))?;
    let failed = |error: gaggle::Error| Failure::new("a member").because(&error);
    match tokio::time::timeout(READY_WITHIN, locker.ready()).await {
        Ok(ready) => ready.map_err(failed)?,
        Err(_) => {
            return Err(Failure::new(format!("a member did not vote within {READY_WITHIN:?}")));
        }
    }
    let key = format!("gaggle/bench/warm-up/{}", Nonce::random());
    let options = LockOptions::default().max_wait(READY_WITHIN);
    locker.lock_with(key, options).await.map_err(failed)?.unlock().await.map_err(failed)?;
    Ok(Arc::new(locker))
}
