//! Staying awake for an answer that comes soon.
//!
//! A core with nothing to do sleeps, and waking it often takes longer than a server nearby takes to
//! answer. So whoever has asked looks again and again for a while, lets other tasks run in between,
//! and sleeps only then. Where answers come later than that, nearly every request goes without.

use std::time::Duration;

use crate::{Error, Instant};

/// How long one stays awake for an answer: in the order of what waking a core costs.
pub(crate) const SPIN: Duration = Duration::from_micros(100);
/// Longer than this, sleeping costs next to nothing.
const SPIN_MAX: Duration = Duration::from_millis(1);
/// How many requests go without, at the most, before another is tried: it bounds the cost where
/// answers never come in time.
const WITHOUT_MAX: u32 = 63;
/// How often one looks at the most, where a clock stands still.
const LOOKS_MAX: u32 = 10_000;

/// # Errors
///
/// [`Error::InvalidOptions`].
pub(crate) fn check_spin(limit: Duration) -> Result<(), Error> {
    if limit > SPIN_MAX {
        return Err(Error::duration("spin", limit, Duration::ZERO, SPIN_MAX));
    }
    Ok(())
}

/// What is known of how soon answers come.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// How many requests go without after a vigil in vain.
    without: u32,
    /// How many of them are left.
    left: u32,
}

/// One time of staying awake.
#[derive(Debug)]
pub(crate) struct Vigil {
    until: Instant,
    looks: u32,
}

impl Spin {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, without: 0, left: 0 }
    }

    /// A request was sent: whether to stay awake for its answer.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<Vigil> {
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        let vigil = Vigil { until: now.after(self.limit), looks: 0 };
        (!self.limit.is_zero()).then_some(vigil)
    }

    /// Whether the answer came in time.
    pub(crate) fn ended(&mut self, in_time: bool) {
        self.without = if in_time { 0 } else { (2 * self.without + 1).min(WITHOUT_MAX) };
        self.left = self.without;
    }
}

impl Vigil {
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        self.looks += 1;
        now < self.until && self.looks < LOOKS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_origin(Duration::from_micros(micros))
    }

    #[test]
    fn stays_awake_no_longer_than_its_limit() {
        let mut vigil = Spin::new(SPIN).begin(at(7)).unwrap();
        assert!(vigil.goes_on(at(106)) && !vigil.goes_on(at(107)));
    }

    #[test]
    fn a_clock_that_stands_still_does_not_keep_it_awake() {
        let mut vigil = Spin::new(SPIN).begin(at(0)).unwrap();
        let looks = (0..).take_while(|_| vigil.goes_on(at(0))).count();
        assert_eq!(looks, 9_999);
    }

    #[test]
    fn where_answers_come_late_nearly_every_request_goes_without() {
        let mut spin = Spin::new(SPIN);
        let mut tried = Vec::new();
        for request in 0..1_000 {
            if spin.begin(at(request)).is_some() {
                tried.push(request);
                spin.ended(false);
            }
        }
        assert_eq!(tried[..8], [0, 2, 6, 14, 30, 62, 126, 190]);
        spin.ended(true);
        assert!(spin.begin(at(0)).is_some(), "one answer in time suffices");
    }

    #[test]
    fn never_where_it_is_switched_off() {
        assert!(Spin::new(Duration::ZERO).begin(at(0)).is_none());
    }

    #[test]
    fn a_limit_beyond_a_millisecond_is_refused() {
        check_spin(SPIN_MAX).unwrap();
        let refused = check_spin(SPIN_MAX + Duration::from_nanos(1));
        assert!(matches!(refused, Err(Error::InvalidOptions { field: "spin", .. })));
    }
}
