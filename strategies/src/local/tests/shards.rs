//! Goal: each shard keeps its limits, and a waker may call the table at once.
use std::{
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    task::Context,
    thread,
};

use futures_util::task::{ArcWake, waker};
use tokio::runtime::Builder;

use super::*;

/// Enough that several belong to each shard.
fn keys() -> Vec<String> {
    (0..200).map(|number| format!("orders/{number}")).collect()
}

/// How many of the keys are granted at one time, and the limits that the refusals name.
async fn granted(limits: TableConfig) -> (usize, Vec<(&'static str, u64)>) {
    let local = limited(limits);
    let mut limits = Vec::new();
    for key in keys() {
        match local.lock(&key, options(100, 0)).await {
            Ok(_) => {}
            Err(Error::Limit { what, limit }) => limits.push((what, limit)),
            Err(other) => panic!("{other:?}"),
        }
    }
    let granted = keys().len() - limits.len();
    assert_eq!(sizes(&local).keys, granted as u64);
    // Expired leases count no longer, nor their nonces a millisecond later.
    tokio::time::advance(ms(100)).await;
    assert_eq!(local.sizes().keys, 0);
    tokio::time::advance(ms(1)).await;
    if granted > 0 {
        local.lock("orders/0", options(100, 0)).await.unwrap();
    }
    limits.dedup();
    (granted, limits)
}

#[tokio::test(start_paused = true)]
async fn shard_limits_have_an_eighth_to_spare() {
    // Each shard has at most 22 of these 200 keys.
    let keys = |keys_max| granted(TableConfig { keys_max, ..TableConfig::default() });
    assert_eq!(keys(320).await, (200, vec![]));
    assert_eq!(keys(16).await, (16, vec![("keys held", 1)]));
    assert_eq!(keys(0).await, (0, vec![("keys held", 0)]));
    let few = TableConfig { nonces_max: 17, ..TableConfig::default() };
    assert_eq!(granted(few).await, (32, vec![("nonces remembered", 2)]));
}

/// Calls the table when it is woken, once it is armed, and counts the replies.
struct CallsLocal {
    local: Arc<Local>,
    armed: AtomicBool,
    replies: AtomicU32,
}

impl ArcWake for CallsLocal {
    fn wake_by_ref(this: &Arc<Self>) {
        if this.armed.load(Ordering::SeqCst) {
            let key = "ends";
            let replied = this.local.lock(key, options(100, 0)).now_or_never().is_some();
            this.replies.fetch_add(replied.into(), Ordering::SeqCst);
        }
    }
}

async fn wake_from_another_call() {
    let local = local();
    let lock = local.lock("ends", options(100, 0)).await.unwrap();
    let calls = CallsLocal { local, armed: AtomicBool::default(), replies: AtomicU32::default() };
    let calls = Arc::new(calls);
    let waker = waker(calls.clone());
    let mut waits = Box::pin(calls.local.lock("ends", forever(1000)));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    calls.armed.store(true, Ordering::SeqCst);
    calls.local.unlock(&lock).await.unwrap();
    assert_eq!(calls.replies.load(Ordering::SeqCst), 1, "it was woken once, with a reply");
    calls.armed.store(false, Ordering::SeqCst);
    waits.await.unwrap();
}

#[test]
fn waker_may_reenter_local() {
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(wake_from_another_call());
        end.send(()).unwrap();
    });
    // Under the mutex the waker would wait for itself.
    let ended = ended.recv_timeout(Duration::from_secs(20));
    assert!(ended.is_ok(), "{ended:?}");
}

/// A clock that panics on demand.
#[derive(Debug)]
struct Panics(TokioClock, AtomicBool);

impl Clock for Panics {
    fn now(&self) -> Instant {
        assert!(!self.1.load(Ordering::SeqCst), "the clock panics");
        self.0.now()
    }
}

#[tokio::test(start_paused = true)]
async fn table_survives_a_panic_in_its_mutex() {
    let clock = Arc::new(Panics(TokioClock::new(), AtomicBool::default()));
    let local = Local::with_clock(clock.clone());
    let lock = local.lock("k", options(1000, 0)).await.unwrap();
    let waiter = waiting(&local, "k", forever(1000)).await;
    clock.1.store(true, Ordering::SeqCst);
    let release = std::panic::AssertUnwindSafe(|| local.release(&lock));
    assert!(std::panic::catch_unwind(release).is_err());
    clock.1.store(false, Ordering::SeqCst);
    local.release(&lock);
    waiter.now_or_never().unwrap().unwrap();
}

/// Tries every key when it is woken, and counts the grants.
struct TriesAll(Arc<Local>, AtomicU32);

impl ArcWake for TriesAll {
    fn wake_by_ref(this: &Arc<Self>) {
        for key in keys() {
            let granted = matches!(this.0.lock(&key, options(100, 0)).now_or_never(), Some(Ok(_)));
            this.1.fetch_add(granted.into(), Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_woken_by_close_lock_nothing() {
    let local = local();
    let tries = Arc::new(TriesAll(local.clone(), AtomicU32::default()));
    let waker = waker(tries.clone());
    let mut calls = Vec::new();
    for key in ["held", "held too", "held as well"] {
        local.lock(key, options(1000, 0)).await.unwrap();
        let mut call = Box::pin(local.lock(key, forever(1000)));
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        calls.push(call);
    }
    local.close().await;
    assert_eq!(tries.1.load(Ordering::SeqCst), 0);
    for call in calls {
        assert_error!(call.await, Error::Closed);
    }
}
