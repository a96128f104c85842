//! Goal: `Local` keeps the contract: deadlines, cancellation, closing.
//!
//! Method: virtual time. Futures are polled by hand where the order of polls matters.
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;

use crate::{
    clock::{BootClock, Clock, Instant, TokioClock},
    error::Error,
    local::Local,
    lock::{Inspection, Lock, LossCause, Nonce},
    lock_table::{Known, Sizes, TableConfig},
    mutex::KeyedMutex,
    options::{LockOptions, MaxWait},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn local() -> Arc<Local> {
    Arc::new(Local::with_clock(Arc::new(TokioClock::new())))
}

fn limited(limits: TableConfig) -> Arc<Local> {
    Arc::new(Local::with_limits(limits, crate::Drift::default(), Arc::new(TokioClock::new())))
}

fn options(duration: u64, max_wait: u64) -> LockOptions {
    LockOptions::default().duration(ms(duration)).max_wait(ms(max_wait))
}

fn forever(duration: u64) -> LockOptions {
    LockOptions::default().duration(ms(duration)).max_wait(MaxWait::Forever)
}

type Pending<'a> = Pin<Box<dyn Future<Output = Result<Lock, Error>> + Send + 'a>>;

async fn once(call: &mut Pending<'_>) -> Poll<Result<Lock, Error>> {
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await
}

/// A call that has been polled once and waits.
async fn waiting<'a>(local: &'a Local, key: &'a str, options: LockOptions) -> Pending<'a> {
    let mut call: Pending<'a> = Box::pin(local.lock(key, options));
    assert!(once(&mut call).await.is_pending(), "it was not granted");
    call
}

fn sizes(local: &Local) -> Sizes {
    let mut all = Sizes::default();
    for access in local.shards.each() {
        let table = &access.shard.table;
        table.check();
        let sizes = table.sizes();
        let (granted, waiting): (Vec<_>, Vec<_>) =
            access.shard.waiters.iter().partition(|(_, waiter)| waiter.grant.is_some());
        assert_eq!(waiting.len() as u64, sizes.waiters, "one entry per waiter");
        for (nonce, _) in granted {
            assert_eq!(table.knows(*nonce), Some(Known::Holds), "the entry of an ended lock");
        }
        all.keys += sizes.keys;
        all.waiters += sizes.waiters;
        all.nonces_remembered += sizes.nonces_remembered;
    }
    all
}

#[track_caller]
fn assert_empty(local: &Local) {
    assert_eq!(sizes(local), Sizes::default());
    assert!(local.shards.losses.is_empty());
}

macro_rules! assert_error {
    ($result:expr, $error:pat) => {
        let result = $result;
        assert!(matches!(result, Err($error)), "{result:?}");
    };
}

mod basics;
mod clocks;
mod ending;
mod listing;
mod shards;
mod waits;
