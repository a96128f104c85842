//! When a request that failed or was not answered is sent again.

use std::time::Duration;

use super::command::{Cause, Copies, Fate};
use crate::random::mix;

/// The pause after a request that failed, doubled with each failure up to the second.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// Jitter, as a function of a seed.
#[derive(Debug)]
pub(super) struct Pace {
    seed: u64,
    drawn: u64,
}

impl Pace {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The pause after this many failures: between half of the back-off and all of it, so that many
    /// clients do not return in step.
    pub(super) fn back_off(&mut self, failures: u32) -> Duration {
        let most = doubled(BACK_OFF, failures);
        self.drawn += 1;
        let half = u64::try_from(most.as_micros() / 2).unwrap_or(u64::MAX).max(1);
        most / 2 + Duration::from_micros(mix(&[self.seed, self.drawn]) % half)
    }
}

/// The first of `range`, doubled once for each repetition after the first, up to the second.
pub(super) fn doubled((least, most): (Duration, Duration), repetitions: u32) -> Duration {
    least.saturating_mul(1 << repetitions.saturating_sub(1).min(16)).min(most)
}

/// What has become of the sends of one request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How often it was submitted since it was last known to have had no effect.
    sends: u32,
    /// The last send was neither answered nor reported as failed.
    in_flight: bool,
    /// An earlier send may still arrive, or has taken effect without an answer.
    unsettled: bool,
    /// The way there may repeat what is sent once.
    many: bool,
    failures: u32,
    cause: Option<Cause>,
}

impl Attempts {
    /// Whether the send that comes now would be a repetition of one that may have arrived.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.in_flight || self.unsettled
    }

    /// Whether an earlier send than the one that was answered may have taken effect.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Whether a copy may arrive after the answer to another.
    pub(super) fn has_copies(&self) -> bool {
        self.unsettled || self.many
    }

    pub(super) fn submitted(&mut self, copies: Copies) {
        self.unsettled |= self.in_flight;
        self.many |= copies == Copies::Many;
        self.in_flight = true;
        self.sends += 1;
    }

    /// How often it was sent so far.
    pub(super) fn sends(&self) -> u32 {
        self.sends
    }

    /// The last send failed. Returns how often sends have failed.
    pub(super) fn failed(&mut self, fate: Fate, cause: Cause) -> u32 {
        self.in_flight = false;
        self.unsettled |= fate == Fate::Unanswered;
        self.failures += 1;
        self.cause = Some(cause);
        self.failures
    }

    /// The granting side has answered: what it said replaces what failures said before.
    pub(super) fn answered(&mut self) {
        self.in_flight = false;
        self.failures = 0;
        self.cause = None;
    }

    /// No answer will come to what was sent.
    pub(super) fn orphaned(&mut self) {
        self.unsettled |= std::mem::take(&mut self.in_flight);
    }

    /// Another granting side has taken over, which no copy reaches.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(super) fn cause(&self) -> Option<&Cause> {
        self.cause.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UnavailableKind;

    #[derive(Debug, thiserror::Error)]
    #[error("refused")]
    struct Refused;

    fn cause() -> Cause {
        Cause::new(UnavailableKind::Refused, Refused)
    }

    #[test]
    fn back_off_doubles_up_to_its_limit() {
        let mut pace = Pace::new(7);
        for (failures, most) in [(1, 5), (2, 10), (3, 20), (6, 160), (7, 250), (1_000, 250)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let pause = pace.back_off(failures);
                assert!((most / 2..=most).contains(&pause), "{failures}: {pause:?}");
            }
        }
    }

    #[test]
    fn a_send_that_never_left_leaves_no_copy() {
        let mut attempts = Attempts::default();
        attempts.submitted(Copies::One);
        assert!(attempts.may_have_arrived() && !attempts.has_copies());
        attempts.failed(Fate::Unsent, cause());
        assert!(!attempts.may_have_arrived());
        attempts.submitted(Copies::One);
        attempts.failed(Fate::Refused, cause());
        assert!(!attempts.may_have_arrived());
        attempts.submitted(Copies::One);
        attempts.failed(Fate::Unanswered, cause());
        assert!(attempts.may_have_arrived() && attempts.has_copies());
    }

    #[test]
    fn an_unanswered_repetition_is_a_copy() {
        let mut attempts = Attempts::default();
        attempts.submitted(Copies::One);
        attempts.submitted(Copies::One);
        assert!(attempts.has_copies());
        attempts.reset();
        assert!(!attempts.may_have_arrived());
        attempts.submitted(Copies::Many);
        assert!(attempts.has_copies() && !attempts.is_unsettled());
    }
}
