//! Goal: `Local` keeps the contract: deadlines, cancellation, repeated nonces, closing.
//!
//! Method: virtual time. Futures are polled by hand where it matters who has been polled and when.
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;

use crate::{
    BootClock, Clock, Error, Instant, KeyedMutex, Local, LocalOptions, Lock, LockOptions, MaxWait,
    Nonce, TokioClock,
    lock_table::{Known, Sizes},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn local() -> Arc<Local> {
    Arc::new(Local::with_clock(Arc::new(TokioClock::new())))
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
    assert!(once(&mut call).await.is_pending(), "nobody granted it");
    call
}

fn sizes(local: &Local) -> Sizes {
    let mut all = Sizes::default();
    for part in local.shards.all() {
        let state = part.lock().unwrap();
        state.table.check();
        let sizes = state.table.sizes();
        let (granted, waiting): (Vec<_>, Vec<_>) =
            state.calls.all().partition(|calls| calls.signal.is_granted());
        assert_eq!(waiting.len() as u64, sizes.waiters, "one entry per waiter");
        for calls in granted {
            let known = state.table.knows(calls.nonce);
            assert_eq!(known, Some(Known::Holds), "an entry outlived its lock");
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
    assert!(local.holds.is_empty());
}

macro_rules! assert_error {
    ($result:expr, $error:pat) => {
        let result = $result;
        assert!(matches!(result, Err($error)), "{result:?}");
    };
}

mod basics;
mod clocks;
mod closing;
mod ending;
mod parts;
mod random;
mod waits;
