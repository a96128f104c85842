//! Goal: a table in parts keeps the bounds and the nonces of one table.
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

/// Enough that several fall into each part.
fn keys() -> Vec<String> {
    (0..100).map(|number| format!("orders/{number}")).collect()
}

fn bounded(keys_max: u64, nonces_max: u64) -> Local {
    let options = LocalOptions::default().keys_max(keys_max).nonces_max(nonces_max);
    Local::with_options(options, Arc::new(TokioClock::new()))
}

#[tokio::test(start_paused = true)]
async fn every_key_finds_room_up_to_the_bound_of_the_whole_and_none_beyond() {
    for keys_max in [1, 7, 40] {
        let local = bounded(keys_max, 1 << 20);
        let mut locks = Vec::new();
        for key in keys() {
            match local.try_lock(&key, ms(1000)).await {
                Ok(lock) => locks.push(lock),
                Err(Error::Limit { what: "keys held", limit }) => assert_eq!(limit, keys_max),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(locks.len() as u64, keys_max);
        // The room of one key serves any other.
        for key in keys() {
            local.unlock(&locks.pop().unwrap()).await.unwrap();
            if let Ok(lock) = local.try_lock(&key, ms(1000)).await {
                locks.push(lock);
            }
            assert_eq!(sizes(&local).keys, locks.len() as u64);
            if locks.is_empty() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn leases_that_have_run_out_leave_their_room_to_other_keys() {
    let local = bounded(3, 1 << 20);
    let keys = keys();
    for key in &keys[..3] {
        local.try_lock(key, ms(100)).await.unwrap();
    }
    let refused = local.try_lock(&keys[50], ms(100)).await;
    assert_error!(refused, Error::Limit { what: "keys held", limit: 3 });
    tokio::time::advance(ms(100)).await;
    for key in &keys[50..53] {
        local.try_lock(key, ms(100)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn nonces_are_bounded_as_a_whole() {
    let local = bounded(1 << 20, 20);
    let held = keys().len() as u64;
    let mut granted = 0;
    for key in keys() {
        match local.try_lock(&key, ms(1000)).await {
            Ok(_) => granted += 1,
            Err(Error::Limit { what: "nonces remembered", limit: 20 }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(granted, 20, "of {held}");
}

/// Threads that look for room at one time neither lose any nor take more than there is.
#[test]
fn room_that_moves_between_parts_stays_what_it_was() {
    let local = Local::with_options(LocalOptions::default().keys_max(5), Arc::new(BootClock));
    let keys = keys();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (local, keys) = (&local, &keys);
            scope.spawn(move || {
                for turn in 0..2_000 {
                    let key = &keys[(turn * 7 + thread * 13) % keys.len()];
                    let lock = local.try_lock(key, ms(60_000)).now_or_never().unwrap();
                    assert!(local.sizes().keys <= 5, "more is held than the bound");
                    if let Ok(lock) = lock {
                        local.release(&lock);
                    }
                }
            });
        }
    });
    let room = |bound| -> u64 {
        local.shards.all().map(|part| part.lock().unwrap().table.spare(bound)).sum()
    };
    assert_eq!(room(crate::lock_table::Bound::Keys), 5);
    assert_eq!(room(crate::lock_table::Bound::Nonces), LocalOptions::default().nonces_max);
}

/// Whoever is woken with it asks at once, from when it is told to on, and counts the answers.
struct AsksAtOnce {
    local: Arc<Local>,
    options: LockOptions,
    asks: AtomicBool,
    answers: AtomicU32,
}

impl ArcWake for AsksAtOnce {
    fn wake_by_ref(this: &Arc<Self>) {
        if this.asks.load(Ordering::SeqCst) {
            let call = this.local.lock("of who is woken", this.options.clone());
            let answered = call.now_or_never().is_some();
            this.answers.fetch_add(answered.into(), Ordering::SeqCst);
        }
    }
}

/// A call may find that a lease of another key has run out, and have more to ask itself.
async fn wake_by_a_call(keys_max: u64, asks: LockOptions, woken_asks: LockOptions) {
    let local = Arc::new(bounded(keys_max, 1 << 20));
    local.lock("ends", options(100, 0)).await.unwrap();
    for key in ["stays", "stays too"] {
        local.lock(key, options(10_000, 0)).await.unwrap();
    }
    let asker = Arc::new(AsksAtOnce {
        local: local.clone(),
        options: woken_asks,
        asks: AtomicBool::default(),
        answers: AtomicU32::default(),
    });
    let waker = waker(asker.clone());
    let mut waits = Box::pin(local.lock("ends", forever(1000)));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Its own timer wakes it here.
    tokio::time::advance(ms(100)).await;
    asker.asks.store(true, Ordering::SeqCst);
    assert!(!std::ptr::eq(local.shards.of("ends"), local.shards.of("of another part")));
    _ = local.lock("of another part", asks).await;
    assert_eq!(asker.answers.load(Ordering::SeqCst), 1, "it was woken once, and answered");
    waits.await.unwrap();
}

#[test]
fn who_is_woken_by_a_call_may_ask_at_once() {
    let (end, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(wake_by_a_call(3, options(100, 0), options(100, 0)));
        end.send(()).unwrap();
    });
    // It would wait for itself, for ever.
    let ended = ended.recv_timeout(Duration::from_secs(20));
    assert!(ended.is_ok(), "{ended:?}");
}

/// Whoever is woken with it tries every key at once, and counts what it is granted.
struct TriesAll(Arc<Local>, AtomicU32);

impl ArcWake for TriesAll {
    fn wake_by_ref(this: &Arc<Self>) {
        for key in keys() {
            let granted = matches!(this.0.try_lock(&key, ms(100)).now_or_never(), Some(Ok(_)));
            this.1.fetch_add(granted.into(), Ordering::SeqCst);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_woken_by_a_closing_gets_no_key_of_any_part() {
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
