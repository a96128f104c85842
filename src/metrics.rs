//! The metrics of guards, for the facade `metrics`; no-ops without that feature.

use gaggle_strategies::{
    Error,
    clock::{Clock, Instant},
    lock::LossCause,
};

/// A time that is measured with the feature `metrics` alone: it reads the clock.
pub(crate) struct Stopwatch {
    #[cfg(feature = "metrics")]
    started: Instant,
}

#[cfg(feature = "metrics")]
impl Stopwatch {
    pub(crate) fn start(clock: &dyn Clock) -> Self {
        Self { started: clock.now() }
    }

    /// Records the wait of a lock that was granted, and starts to measure how long it is held.
    pub(crate) fn granted(self, clock: &dyn Clock) -> Self {
        let now = clock.now();
        metrics::counter!("gaggle_locks_granted_total").increment(1);
        metrics::histogram!("gaggle_lock_wait_seconds").record(now.since(self.started));
        Self { started: now }
    }

    /// Records how long the lock was held, until `now`.
    pub(crate) fn released(&self, now: Instant) {
        metrics::histogram!("gaggle_lock_hold_seconds").record(now.since(self.started));
    }
}

#[cfg(not(feature = "metrics"))]
impl Stopwatch {
    pub(crate) fn start(_: &dyn Clock) -> Self {
        Self {}
    }

    pub(crate) fn granted(self, _: &dyn Clock) -> Self {
        self
    }

    pub(crate) fn released(&self, _: Instant) {}
}

/// Creates the counters of a `Locker` at zero. Prometheus computes no increase from the first value
/// of a series, so an alert would otherwise miss a process's first loss.
pub(crate) fn create() {
    const REASONS: [&str; 9] = [
        "timed_out",
        "held",
        "unavailable",
        "unknown",
        "closed",
        "failed",
        "limit",
        "withdrawn",
        "invalid",
    ];
    const CAUSES: [&str; 3] = ["deadline", "forced", "reported"];
    #[cfg(feature = "metrics")]
    metrics::counter!("gaggle_locks_granted_total").increment(0);
    for reason in REASONS {
        add(0, "gaggle_locks_refused_total", ("reason", reason));
    }
    for cause in CAUSES {
        add(0, "gaggle_locks_lost_total", ("cause", cause));
    }
}

/// Counts a lock call that was not granted.
pub(crate) fn refused(error: &Error) {
    let reason = match error {
        Error::TimedOut(_) => "timed_out",
        Error::Held(_) => "held",
        Error::Unavailable { .. } => "unavailable",
        Error::Unknown => "unknown",
        Error::Closed => "closed",
        Error::Failed { .. } => "failed",
        Error::Limit { .. } => "limit",
        Error::Withdrawn => "withdrawn",
        _ => "invalid",
    };
    add(1, "gaggle_locks_refused_total", ("reason", reason));
}

/// Counts a lock that its guard lost.
pub(crate) fn lost(cause: LossCause) {
    let cause = match cause {
        LossCause::Deadline => "deadline",
        LossCause::Forced => "forced",
        _ => "reported",
    };
    add(1, "gaggle_locks_lost_total", ("cause", cause));
}

#[cfg(feature = "metrics")]
fn add(count: u64, name: &'static str, (label, value): (&'static str, &'static str)) {
    metrics::counter!(name, label => value).increment(count);
}

#[cfg(not(feature = "metrics"))]
fn add(_: u64, _: &'static str, _: (&'static str, &'static str)) {}
