//! A client of Redis that its owner drives: the strategy's handle, the driver and the backend as
//! they ship, without a runtime.
//!
//! The simulator takes each turn itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use super::{Redis, RedisOptions, backend::Backend, dial::Dial};
use crate::{
    Instant, KeyedMutex,
    client::{backend::Backend as _, driver::Driver},
};

/// A driver with its backend, one turn at a time.
pub(crate) struct Machine {
    driver: Driver<Backend>,
    woken: Arc<Woken>,
}

/// Whether one future of a connection has woken another.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Machine {
    /// A client as users hold it, and the driver to be turned.
    pub(crate) fn start(
        options: RedisOptions,
        dial: Box<dyn Dial>,
        seed: u64,
    ) -> (Arc<dyn KeyedMutex>, Self) {
        let (redis, driver) = Redis::assemble(options, dial, seed);
        (Arc::new(redis), Self { driver, woken: Arc::default() })
    }

    /// One turn. Whether it goes on.
    pub(crate) fn step(&mut self) -> bool {
        // Moves the bytes that have arrived, as the wait before a turn does, until nothing more
        // moves.
        let waker = Waker::from(self.woken.clone());
        let context = &mut Context::from_waker(&waker);
        while self.driver.backend_mut().poll_arrived(context).is_pending()
            && self.woken.0.swap(false, Ordering::Relaxed)
        {}
        self.driver.step(None).is_continue()
    }

    /// When the next turn must come although nothing arrives.
    pub(crate) fn next_wake(&self) -> Instant {
        self.driver.next_wake()
    }

    /// Why the client failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        self.driver.failure().map(ToString::to_string)
    }

    /// How many requests of this process are pending.
    pub(crate) fn pending(&self) -> usize {
        self.driver.pending()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.driver.backend().status(0)
    }
}
