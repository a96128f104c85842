//! One nonce that somebody here wants: what is asked for it, by whom, and how that ends.

use std::{sync::Arc, time::Duration};

use crate::{Instant, Nonce};

/// What is asked of Redis for one nonce.
#[derive(Debug)]
pub(in crate::redis) struct Request {
    pub(in crate::redis) key: Arc<str>,
    pub(in crate::redis) bucket: usize,
    pub(in crate::redis) nonce: Nonce,
    /// The nonce came from the caller: copies of its LOCK may be anywhere.
    pub(in crate::redis) given: bool,
    /// Whole milliseconds.
    pub(in crate::redis) duration: Duration,
    /// As an inspection shows it.
    pub(in crate::redis) owner: Arc<str>,
}

/// One call of `lock` that waits for a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::redis) struct CallerId(pub(super) u64);

/// One LOCK of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) struct AskId(pub(super) u64);

/// A grant, as its caller needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) struct Grant {
    pub(in crate::redis) token: u64,
    pub(in crate::redis) deadline: Instant,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum Outcome {
    Granted(Grant),
    /// Granted and run out, or withdrawn.
    Spent,
    Limit {
        what: &'static str,
        limit: u64,
    },
    Closed,
}

/// An UNLOCK to send for a nonce that nobody wants any more.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Withdrawal {
    pub(in crate::redis) request: Arc<Request>,
    /// A LOCK of this nonce may still be under way.
    pub(in crate::redis) copies: bool,
}

/// A nonce to ask after, or to queue again.
#[derive(Clone, Debug)]
pub(in crate::redis) struct Waiting {
    pub(in crate::redis) request: Arc<Request>,
    /// Until when it waits; `None` for ever.
    pub(in crate::redis) until: Option<Instant>,
}

/// What is sent to whom.
pub(in crate::redis) type Effects<C> = Vec<(C, Outcome)>;

#[derive(Debug)]
pub(super) struct Entry<C> {
    pub(super) request: Arc<Request>,
    /// The order in which nonces came, kept when they queue again.
    pub(super) place: u64,
    /// Read before the first send of this nonce by anybody here.
    pub(super) sent: Instant,
    /// The shortest lease that anybody here has asked for with this nonce: a grant may be of each.
    pub(super) duration: Duration,
    pub(super) until: Option<Instant>,
    pub(super) state: State,
    /// Somebody here holds the lock: nobody else may withdraw it.
    pub(super) taken: bool,
    /// LOCKs sent and not answered, the lost ones included.
    pub(super) unanswered: u32,
    /// A LOCK was sent, answered or not.
    pub(super) was_sent: bool,
    pub(super) callers: Vec<Caller<C>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Redis keeps nothing of it that we know of.
    Asking,
    Queued,
    Granted(Grant),
    Ended,
}

#[derive(Debug)]
pub(super) struct Caller<C> {
    pub(super) id: CallerId,
    /// Taken when the caller is told.
    pub(super) tell: Option<C>,
    /// It waits for news; else for the answer to its own LOCK.
    pub(super) parked: bool,
    /// The LOCK for whose answer it waits.
    pub(super) asks: Option<AskId>,
}

impl<C> Entry<C> {
    /// A LOCK is about to be sent. Returns whether copies of it may be under way.
    pub(super) fn sending(&mut self) -> bool {
        let copies = self.request.given || self.unanswered > 0;
        self.unanswered += 1;
        self.was_sent = true;
        copies
    }

    pub(super) fn tell_parked(&mut self, outcome: Outcome) -> Effects<C> {
        let parked = self.callers.iter_mut().filter(|caller| caller.parked);
        parked.filter_map(|caller| Some((caller.tell.take()?, outcome))).collect()
    }

    /// What must be sent when the last caller has gone.
    pub(super) fn withdrawal(&self) -> Option<Withdrawal> {
        let kept = match self.state {
            State::Granted(_) => !self.taken,
            State::Queued => true,
            State::Asking | State::Ended => self.unanswered > 0 && !self.taken,
        };
        kept.then(|| self.withdrawn())
    }

    /// What must be sent when the handle is closed. An answer may have been read, and what it says not
    /// be noted yet: its caller will find no entry.
    pub(super) fn withdrawal_of_closing(&self) -> Option<Withdrawal> {
        let unnoted = self.state == State::Asking && self.was_sent && !self.taken;
        if unnoted { Some(self.withdrawn()) } else { self.withdrawal() }
    }

    fn withdrawn(&self) -> Withdrawal {
        let copies = self.request.given || self.unanswered > 0;
        Withdrawal { request: self.request.clone(), copies }
    }

    pub(super) fn waiting(&self) -> Waiting {
        Waiting { request: self.request.clone(), until: self.until }
    }
}
