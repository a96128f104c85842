//! Goal: in every order of threads no wake-up and no loss is missed, and nothing is left behind, in
//! [`Local`] and [`LossRegistry`].
//!
//! Method: `shuttle` chooses the next thread at every lock of the crate's mutexes, at random and by
//! PCT. It reports a call that is never woken as a deadlock. Time stands still. Members are
//! explored in `client/turns/interleavings.rs`.
//!
//! Not explored: orders within tokio's primitives, which are single steps here, and sleeps, which
//! need tokio's runtime.

use std::{
    future::{Future, pending},
    pin::Pin,
    sync::Arc,
};

use futures_util::FutureExt;
use shuttle::{
    future::block_on,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use crate::{
    clock::{Clock, Instant},
    error::Error,
    local::Local,
    lock::{Lock, LossCause, Nonce},
    lock_table::Sizes,
    losses::LossRegistry,
    mutex::KeyedMutex,
    options::{LockOptions, MaxWait},
    sync::{explore, switch},
};

/// Time stands still, and no sleep ends: only a wake-up does.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant::from_origin(std::time::Duration::from_secs(1))
    }

    fn sleep_until<'a>(&'a self, _: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(pending())
    }
}

fn local() -> Arc<Local> {
    Arc::new(Local::with_clock(Arc::new(Still)))
}

fn forever() -> LockOptions {
    LockOptions::default().max_wait(MaxWait::Forever)
}

fn lock(local: &Local) -> Result<Lock, Error> {
    block_on(local.lock("k", forever()))
}

fn unlock(local: &Local, lock: &Lock) {
    block_on(local.unlock(lock)).unwrap();
}

#[test]
fn every_waiter_is_woken_and_holds_alone() {
    explore("every_waiter_is_woken_and_holds_alone", || {
        let (local, inside) = (local(), Arc::new(AtomicUsize::new(0)));
        let threads = [(); 3].map(|()| {
            let (local, inside) = (local.clone(), inside.clone());
            thread::spawn(move || {
                let held = lock(&local).unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
                inside.fetch_sub(1, Ordering::SeqCst);
                unlock(&local, &held);
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(local.sizes(), Sizes::default());
    });
}

#[test]
fn lock_dropped_at_grant_is_handed_off() {
    explore("lock_dropped_at_grant_is_handed_off", || {
        let local = local();
        let held = lock(&local).unwrap();
        let dropping = {
            let local = local.clone();
            thread::spawn(move || {
                let mut call = local.lock("k", forever());
                let reply = call.as_mut().now_or_never();
                switch();
                drop(call);
                if let Some(reply) = reply {
                    unlock(&local, &reply.unwrap());
                }
            })
        };
        let waiting = {
            let local = local.clone();
            thread::spawn(move || unlock(&local, &lock(&local).unwrap()))
        };
        unlock(&local, &held);
        dropping.join().unwrap();
        waiting.join().unwrap();
        assert_eq!(local.sizes(), Sizes::default());
    });
}

#[test]
fn closing_ends_every_wait() {
    explore("closing_ends_every_wait", || {
        let local = local();
        let held = lock(&local).unwrap();
        let threads = [(); 2].map(|()| {
            let local = local.clone();
            thread::spawn(move || match lock(&local) {
                Ok(_) | Err(Error::Closed) => {}
                Err(other) => panic!("{other}"),
            })
        });
        let unlocking = {
            let local = local.clone();
            thread::spawn(move || local.release(&held))
        };
        block_on(local.close());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        unlocking.join().unwrap();
        assert_eq!(local.sizes(), Sizes::default());
    });
}

#[test]
fn watch_begun_during_close_is_lost() {
    explore("watch_begun_during_close_is_lost", || {
        let local = local();
        let held = lock(&local).unwrap();
        let watching = {
            let local = local.clone();
            thread::spawn(move || local.watch(&held))
        };
        block_on(local.close());
        let watch = watching.join().unwrap();
        block_on(watch.lost());
    });
}

#[test]
fn watch_begun_during_unlock_is_lost() {
    explore("watch_begun_during_unlock_is_lost", || {
        let local = local();
        let held = lock(&local).unwrap();
        let watching = {
            let (local, held) = (local.clone(), held.clone());
            thread::spawn(move || block_on(local.watch(&held).lost()))
        };
        unlock(&local, &held);
        watching.join().unwrap();
    });
}

#[test]
fn dropped_watch_hides_no_loss() {
    explore("dropped_watch_hides_no_loss", || {
        let (losses, lock) =
            (LossRegistry::default(), Lock::new("k", Nonce::from_u128(7), 1, None));
        let first = losses.watch(&lock);
        let dropping = thread::spawn(move || drop(first));
        let watching = {
            let (losses, lock) = (losses.clone(), lock.clone());
            thread::spawn(move || {
                let watch = losses.watch(&lock);
                switch();
                losses.report(&lock, LossCause::Ended, None);
                assert!(watch.is_lost());
            })
        };
        dropping.join().unwrap();
        watching.join().unwrap();
        assert!(losses.is_empty());
    });
}

/// Each must not count the other, which has released the mutex but not its receiver.
#[test]
fn last_dropped_watch_frees_the_entry() {
    explore("last_dropped_watch_frees_the_entry", || {
        let (losses, lock) =
            (LossRegistry::default(), Lock::new("k", Nonce::from_u128(7), 1, None));
        let first = losses.watch(&lock);
        let second = losses.watch(&lock);
        let dropping = thread::spawn(move || drop(first));
        drop(second);
        dropping.join().unwrap();
        assert!(losses.is_empty());
    });
}
