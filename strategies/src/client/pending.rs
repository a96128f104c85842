//! The drop guard of a call: what a future that is dropped takes back.

use tokio::sync::oneshot;

use super::{
    call::{Answer, Call},
    mailbox::{Full, Mail, Sender},
};
use crate::planted::{Bug, planted};

/// A call whose caller waits. Dropped before it is disarmed, it is taken back.
pub(super) struct Pending<'a, Q> {
    mail: &'a Sender<Q>,
    undo: Option<Call>,
    reply: oneshot::Receiver<Answer>,
}

/// The driver has ended.
#[derive(Debug)]
pub(super) struct Ended;

impl<'a, Q> Pending<'a, Q> {
    /// Sends a call. `undo` takes it back; a call without one goes on without its caller.
    pub(super) fn send(mail: &'a Sender<Q>, call: Call, undo: Option<Call>) -> Result<Self, Full> {
        let (answer, reply) = oneshot::channel();
        let message = Mail::Call { call, reply: Some(answer) };
        if undo.is_some() {
            mail.ask(message)?;
        } else {
            mail.release(message)?;
        }
        Ok(Self { mail, undo, reply })
    }

    pub(super) async fn answer(&mut self) -> Result<Answer, Ended> {
        (&mut self.reply).await.map_err(|_| Ended)
    }

    /// The answer settles the call: there is nothing to take back.
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
