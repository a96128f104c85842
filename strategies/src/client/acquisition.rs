//! A LOCK of this process until it is granted, refused, withdrawn, or out of time.

use std::time::Duration;

use super::{
    call::{LockCall, Until},
    command::{Cause, Command},
    pace::Attempts,
    schedule::Due,
};
use crate::{Error, Instant};

/// How long a withdrawal of an unbounded wait is repeated beyond its lease: past that, the waiter is
/// dropped with its process.
const FOREVER_GRACE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Acquisition {
    pub(super) call: LockCall,
    pub(super) attempts: Attempts,
    /// Read before the first send: the lease counts from here (contract, rule 2).
    pub(super) first_sent: Option<Instant>,
    /// The granting side is known to keep it in its queue.
    pub(super) queued: bool,
    /// How long after it was queued, or checked, it is checked.
    pub(super) check_in: Duration,
    /// It was refused as stale before.
    pub(super) stale: bool,
    /// When it is sent again, or checked once it is queued.
    pub(super) due: Due,
    /// When its call ends.
    pub(super) end: Due,
}

impl Acquisition {
    pub(super) fn new(call: LockCall) -> Self {
        Self {
            call,
            attempts: Attempts::default(),
            first_sent: None,
            queued: false,
            check_in: Duration::ZERO,
            stale: false,
            due: Due::default(),
            end: Due::default(),
        }
    }

    pub(super) fn command(&self) -> Command {
        let LockCall { nonce, ref key, lease, until, ref owner, .. } = self.call;
        Command::Lock {
            nonce,
            key: key.clone(),
            lease,
            until,
            owner: owner.clone(),
            copies: self.attempts.may_have_arrived(),
        }
    }

    /// Whether the granting side may know of it.
    pub(super) fn may_be_there(&self) -> bool {
        self.queued || self.attempts.may_have_arrived()
    }

    /// Until when its withdrawal is repeated: past it, the lease that it would end is over.
    pub(super) fn withdrawn_by(&self, now: Instant) -> Instant {
        let end = match self.call.until {
            Until::Forever => now.after(FOREVER_GRACE),
            Until::Now => now,
            Until::At(end) => end.max(now),
        };
        end.after(self.call.lease)
    }

    /// What it means that the call's time is over. `down` is why nothing can be sent at present.
    pub(super) fn out_of_time(&self, down: Option<Option<&Cause>>) -> Error {
        let cause = match down {
            Some(cause) => cause.or_else(|| self.attempts.cause()),
            None => self.attempts.cause(),
        };
        let unreachable = down.is_some() || (!self.queued && cause.is_some());
        if self.call.tries && self.attempts.may_have_arrived() {
            Error::Unknown
        } else if unreachable || self.call.tries {
            cause.map_or_else(Error::no_quorum, Cause::to_error)
        } else {
            Error::TimedOut
        }
    }
}
