use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

/// While requests come the poller sleeps no longer than this, a fraction of what a request may take.
///
/// Where the runtime knows of no timer that ends earlier, each new one makes it write to itself, so as
/// not to sleep too long: a system call, and another turn of its loop or a thread woken. Every
/// request has a timer, and hardly any comes to its end. So there is one that ends before them all.
pub(super) const BEAT: Duration = Duration::from_millis(250);

/// Nobody has to be told: no timer, and no waking, while nothing is asked.
const STILL: u8 = 0;
/// The poller sleeps for a beat, in which nothing was asked yet.
const IDLE: u8 = 1;
/// And something was.
const BUSY: u8 = 2;

/// Whether requests come, as the poller needs to know it.
#[derive(Debug, Default)]
pub(super) struct Beat(AtomicU8);

impl Beat {
    /// There is a request. Returns whether the poller must be woken.
    pub(super) fn is_to_begin(&self) -> bool {
        self.0.load(Ordering::Relaxed) != BUSY && self.0.swap(BUSY, Ordering::AcqRel) == STILL
    }

    /// Whether the poller is to sleep for a beat: until it has slept through one without a request.
    pub(super) fn goes_on(&self) -> bool {
        let sleeps = |state| if state == BUSY { IDLE } else { STILL };
        let before =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| Some(sleeps(state)));
        before.is_ok_and(|state| state == BUSY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_a_request_and_ends_with_a_beat_without_one() {
        let beat = Beat::default();
        assert!(!beat.goes_on(), "nothing was asked");
        assert!(beat.is_to_begin());
        assert!(!beat.is_to_begin(), "the poller knows");
        assert!(beat.goes_on());
        assert!(!beat.is_to_begin(), "it sleeps for a beat, and will see");
        assert!(beat.goes_on());
        assert!(!beat.goes_on(), "a beat without a request");
        assert!(beat.is_to_begin(), "the poller sleeps without a timer");
    }
}
