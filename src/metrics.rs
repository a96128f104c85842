//! The metrics of guards, for the facade `metrics`; no-ops without that feature.

use std::time::Duration;

use gaggle_strategies::{
    Error,
    clock::{Clock, Instant},
    lock::LossCause,
};

/// When something began, with the feature `metrics` alone: it reads the clock.
pub(crate) struct Stopwatch(Option<Instant>);

impl Stopwatch {
    pub(crate) fn start(clock: &dyn Clock) -> Self {
        Self(cfg!(feature = "metrics").then(|| clock.now()))
    }

    /// A lock was granted after this wait.
    pub(crate) fn granted(&self, clock: &dyn Clock) {
        #[cfg(feature = "metrics")]
        metrics::counter!("gaggle_locks_granted_total").increment(1);
        self.stop("gaggle_lock_wait_seconds", clock);
    }

    /// A guard has held its lock for this long.
    pub(crate) fn released(&self, clock: &dyn Clock) {
        self.stop("gaggle_lock_hold_seconds", clock);
    }

    fn stop(&self, name: &'static str, clock: &dyn Clock) {
        if let Some(started) = self.0 {
            record(name, clock.now().since(started));
        }
    }
}

/// Creates the counters of a `Locker` at zero: from the first value of a series Prometheus computes
/// no increase, and an alert would miss a process's first loss.
pub(crate) fn create() {
    const REASONS: [&str; 8] =
        ["timed_out", "held", "unavailable", "unknown", "closed", "failed", "limit", "invalid"];
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

#[cfg(feature = "metrics")]
fn record(name: &'static str, span: Duration) {
    metrics::histogram!(name).record(span);
}

#[cfg(not(feature = "metrics"))]
fn record(_: &'static str, _: Duration) {}
