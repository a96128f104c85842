//! The sends of one request.

use super::command::{Cause, Copies, Fate};
use crate::Instant;

/// The fate of each send of one request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// How often it was submitted since it was last known to have had no effect.
    sends: u32,
    last: Last,
    /// An earlier send may still arrive, or has taken effect without a reply.
    unsettled: bool,
    /// The transport may repeat a send.
    many: bool,
    failures: u32,
    cause: Option<Cause>,
    /// Read before the first send: a lease counts from here (contract, rule 2).
    first_sent: Option<Instant>,
}

/// The fate of the last send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// It has a reply, or never arrived.
    #[default]
    Settled,
    /// It has no reply, and was not reported as failed.
    InFlight,
    /// It has failed without a reply.
    NoReply,
}

impl Attempts {
    /// Whether a send may have arrived, so that the next one may be a copy of it.
    pub(super) fn may_have_arrived(&self) -> bool {
        self.last == Last::InFlight || self.unsettled
    }

    /// Whether the last send has no reply, so that the next one retransmits it.
    pub(super) fn lacks_reply(&self) -> bool {
        self.last != Last::Settled
    }

    /// Whether a send before the one with the reply may have taken effect.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Whether a copy may arrive after the reply to another.
    pub(super) fn has_copies(&self) -> bool {
        self.unsettled || self.many
    }

    pub(super) fn submitted(&mut self, now: Instant, copies: Copies) {
        self.first_sent.get_or_insert(now);
        self.orphaned();
        self.many |= copies == Copies::Many;
        self.last = Last::InFlight;
        self.sends += 1;
    }

    pub(super) fn first_sent(&self) -> Option<Instant> {
        self.first_sent
    }

    pub(super) fn sends(&self) -> u32 {
        self.sends
    }

    /// The last send failed. Returns how often sends have failed.
    pub(super) fn failed(&mut self, fate: Fate, cause: Cause) -> u32 {
        self.last = if fate == Fate::NoReply { Last::NoReply } else { Last::Settled };
        self.unsettled |= self.last == Last::NoReply;
        self.failures += 1;
        self.cause = Some(cause);
        self.failures
    }

    /// The reply to the last send is delayed. An earlier failure is the better cause.
    pub(super) fn delayed(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
    }

    /// The granting side has replied, which makes earlier failures irrelevant.
    pub(super) fn replied(&mut self) {
        self.last = Last::Settled;
        self.failures = 0;
        self.cause = None;
    }

    /// The sends so far will get no reply.
    pub(super) fn orphaned(&mut self) {
        if self.last == Last::InFlight {
            (self.last, self.unsettled) = (Last::NoReply, true);
        }
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
    use std::time::Duration;

    use super::*;
    use crate::UnavailableKind;

    fn cause() -> Cause {
        Cause::new(UnavailableKind::Refused, "refused")
    }

    #[test]
    fn only_failures_since_the_last_reply_count() {
        let mut attempts = Attempts::default();
        attempts.submitted(Instant::default(), Copies::One);
        assert_eq!(attempts.failed(Fate::Unsent, cause()), 1);
        attempts.delayed(cause());
        assert_eq!(attempts.failed(Fate::Unsent, cause()), 2);
        attempts.replied();
        assert_eq!(attempts.failed(Fate::Unsent, cause()), 1);
    }

    /// An earlier send that got none was retransmitted before.
    #[test]
    fn send_after_a_reply_is_no_retransmission() {
        let mut attempts = Attempts::default();
        assert!(!attempts.lacks_reply());
        for (fate, lacks) in [(Fate::NoReply, true), (Fate::Refused, false), (Fate::Unsent, false)]
        {
            attempts.submitted(Instant::default(), Copies::One);
            assert!(attempts.lacks_reply());
            attempts.failed(fate, cause());
            assert_eq!(attempts.lacks_reply(), lacks);
        }
        attempts.failed(Fate::NoReply, cause());
        attempts.replied();
        assert!(!attempts.lacks_reply() && attempts.may_have_arrived());
    }

    #[test]
    fn later_send_keeps_what_the_earlier_left() {
        let mut attempts = Attempts::default();
        let [first, second] = [1, 2].map(|ms| Instant::default().after(Duration::from_millis(ms)));
        attempts.submitted(first, Copies::Many);
        attempts.failed(Fate::NoReply, cause());
        attempts.submitted(second, Copies::One);
        attempts.failed(Fate::Refused, cause());
        assert_eq!(attempts.first_sent(), Some(first), "a grant may be that of the first");
        assert!(attempts.is_unsettled() && attempts.many);
        attempts.orphaned();
        assert!(attempts.is_unsettled());
        attempts.reset();
        assert_eq!((attempts.first_sent(), attempts.sends()), (None, 0));
        assert!(attempts.cause().is_none());
    }
}
