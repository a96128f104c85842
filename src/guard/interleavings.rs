//! Goal: a lost lock stays lost, and every task that waits for the loss is woken, in every
//! interleaving of users, keep-alive, clock and strategy.
//!
//! Method: `shuttle` chooses the next thread whenever one reads the clock, waits, or calls the
//! strategy, at random and by PCT. A thread of the test advances time. `shuttle` reports a task
//! that is never woken as a deadlock.

use std::{future::Future, pin::Pin, sync::atomic::Ordering};

use async_trait::async_trait;
use gaggle_strategies::{
    Capabilities, Inspection, LockOptions,
    clock::{Clock, Instant},
    implement::{LossRegistry, LossWatch},
};
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

/// Lets another thread run.
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

/// A clock after whose reading another thread may run first.
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

/// A strategy that grants every extension, with a delay.
struct Willing {
    clock: Arc<Moments>,
    losses: LossRegistry,
}

#[async_trait]
impl KeyedMutex for Willing {
    async fn lock(&self, _: &str, _: LockOptions) -> Result<Lock, Error> {
        unreachable!("the test makes its locks")
    }

    async fn unlock(&self, lock: &Lock) -> Result<(), Error> {
        shuttle::future::yield_now().await;
        self.losses.report(lock, LossCause::Ended, None);
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
        self.losses.lose_all();
    }

    fn release(&self, lock: &Lock) {
        self.losses.report(lock, LossCause::Ended, None);
    }

    fn watch(&self, lock: &Lock) -> LossWatch {
        self.losses.watch(lock)
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }
}

/// A guard of one lease, which began now.
fn held() -> (Arc<Guard>, Arc<Willing>) {
    let clock = Arc::new(Moments::default());
    let strategy = Arc::new(Willing { clock: clock.clone(), losses: LossRegistry::default() });
    let deadline = clock.now().after(LEASE);
    let lock = Lock::new("k", Nonce::from_u128(7), 1, Some(deadline));
    let held = Stopwatch::start(&*clock);
    (Arc::new(Guard::new(strategy.clone(), None, lock, held)), strategy)
}

/// Looks three times; asserts that a loss stays one.
fn look(guard: &Guard) {
    let looks = [(); 3].map(|()| guard.is_valid());
    assert!(looks.is_sorted_by(|earlier, later| earlier >= later), "lost, and valid again");
}

fn all<const N: usize>(threads: [thread::JoinHandle<()>; N]) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// An extension must not revive a lock whose expiry another thread has observed.
#[test]
fn extend_at_deadline_revives_nothing() {
    explore("extend_at_deadline_revives_nothing", || {
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
fn notified_loss_is_final() {
    explore("notified_loss_is_final", || {
        let (guard, strategy) = held();
        let (extended, watched) = (guard.clone(), guard.clone());
        all([
            thread::spawn(move || drop(block_on(extended.extend(LEASE)))),
            thread::spawn(move || {
                block_on(watched.lost());
                assert!(!watched.is_valid(), "lost, and valid again");
            }),
            thread::spawn(move || (0..6).for_each(|_| strategy.clock.pass(6))),
        ]);
    });
}

#[test]
fn loss_during_an_extension_is_notified() {
    explore("loss_during_an_extension_is_notified", || {
        let (guard, strategy) = held();
        let (extended, watched) = (guard.clone(), guard.clone());
        all([
            thread::spawn(move || drop(block_on(extended.extend(LEASE)))),
            thread::spawn(move || {
                block_on(watched.lost());
                look(&watched);
                assert!(!watched.is_valid());
            }),
            thread::spawn(move || block_on(strategy.close())),
        ]);
        assert!(!guard.is_valid());
    });
}

/// Keeps `lease` alive for two leases, while time passes until that has ended.
fn keep(lease: Arc<Lease>, clock: Arc<Moments>) -> [thread::JoinHandle<()>; 2] {
    let (ended, until) = (Arc::new(AtomicBool::new(false)), clock.now().after(LEASE * 2));
    let keeping = thread::spawn({
        let ended = ended.clone();
        move || {
            block_on(keepalive::run(&lease, LEASE, until));
            ended.store(true, Ordering::SeqCst);
        }
    });
    let passing = thread::spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            clock.pass(3);
            thread::yield_now();
        }
        // Beyond the last extension.
        clock.pass(100);
    });
    [keeping, passing]
}

#[test]
fn kept_lease_ends_and_stays_lost() {
    explore("kept_lease_ends_and_stays_lost", || {
        let (guard, strategy) = held();
        let threads = keep(guard.lease.clone(), strategy.clock.clone());
        block_on(guard.lost());
        assert!(!guard.is_valid(), "lost, and valid again");
        look(&guard);
        all(threads);
        assert!(!guard.is_valid());
    });
}

#[test]
fn unlock_ends_the_keep_alives_watch() {
    explore("unlock_ends_the_keep_alives_watch", || {
        let (guard, strategy) = held();
        let threads = keep(guard.lease.clone(), strategy.clock.clone());
        let guard = Arc::into_inner(guard).expect("it was not shared");
        let watch = strategy.watch(&guard.lock());
        block_on(guard.unlock()).unwrap();
        assert!(watch.is_lost());
        all(threads);
        drop(watch);
        assert!(strategy.losses.is_empty(), "a watch is left");
    });
}
