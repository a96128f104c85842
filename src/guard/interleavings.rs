//! Goal: whatever order a guard's users, its keep-alive, the clock and the strategy's news come in,
//! who was told that the lock is lost is never told otherwise, and nobody who waits for it is
//! forgotten.
//!
//! Method: `shuttle` chooses who goes on whenever one of them reads the clock, waits, or asks the
//! strategy, at random and by PCT. Time passes where a thread of the test says so. A call that
//! nobody wakes any more is a deadlock, which it reports.

use std::{future::Future, pin::Pin, sync::atomic::Ordering};

use async_trait::async_trait;
use gaggle_strategies::{Capabilities, Clock, Inspection, Instant, LockOptions, implement::Holds};
use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler},
    sync::atomic::AtomicBool,
    thread,
};
use tokio::sync::watch;

use super::*;
use crate::keepalive;

/// Schedules of each kind.
const SCHEDULES: usize = 5_000;
/// Changes of priority in one schedule of the second kind.
const PCT_DEPTH: usize = 3;
const LEASE: Duration = Duration::from_millis(12);

/// Another thread may go on.
fn switch() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

fn explore(name: &str, scenario: fn()) {
    let seed = std::env::var("GAGGLE_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("{name}: seed {seed}; again: GAGGLE_SEED={seed} cargo test --lib {name}");
    let random = RandomScheduler::new_from_seed(seed, SCHEDULES);
    let pct = PctScheduler::new_from_seed(seed, PCT_DEPTH, SCHEDULES);
    let run = Runner::new(random, Config::default()).run(scenario)
        + Runner::new(pct, Config::default()).run(scenario);
    assert_eq!(run, 2 * SCHEDULES, "every schedule was run");
}

/// Whoever has read it may be overtaken before it does anything with what it read.
#[derive(Debug, Default)]
struct Moments(watch::Sender<Instant>);

impl Moments {
    fn pass(&self, ms: u64) {
        switch();
        self.0.send_modify(|now| *now = now.after(Duration::from_millis(ms)));
    }
}

impl Clock for Moments {
    fn now(&self) -> Instant {
        let now = *self.0.borrow();
        switch();
        now
    }

    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let mut time = self.0.subscribe();
        Box::pin(async move {
            time.wait_for(|now| *now >= at).await.expect("the clock outlives it");
        })
    }
}

/// Extends whatever it is asked to, and takes its time.
struct Willing {
    clock: Arc<Moments>,
    holds: Holds,
}

#[async_trait]
impl KeyedMutex for Willing {
    async fn lock(&self, _: &str, _: LockOptions) -> Result<Lock, Error> {
        unreachable!("the test makes its locks")
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        shuttle::future::yield_now().await;
        self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
        Ok(())
    }

    async fn extend(&self, lock: &Lock, duration: Duration) -> Result<Lock, Error> {
        let fresh = self.clock.now().after(duration);
        shuttle::future::yield_now().await;
        Ok(lock.with_deadline(lock.deadline().map_or(fresh, |present| present.max(fresh))))
    }

    async fn inspect(&self, _: &str) -> Result<Option<Inspection>, Error> {
        Ok(None)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none("willing")
    }

    async fn close(&self) {
        self.holds.lose_all();
    }

    fn release(&self, lock: &Lock) {
        self.holds.lose(lock.key(), lock.nonce(), lock.fencing_token());
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.holds.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

/// A guard of one lease, which began now.
fn held() -> (Arc<Guard>, Arc<Willing>) {
    let clock = Arc::new(Moments::default());
    let strategy = Arc::new(Willing { clock: clock.clone(), holds: Holds::default() });
    let deadline = clock.now().after(LEASE);
    let lock = Lock::new("k", Nonce::from_u128(7), 1, Some(deadline));
    (Arc::new(Guard::new(strategy.clone(), lock)), strategy)
}

/// Looks three times; asserts that a loss stays one.
fn look(guard: &Guard) {
    let looks = [(); 3].map(|()| guard.is_valid());
    assert!(looks.is_sorted_by(|earlier, later| earlier >= later), "lost, and valid again");
}

fn all<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Its deadline was once judged by a time read before: an extension that was answered when the
/// lease had run out, and was seen to have, put it off all the same.
#[test]
fn extension_at_the_deadline_revives_no_lost_lock() {
    explore("extension_at_the_deadline_revives_no_lost_lock", || {
        let (guard, strategy) = held();
        let (extended, seen) = (guard.clone(), guard.clone());
        all([
            thread::spawn(move || drop(block_on(extended.extend(LEASE)))),
            thread::spawn(move || look(&seen)),
            thread::spawn(move || (0..2).for_each(|_| strategy.clock.pass(6))),
        ]);
    });
}

#[test]
fn who_was_told_of_the_loss_finds_it_lost() {
    explore("who_was_told_of_the_loss_finds_it_lost", || {
        let (guard, strategy) = held();
        let (extended, told) = (guard.clone(), guard.clone());
        all([
            thread::spawn(move || drop(block_on(extended.extend(LEASE)))),
            thread::spawn(move || {
                block_on(told.lost());
                assert!(!told.is_valid(), "told, and valid again");
            }),
            thread::spawn(move || (0..6).for_each(|_| strategy.clock.pass(6))),
        ]);
    });
}

#[test]
fn news_of_a_loss_beside_an_extension_reaches_everybody() {
    explore("news_of_a_loss_beside_an_extension_reaches_everybody", || {
        let (guard, strategy) = held();
        let (extended, told) = (guard.clone(), guard.clone());
        all([
            thread::spawn(move || drop(block_on(extended.extend(LEASE)))),
            thread::spawn(move || {
                block_on(told.lost());
                look(&told);
                assert!(!told.is_valid());
            }),
            thread::spawn(move || block_on(strategy.close())),
        ]);
        assert!(!guard.is_valid());
    });
}

/// Keeps `hold` alive for two leases, while time passes until that has ended.
fn keep(hold: Arc<Hold>, clock: Arc<Moments>) -> [thread::JoinHandle<()>; 2] {
    let (ended, until) = (Arc::new(AtomicBool::new(false)), clock.now().after(LEASE * 2));
    let keeping = thread::spawn({
        let ended = ended.clone();
        move || {
            block_on(keepalive::run(&hold, LEASE, until));
            ended.store(true, Ordering::SeqCst);
        }
    });
    let passing = thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            clock.pass(3);
            thread::yield_now();
        }
        // Whatever was extended last has run out.
        clock.pass(100);
    });
    [keeping, passing]
}

#[test]
fn a_lease_that_is_kept_alive_ends_and_stays_so() {
    explore("a_lease_that_is_kept_alive_ends_and_stays_so", || {
        let (guard, strategy) = held();
        let threads = keep(guard.hold.clone(), strategy.clock.clone());
        block_on(guard.lost());
        assert!(!guard.is_valid(), "told, and valid again");
        look(&guard);
        all(threads);
        assert!(!guard.is_valid());
    });
}

#[test]
fn an_unlock_beside_the_keep_alive_is_told_and_leaves_no_watch() {
    explore("an_unlock_beside_the_keep_alive_is_told_and_leaves_no_watch", || {
        let (guard, strategy) = held();
        let threads = keep(guard.hold.clone(), strategy.clock.clone());
        let guard = Arc::into_inner(guard).expect("it was not shared");
        let watch = strategy.watch(&guard.lock());
        block_on(guard.unlock()).unwrap();
        assert!(watch.is_lost());
        all(threads);
        drop(watch);
        assert!(strategy.holds.is_empty(), "a watch is left");
    });
}
