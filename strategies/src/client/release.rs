//! An UNLOCK or a withdrawal until it is answered, or moot.

use smallvec::SmallVec;

use super::{
    call::{Answer, CallId},
    command::{Cause, Command},
    pace::Attempts,
    schedule::Due,
};
use crate::{Error, Instant, Lock, gone};

/// A request to free what one nonce holds or waits for.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) lock: Lock,
    /// The callers that wait for the answer, each with its limit.
    pub(super) callers: SmallVec<[(CallId, Due); 1]>,
    /// A copy of the nonce's LOCK may arrive after this: the granting side must remember it.
    pub(super) copies: bool,
    /// This process was granted the lock.
    pub(super) ours: bool,
    /// This process relied on the lock when the release began.
    pub(super) held: bool,
    pub(super) attempts: Attempts,
    /// Until when it is repeated.
    pub(super) until: Instant,
    pub(super) due: Due,
}

impl Release {
    pub(super) fn command(&self) -> Command {
        Command::Unlock {
            nonce: self.lock.nonce(),
            key: self.lock.key().clone(),
            copies: self.copies || self.attempts.sends() > 0,
            ours: self.ours,
        }
    }

    /// What the granting side's answer means to a caller that waits for it.
    pub(super) fn outcome(&self, now: Instant, held: bool) -> Answer {
        if held {
            return Answer::Unlocked;
        }
        if !self.attempts.is_unsettled() {
            return Answer::Gone;
        }
        // An earlier send, whose answer was lost, may have freed it; or it had ended before.
        match gone(&self.lock, now) {
            Error::Expired => Answer::Failed(Error::Unknown),
            _ if !self.held => Answer::Failed(Error::Unknown),
            _ => Answer::Unlocked,
        }
    }
}

/// What silence until a caller's limit means for a request that nothing takes back. `down` is why
/// nothing can be sent at present.
pub(super) fn unanswered(attempts: &Attempts, down: Option<&Cause>) -> Error {
    if attempts.may_have_arrived() {
        return Error::Unknown;
    }
    let cause = attempts.cause().or(down);
    cause.map_or_else(Error::no_quorum, Cause::to_error)
}
