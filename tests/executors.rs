//! Goal: a lock behaves alike in every executor, on a free key and on a held one.
//! Method: an executor of the test's own, a runtime without timers, and a runtime whose time is
//! paused.
#![allow(clippy::unwrap_used, reason = "a test ends where it is surprised")]

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::Duration,
};

use gaggle::{Error, LockOptions, Locker, open};
use gaggle_fixtures::RedisServer;
use tokio::runtime::Builder;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor that knows nothing of tokio.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// A free key is granted, a held one is waited for, and a hand-off arrives.
async fn lock_free_and_held(locker: &Locker) {
    let options = |ms| LockOptions::default().max_wait(Duration::from_millis(ms));
    let guard = locker.lock("k").await.unwrap();
    let held = locker.lock_with("k", options(50)).await;
    assert!(matches!(held, Err(Error::TimedOut(_))), "{held:?}");
    let unlocking = thread::spawn(|| {
        thread::sleep(Duration::from_millis(30));
        drop(guard);
    });
    locker.lock_with("k", options(5_000)).await.unwrap().unlock().await.unwrap();
    unlocking.join().unwrap();
}

#[test]
fn local_works_in_an_executor_without_tokio() {
    block_on(async { lock_free_and_held(&open("local:").await.unwrap()).await });
}

#[test]
fn local_works_in_a_runtime_without_timers() {
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { lock_free_and_held(&open("local:").await.unwrap()).await });
}

#[test]
fn redis_works_from_an_executor_without_tokio() {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    for options in ["", "?queue=none"] {
        let url = format!("{}{options}", server.url());
        let locker = runtime.block_on(open(&url)).unwrap();
        block_on(lock_free_and_held(&locker));
    }
}

/// The time of a lease goes on, so that a wait takes its real time.
#[tokio::test(start_paused = true)]
async fn wait_in_paused_time_does_not_spin() {
    let locker = open("local:").await.unwrap();
    let _guard = locker.lock("k").await.unwrap();
    let options = LockOptions::default().max_wait(Duration::from_millis(300));
    let (mut polls, mut waiting) = (0, pin!(locker.lock_with("k", options).into_future()));
    let held = poll_fn(|context| {
        polls += 1;
        waiting.as_mut().poll(context)
    });
    assert!(matches!(held.await, Err(Error::TimedOut(_))));
    assert!(polls < 20, "{polls}");
}
