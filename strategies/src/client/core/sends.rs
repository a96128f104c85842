//! The sends of one request, and how far each got.

use crate::{
    client::{
        backend::Cause,
        commands::{Copies, Fate},
    },
    clock::Instant,
};

/// The fate of each send of one request.
#[derive(Debug, Default)]
pub(super) struct Sends {
    /// How often the request was submitted since it was last known to have had no effect.
    count: u32,
    last: Last,
    /// An earlier send may still arrive, or has taken effect without a reply.
    unsettled: bool,
    /// The channel may repeat a send.
    many: bool,
    failures: u32,
    cause: Option<Cause>,
    /// Read before the first send: a lease counts from here (contract, rule 2).
    first_sent: Option<Instant>,
}

/// The fate of the last send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// The send has a reply, or never arrived.
    #[default]
    Settled,
    /// The send has no reply, and was not reported as failed.
    InFlight,
    /// The send has failed without a reply.
    NoReply,
}

impl Sends {
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
        self.count += 1;
    }

    pub(super) fn first_sent(&self) -> Option<Instant> {
        self.first_sent
    }

    pub(super) fn count(&self) -> u32 {
        self.count
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
    use crate::error::UnavailableKind;

    fn cause() -> Cause {
        Cause::new(UnavailableKind::Refused, "refused")
    }

    #[test]
    fn only_failures_since_the_last_reply_count() {
        let mut sends = Sends::default();
        sends.submitted(Instant::default(), Copies::One);
        assert_eq!(sends.failed(Fate::Unsent, cause()), 1);
        sends.delayed(cause());
        assert_eq!(sends.failed(Fate::Unsent, cause()), 2);
        sends.replied();
        assert_eq!(sends.failed(Fate::Unsent, cause()), 1);
    }

    /// An earlier send that got none was retransmitted before.
    #[test]
    fn send_after_a_reply_is_no_retransmission() {
        let mut sends = Sends::default();
        assert!(!sends.lacks_reply());
        for (fate, lacks) in [(Fate::NoReply, true), (Fate::Refused, false), (Fate::Unsent, false)]
        {
            sends.submitted(Instant::default(), Copies::One);
            assert!(sends.lacks_reply());
            sends.failed(fate, cause());
            assert_eq!(sends.lacks_reply(), lacks);
        }
        sends.failed(Fate::NoReply, cause());
        sends.replied();
        assert!(!sends.lacks_reply() && sends.may_have_arrived());
    }

    #[test]
    fn later_send_keeps_what_the_earlier_left() {
        let mut sends = Sends::default();
        let [first, second] = [1, 2].map(|ms| Instant::default().after(Duration::from_millis(ms)));
        sends.submitted(first, Copies::Many);
        sends.failed(Fate::NoReply, cause());
        sends.submitted(second, Copies::One);
        sends.failed(Fate::Refused, cause());
        assert_eq!(sends.first_sent(), Some(first), "a grant may be that of the first");
        assert!(sends.is_unsettled() && sends.many);
        sends.orphaned();
        assert!(sends.is_unsettled());
        sends.reset();
        assert_eq!((sends.first_sent(), sends.count()), (None, 0));
        assert!(sends.cause().is_none());
    }
}
