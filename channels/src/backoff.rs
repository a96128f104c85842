//! The pauses between attempts to connect.

use std::time::Duration;

use rand::RngExt;
use tokio::time::sleep;

/// A pause that doubles, with jitter: between half of it and all of it, so that many processes do
/// not return in step.
pub(crate) struct Backoff {
    range: (Duration, Duration),
    next: Duration,
}

impl Backoff {
    /// Begins with the first of `range`, and grows up to the second.
    pub(crate) fn new(range: (Duration, Duration)) -> Self {
        Self { range, next: range.0 }
    }

    /// The next pause is the first one again.
    pub(crate) fn reset(&mut self) {
        self.next = self.range.0;
    }

    pub(crate) async fn sleep(&mut self) {
        let jittered = rand::rng().random_range(self.next / 2..=self.next);
        self.next = (self.next * 2).min(self.range.1);
        sleep(jittered).await;
    }
}
