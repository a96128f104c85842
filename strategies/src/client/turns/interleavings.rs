//! Goal: in every order of a member's callers and its driver, each call completes, a key has at
//! most one holder, a loss reaches its holder, and nothing stays locked without a holder.
//!
//! Method: a member that is its own majority; its driver is a thread of its own, and each caller is
//! another. `shuttle` chooses who runs next whenever one of them reads the clock, looks into the
//! channel, waits, or uses a mutex or an atomic of the crate. Time stands still but while a member
//! closes. A call without a reply is a deadlock, which it reports. At the end the table, the
//! pending requests and the watches must be empty.
//!
//! tokio's channels are single steps here; the inner orders are tokio's to test.

use std::{
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use gaggle_channels::NodeName;
use shuttle::{future::block_on, sync::atomic::AtomicUsize, thread};

use super::{Driver, Turns};
use crate::{
    clock::{Clock, Instant},
    error::Error,
    lock::{Lock, Nonce},
    lock_table::Sizes,
    member::{
        Backend, Member, MemberOptions,
        tests::{seeded, silent::Silent},
    },
    options::{LockOptions, MaxWait},
    sync::{explore_times, found, switch},
};

/// Schedules of each kind: one forms a group, which takes longer than all that follows.
const SCHEDULES: usize = 5_000;

/// A reader may be overtaken. No sleep ends: only a reply ends a wait.
#[derive(Debug, Default)]
struct Moments(AtomicU64);

impl Clock for Moments {
    fn now(&self) -> Instant {
        switch();
        Instant::from_origin(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }

    fn sleep_until<'a>(&'a self, _: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(pending())
    }
}

/// A member that leads alone, and the thread that drives it.
struct Alone {
    member: Arc<Member>,
    driving: thread::JoinHandle<Sizes>,
}

impl Alone {
    fn leading() -> Self {
        let (member, driver, clock) = Self::parts();
        let turns = member.turns.clone();
        turns.put(driver);
        let driving = thread::spawn(move || block_on(drive(&turns, clock)));
        Self { member, driving }
    }

    fn parts() -> (Arc<Member>, Driver<Backend>, Arc<Moments>) {
        let (name, clock) = (NodeName::new("a").unwrap(), Arc::new(Moments::default()));
        let options = MemberOptions::named("test", [name.clone()]).clock(clock.clone());
        let arrived = || {
            switch();
            None
        };
        let channel = Arc::new(Silent { name, arrived });
        let (member, mut driver) = seeded(channel, options, 1);
        while !driver.backend().node().status().leads {
            clock.0.fetch_add(10, Ordering::SeqCst);
            let _ = driver.step();
        }
        (Arc::new(member), driver, clock)
    }

    /// Runs `calls`, each in a separate thread.
    fn beside<const N: usize>(&self, calls: [fn(&Member); N]) -> [thread::JoinHandle<()>; N] {
        calls.map(|call| {
            let member = self.member.clone();
            thread::spawn(move || call(&member))
        })
    }

    /// Closes the member if that was not done, and asserts that nothing is left.
    fn end(self) {
        block_on(self.member.close());
        assert_eq!(self.driving.join().unwrap(), Sizes::default(), "something stays locked");
    }
}

/// Drives the turns as [`Turns::run`] does, but waits without timers. Returns the sizes of the
/// table when the member has closed.
async fn drive(turns: &Turns<Backend>, clock: Arc<Moments>) -> Sizes {
    loop {
        let flow = if turns.with(|driver| driver.is_closing()).unwrap() {
            // A closing driver waits for time to pass, not for a task.
            clock.0.fetch_add(10, Ordering::SeqCst);
            turns.with(Driver::step).unwrap()
        } else {
            poll_fn(|context| turns.poll_step(context)).await
        };
        if flow.is_break() {
            let driver = turns.take().unwrap();
            let table = driver.backend().node().sizes(0).table;
            assert_eq!(driver.pending(), 0, "a request is left");
            driver.end().await;
            return Sizes { nonces_remembered: 0, ..table };
        }
    }
}

fn forever() -> LockOptions {
    LockOptions::default().max_wait(MaxWait::Forever)
}

fn lock(member: &Member) -> Result<Lock, Error> {
    block_on(member.lock("k", &forever()))
}

fn unlock(member: &Member, lock: &Lock) {
    block_on(member.unlock(lock)).unwrap();
}

/// Asserts that it is alone, for a moment.
fn hold(inside: &AtomicUsize) {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold");
    switch();
    inside.fetch_sub(1, Ordering::SeqCst);
}

#[test]
fn every_caller_completes_and_holds_alone() {
    explore_times(SCHEDULES, "every_caller_completes_and_holds_alone", || {
        let (alone, inside) = (Alone::leading(), Arc::new(AtomicUsize::new(0)));
        let callers = [(); 3].map(|()| {
            let (member, inside) = (alone.member.clone(), inside.clone());
            thread::spawn(move || {
                let held = lock(&member).unwrap();
                hold(&inside);
                unlock(&member, &held);
            })
        });
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        alone.end();
    });
}

#[test]
fn lock_dropped_at_reply_is_handed_off() {
    explore_times(SCHEDULES, "lock_dropped_at_reply_is_handed_off", || {
        let alone = Alone::leading();
        let callers = alone.beside([
            |member| {
                let asking = forever();
                let mut call = Box::pin(member.lock("k", &asking));
                // Asked, and perhaps granted before the caller goes.
                let reply = call.as_mut().now_or_never().or_else(|| {
                    thread::yield_now();
                    call.as_mut().now_or_never()
                });
                switch();
                drop(call);
                if let Some(reply) = reply {
                    unlock(member, &reply.unwrap());
                }
            },
            |member| unlock(member, &lock(member).unwrap()),
        ]);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        alone.end();
    });
}

/// A lock that is granted, and not yet taken by its caller, is no exception.
#[test]
fn grant_during_close_is_lost_or_freed() {
    let name = "grant_during_close_is_lost_or_freed";
    explore_times(SCHEDULES, name, || {
        let alone = Alone::leading();
        let member = alone.member.clone();
        let caller = thread::spawn(move || match lock(&member) {
            Ok(held) => {
                block_on(member.watch(&held).lost());
                true
            }
            Err(Error::Closed) => false,
            Err(other) => panic!("{other}"),
        });
        block_on(alone.member.close());
        let taken = caller.join().unwrap();
        let left = alone.driving.join().unwrap();
        // A task that watches it only after the driver has ended leaves it to its lease.
        assert!(taken || left == Sizes::default(), "no process has it, and it stays locked");
    });
}

#[test]
fn unlock_beside_drop_frees_once() {
    explore_times(SCHEDULES, "unlock_beside_drop_frees_once", || {
        let alone = Alone::leading();
        let held = lock(&alone.member).unwrap();
        let watch = alone.member.watch(&held);
        let releasing = {
            let (member, held) = (alone.member.clone(), held.clone());
            thread::spawn(move || member.release(&held))
        };
        let [waiting] = alone.beside([|member| {
            let held = lock(member).unwrap();
            assert!(!member.watch(&held).is_lost(), "another's end is not this one's");
            unlock(member, &held);
        }]);
        match block_on(alone.member.unlock(&held)) {
            Ok(()) | Err(Error::NotHolder) => {}
            Err(other) => panic!("{other}"),
        }
        block_on(watch.lost());
        releasing.join().unwrap();
        waiting.join().unwrap();
        drop(watch);
        alone.end();
    });
}

#[test]
fn extend_revives_no_unlocked_lock() {
    explore_times(SCHEDULES, "extend_revives_no_unlocked_lock", || {
        let alone = Alone::leading();
        let held = lock(&alone.member).unwrap();
        let watch = alone.member.watch(&held);
        let extending = {
            let (member, held) = (alone.member.clone(), held.clone());
            thread::spawn(move || match block_on(member.extend(&held, Duration::from_secs(20))) {
                Ok(extended) => assert_eq!(extended.fencing_token(), held.fencing_token()),
                Err(Error::NotHolder) => {}
                Err(other) => panic!("{other}"),
            })
        };
        unlock(&alone.member, &held);
        assert!(watch.is_lost(), "no process relies on an unlocked lock");
        extending.join().unwrap();
        unlock(&alone.member, &lock(&alone.member).unwrap());
        drop(watch);
        alone.end();
    });
}

#[test]
fn driver_drop_ends_calls_and_holds() {
    explore_times(SCHEDULES, "driver_drop_ends_calls_and_holds", || {
        let (member, driver, _) = Alone::parts();
        let held = Lock::new("k", Nonce::from_u128(7), 1, None);
        let callers = [false, true].map(|watches| {
            let (member, held) = (member.clone(), held.clone());
            thread::spawn(move || match watches {
                true => block_on(member.watch(&held).lost()),
                false => assert!(matches!(lock(&member), Err(Error::Closed))),
            })
        });
        drop(driver);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

/// A request that is not withdrawn leaves a position in the queue that is granted in vain.
#[test]
fn a_forgotten_withdrawal_would_be_found() {
    let found = found("a_forgotten_withdrawal_would_be_found", || {
        let alone = Alone::leading();
        let held = lock(&alone.member).unwrap();
        let asking = forever();
        let mut call = Box::pin(alone.member.lock("k", &asking));
        assert!(call.as_mut().now_or_never().is_none(), "it waits");
        std::mem::forget(call);
        unlock(&alone.member, &held);
        unlock(&alone.member, &lock(&alone.member).unwrap());
    });
    assert!(found.is_some_and(|failure| failure.contains("deadlock")));
}
