//! The drop guard of a call: what a future that is dropped takes back.

use tokio::sync::oneshot;

use super::{
    call::{Answer, Call, CallId},
    mailbox::{Mail, Sender},
};
use crate::{
    Nonce,
    planted::{Bug, planted},
};

/// A request whose caller waits. Dropped before it is disarmed, it is taken back.
pub(super) struct Pending<'a, Q> {
    mail: &'a Sender<Q>,
    undo: Option<Call>,
    reply: oneshot::Receiver<Answer>,
}

/// The driver has ended.
#[derive(Debug)]
pub(super) struct Ended;

impl<'a, Q> Pending<'a, Q> {
    /// A LOCK, which is withdrawn.
    pub(super) fn lock(
        mail: &'a Sender<Q>,
        id: CallId,
        nonce: Nonce,
        reply: oneshot::Receiver<Answer>,
    ) -> Self {
        Self { mail, undo: Some(Call::Withdraw { id, nonce }), reply }
    }

    /// A request that changes nothing once it is abandoned.
    pub(super) fn query(mail: &'a Sender<Q>, id: CallId, reply: oneshot::Receiver<Answer>) -> Self {
        Self { mail, undo: Some(Call::Abandon { id }), reply }
    }

    /// An UNLOCK, which goes on without its caller.
    pub(super) fn unlock(mail: &'a Sender<Q>, reply: oneshot::Receiver<Answer>) -> Self {
        Self { mail, undo: None, reply }
    }

    pub(super) async fn answer(&mut self) -> Result<Answer, Ended> {
        (&mut self.reply).await.map_err(|_| Ended)
    }

    /// The answer settles the request: there is nothing to take back.
    pub(super) fn disarm(mut self) {
        self.undo = None;
    }
}

impl<Q> Drop for Pending<'_, Q> {
    fn drop(&mut self) {
        if planted(Bug::CancelLeavesWaiter) {
            return;
        }
        if let Some(call) = self.undo.take() {
            // Full: twice the capacity is released at once, and the lease's end frees the key.
            let _ = self.mail.release(Mail::Call { call, reply: None });
        }
    }
}
