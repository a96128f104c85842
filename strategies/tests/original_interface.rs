//! Goal: the original's strategy-interface and edge tests, by their names. Method: `Local` in
//! virtual time. *Unimplemented methods* are the compiler's matter here: see the docs of
//! `testing`, where an implementation that lacks a method fails to compile.

use std::{sync::Arc, time::Duration};

use gaggle_strategies::{Error, KeyedMutex, Local, Lock, LockOptions, MaxWait, Nonce, TokioClock};
use tokio::time::Instant;

fn local() -> Arc<dyn KeyedMutex> {
    Arc::new(Local::with_clock(Arc::new(TokioClock::new())))
}

#[tokio::test(start_paused = true)]
async fn options_validation() {
    let mutex = local();
    let day = Duration::from_secs(24 * 60 * 60);
    let options = LockOptions::default();
    assert_eq!(options.duration, Duration::from_secs(10));
    assert_eq!(options.max_wait, MaxWait::AtMost(Duration::from_secs(5)));
    let bad = [
        ("duration", options.clone().duration(Duration::ZERO)),
        ("duration", options.clone().duration(day + Duration::from_millis(1))),
        ("max_wait", options.clone().max_wait(day + Duration::from_millis(1))),
        ("label", options.clone().label("x".repeat(257))),
    ];
    for (wanted, options) in bad {
        match mutex.lock("k", options).await {
            Err(Error::InvalidOptions { field, value, limit }) => {
                assert_eq!(field, wanted);
                assert!(!value.is_empty() && !limit.is_empty(), "{value:?} {limit:?}");
            }
            other => panic!("{wanted}: {other:?}"),
        }
    }
    for key in [String::new(), "x".repeat(1_025)] {
        let result = mutex.lock(&key, options.clone()).await;
        assert!(matches!(result, Err(Error::InvalidKey { limit: 1_024, .. })), "{result:?}");
    }
    assert_eq!(mutex.inspect("k").await.expect("it is open"), None, "nothing was locked");
}

/// The original took a callback or returned a promise: a future is both, awaited in place or in a
/// task of its own.
#[tokio::test(start_paused = true)]
async fn callbacks() {
    let mutex = local();
    let (called, back) = tokio::sync::oneshot::channel();
    tokio::spawn({
        let mutex = mutex.clone();
        async move { called.send(mutex.lock("k", LockOptions::default()).await) }
    });
    let lock = back.await.expect("called back").expect("a free key is granted");
    mutex.unlock(&lock).await.expect("awaited in place");
}

#[tokio::test(start_paused = true)]
async fn closed_state() {
    let mutex = local();
    let lock = mutex.lock("k", LockOptions::default()).await.expect("a free key is granted");
    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock("k", LockOptions::default()).await }
    });
    tokio::task::yield_now().await;
    mutex.close().await;
    mutex.close().await;
    let waited = waiter.await.expect("no panic");
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    let locked = mutex.lock("other", LockOptions::default()).await;
    assert!(matches!(locked, Err(Error::Closed)), "{locked:?}");
    let unlocked = mutex.unlock(&lock).await;
    assert!(matches!(unlocked, Err(Error::Closed)), "{unlocked:?}");
    assert_eq!(Error::Closed.to_string(), "this handle is closed");
}

/// There: *Another process is holding on to the lock right now*.
#[tokio::test(start_paused = true)]
async fn acquisition_fails_early() {
    let mutex = local();
    let lock = mutex.lock("k", LockOptions::default()).await.expect("a free key is granted");
    let began = Instant::now();
    let refused = mutex.try_lock("k", Duration::from_secs(1)).await;
    assert!(matches!(refused, Err(Error::Held)), "{refused:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    mutex.unlock(&lock).await.expect("the holder unlocks");
}

/// There: *Timed out before acquiring the lock*.
#[tokio::test(start_paused = true)]
async fn acquiring_a_lock_times_out() {
    let mutex = local();
    let _lock = mutex.lock("k", LockOptions::default()).await.expect("a free key is granted");
    let began = Instant::now();
    let wait = Duration::from_millis(100);
    let result = mutex.lock("k", LockOptions::default().max_wait(wait)).await;
    assert!(matches!(result, Err(Error::TimedOut)), "{result:?}");
    assert!(began.elapsed() >= wait && began.elapsed() <= wait + Duration::from_millis(2));
}

#[tokio::test(start_paused = true)]
async fn nonce_mismatch_when_unlocking() {
    let mutex = local();
    let lock = mutex.lock("k", LockOptions::default()).await.expect("a free key is granted");
    let forged = Lock::new("k", Nonce::random(), lock.fencing_token(), lock.deadline());
    let refused = mutex.unlock(&forged).await;
    assert!(matches!(refused, Err(Error::NotHolder)), "{refused:?}");
    mutex.unlock(&lock).await.expect("the holder unlocks");
}
