//! A clock that a test moves by hand.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::clock::{Clock, Instant};

/// A clock that the test moves.
#[derive(Debug, Default)]
pub(super) struct Hand {
    now: AtomicU64,
    wall_read: AtomicU64,
}

impl Hand {
    pub(super) fn pass(&self, ms: u64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
    }

    /// How often the wall time was asked for: once for each tick, or for several at once.
    pub(super) fn wall_read(&self) -> u64 {
        self.wall_read.load(Ordering::SeqCst)
    }
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        Instant::from_origin(Duration::from_millis(self.now.load(Ordering::SeqCst)))
    }

    fn wall_nanos(&self) -> u64 {
        self.wall_read.fetch_add(1, Ordering::SeqCst);
        1
    }
}
