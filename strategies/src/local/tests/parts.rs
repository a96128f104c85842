//! Goal: a table in parts keeps the bounds and the nonces of one table.
use std::{
    panic::AssertUnwindSafe,
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
    let options = LocalOptions { keys_max, nonces_max, ..LocalOptions::default() };
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

/// Each part counts its own tokens: the former acquisition of a nonce may have a greater one.
#[tokio::test(start_paused = true)]
async fn a_nonce_that_ended_on_one_key_is_not_lost_on_another() {
    let local = bounded(1 << 20, 1 << 20);
    let given = LockOptions::default().nonce(Nonce::from_u128(7));
    let keys = keys();
    for _ in 0..10 {
        let drawn = local.lock(&keys[0], LockOptions::default()).await.unwrap();
        local.unlock(&drawn).await.unwrap();
    }
    let former = local.lock(&keys[0], given.clone()).await.unwrap();
    local.unlock(&former).await.unwrap();
    let mut smaller = 0;
    for key in &keys[1..] {
        // Until the nonce is forgotten.
        tokio::time::advance(ms(86_400_000)).await;
        let lock = local.lock(key, given.clone()).await.unwrap();
        let watch = local.watch(&lock);
        assert!(local.watch(&former).is_lost());
        assert!(!watch.is_lost(), "{key}");
        local.unlock(&lock).await.unwrap();
        assert!(watch.is_lost(), "{key}");
        smaller += usize::from(lock.fencing_token() < former.fencing_token());
    }
    assert!(smaller > 0);
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

#[tokio::test(start_paused = true)]
async fn a_nonce_takes_no_second_key_wherever_that_is() {
    // contract rule 6
    let local = local();
    let nonce = Nonce::from_u128(9);
    let given = || options(1000, 0).nonce(nonce);
    let lock = local.lock("first", given()).await.unwrap();
    for key in keys() {
        assert_error!(local.lock(&key, given()).await, Error::Spent);
    }
    local.unlock(&lock).await.unwrap();
    for key in keys() {
        assert_error!(local.lock(&key, given()).await, Error::Spent);
    }
    // Forgotten with its age, as in the part that remembered it.
    tokio::time::advance(ms(31_000)).await;
    local.lock("orders/1", given()).await.unwrap();
}

/// Threads that look for room at one time neither lose any nor take more than there is.
#[test]
fn room_that_moves_between_parts_stays_what_it_was() {
    let local = Local::with_options(
        LocalOptions { keys_max: 5, ..LocalOptions::default() },
        Arc::new(BootClock),
    );
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
    let given = |nonce| options(100, 0).nonce(Nonce::from_u128(nonce));
    let cases =
        [("a nonce", 100, given(1), given(2)), ("room", 3, options(100, 0), options(100, 0))];
    for (what, keys_max, asks, woken_asks) in cases {
        let (end, ended) = mpsc::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(wake_by_a_call(keys_max, asks, woken_asks));
            end.send(()).unwrap();
        });
        // It would wait for itself, for ever.
        let ended = ended.recv_timeout(Duration::from_secs(20));
        assert!(ended.is_ok(), "asked for {what}: {ended:?}");
    }
}

#[derive(Default)]
struct Wakes(AtomicU32);

impl ArcWake for Wakes {
    fn wake_by_ref(this: &Arc<Self>) {
        this.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_call_finds_to_have_ended_in_several_parts_is_told_by_it() {
    let local = local();
    let part = |key: &str| std::ptr::from_ref(local.shards.of(key));
    let keys = ["ends", "ends too", "ends as well"];
    assert!(part(keys[0]) != part(keys[1]) && part(keys[1]) != part(keys[2]));
    assert!(
        part(keys[0]) != part(keys[2]) && keys.iter().all(|key| part(key) != part("asked for"))
    );
    let (mut losses, mut calls) = (Vec::new(), Vec::new());
    for key in keys {
        let lock = local.lock(key, options(100, 0)).await.unwrap();
        losses.push(local.watch(&lock));
        let wakes = Arc::<Wakes>::default();
        let mut call = Box::pin(local.lock(key, forever(1000)));
        let waker = waker(wakes.clone());
        assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        calls.push((wakes, call));
    }
    // Their own timers wake them here.
    tokio::time::advance(ms(100)).await;
    let before: Vec<_> = calls.iter().map(|(wakes, _)| wakes.0.load(Ordering::SeqCst)).collect();
    let given = options(100, 0).nonce(Nonce::from_u128(7));
    local.lock("asked for", given).await.unwrap();
    for (((wakes, call), before), loss) in calls.into_iter().zip(before).zip(losses) {
        assert_eq!(wakes.0.load(Ordering::SeqCst), before + 1);
        assert!(loss.is_lost());
        call.await.unwrap();
    }
}

/// Panics at one of its readings.
#[derive(Debug)]
struct Fails(TokioClock, AtomicU32);

impl Clock for Fails {
    fn now(&self) -> Instant {
        assert_ne!(self.1.fetch_sub(1, Ordering::SeqCst), 1, "a clock that fails");
        self.0.now()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_found_before_it_panicked_is_told() {
    let clock = Arc::new(Fails(TokioClock::new(), AtomicU32::new(1_000)));
    let local = Local::with_clock(clock.clone());
    local.lock("ends", options(100, 0)).await.unwrap();
    let wakes = Arc::<Wakes>::default();
    let mut call = Box::pin(local.lock("ends", forever(1000)));
    let waker = waker(wakes.clone());
    assert!(call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Its own timer wakes it here.
    tokio::time::advance(ms(100)).await;
    let before = wakes.0.load(Ordering::SeqCst);
    let last = local.shards.others("asked for").last().unwrap();
    assert!(!std::ptr::eq(local.shards.of("ends"), last));
    // One reading when it begins, and one for each of the other parts.
    clock.1.store(16, Ordering::SeqCst);
    let given = options(100, 0).nonce(Nonce::from_u128(7));
    let asked = AssertUnwindSafe(|| local.lock("asked for", given).now_or_never());
    assert!(std::panic::catch_unwind(asked).is_err());
    assert_eq!(wakes.0.load(Ordering::SeqCst), before + 1);
    call.await.unwrap();
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
