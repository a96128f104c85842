use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Member, mailbox::Mail};
use crate::{
    Error, Nonce,
    member::requests::{Answer, Call, CallerId},
    planted::{Bug, planted},
};

/// A request under way. Dropped before it is disarmed, it is taken back.
pub(super) struct Asking<'a> {
    pub(super) member: &'a Member,
    pub(super) caller: CallerId,
    pub(super) reply: oneshot::Receiver<Answer>,
    pub(super) cancel: Option<Cancel>,
}

pub(super) enum Cancel {
    Withdraw { key: Arc<str>, nonce: Nonce },
    GiveUp,
}

impl Asking<'_> {
    /// The request succeeded: nothing to take back.
    pub(super) fn disarm(mut self) {
        self.cancel = None;
    }

    /// The request was answered with `error`: nothing to take back.
    pub(super) fn ended(self, error: Error) -> Error {
        self.disarm();
        error
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if planted(Bug::CancelLeavesWaiter) {
            return;
        }
        let caller = self.caller;
        let call = match self.cancel.take() {
            Some(Cancel::Withdraw { key, nonce }) => Call::Cancel { caller, key, nonce },
            Some(Cancel::GiveUp) => Call::GiveUp { caller },
            None => return,
        };
        self.member.mail.tell(Mail::Call { call, reply: None });
    }
}
