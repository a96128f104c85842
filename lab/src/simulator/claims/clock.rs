//! The clock of a process: the runtime's virtual time, at another rate.

use std::{
    future::Future,
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use gaggle_strategies::clock::{Clock, Instant};
use tokio::time;

use crate::simulator::clock::TRUE_RATE;

/// The reading of each clock as the run begins, and of the wall clocks.
const ORIGIN: u64 = 1_000_000_000;
const WALL_ORIGIN: u64 = 1_700_000_000_000_000_000;
/// How long a reading takes. Without it a driver that busy-polls would stop virtual time.
const READING: u64 = 1_000;

/// A clock that runs at `rate` millionths of true time.
#[derive(Debug)]
pub(super) struct ProcessClock {
    begun: time::Instant,
    rate: u64,
    latest: AtomicU64,
}

impl ProcessClock {
    pub(super) fn new(begun: time::Instant, rate: u64) -> Self {
        Self { begun, rate, latest: AtomicU64::new(0) }
    }

    fn passed(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).expect("centuries")
    }

    fn shown(&self) -> u64 {
        ORIGIN + self.passed() * self.rate / TRUE_RATE
    }

    /// The reading, which takes no time.
    pub(super) fn peek(&self) -> Instant {
        Instant::from_origin(Duration::from_nanos(self.shown()))
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Instant {
        let latest = self.latest.load(Ordering::Relaxed);
        let read = self.shown().max(latest + READING);
        self.latest.store(read, Ordering::Relaxed);
        Instant::from_origin(Duration::from_nanos(read))
    }

    fn wall_nanos(&self) -> u64 {
        WALL_ORIGIN + self.passed()
    }

    fn sleep_until<'a>(&'a self, at: Instant) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let rest = at.since(self.peek());
                if rest.is_zero() {
                    return;
                }
                let true_rest = rest.mul_f64(TRUE_RATE as f64 / self.rate as f64);
                time::sleep(true_rest).await;
            }
        })
    }
}
