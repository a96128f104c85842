//! Opens members, in this process or in a worker process.

use std::sync::Arc;

use gaggle::{Locker, Nonce};

use super::args::Args;
use crate::{
    cluster::{self, Setup, StrategyName},
    failure::Failure,
};

/// Checks that the Redis of `--redis` can be locked in.
pub(super) async fn check_redis(args: &Args) -> Result<(), Failure> {
    let setup = Setup { strategy: StrategyName::Redis, channel: None };
    let cluster = cluster::members(setup, 1, args.redis.as_ref(), "")?;
    member(&cluster.urls[0]).await?.close().await;
    Ok(())
}

/// Opens a member that is ready to lock.
pub(super) async fn member(url: &str) -> Result<Arc<Locker>, Failure> {
    let locker = gaggle::open(url).await.map_err(|error| Failure::of(&error))?;
    cluster::warm_up(&locker, &format!("gaggle/bench/warm-up/{}", Nonce::random())).await?;
    Ok(Arc::new(locker))
}
