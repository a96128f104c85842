use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{Clock, Instant};

/// A clock that the test moves.
#[derive(Debug, Default)]
pub(super) struct Hand(AtomicU64);

impl Hand {
    pub(super) fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Instant {
        Instant::from_origin(Duration::from_millis(self.0.load(Ordering::SeqCst)))
    }
}
