//! The drop guard of a call, by which a dropped future takes its call back.

use tokio::sync::oneshot;

use super::{
    call::{Answer, Call},
    mailbox::{Full, Mail, Sender},
};

/// A call whose caller waits. Dropping it takes the call back, unless it was disarmed.
pub(super) struct Pending<'a, Q> {
    mail: &'a Sender<Q>,
    undo: Option<Call>,
    reply: oneshot::Receiver<Answer>,
}

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

    /// The answer; an error once the driver has ended.
    pub(super) async fn answer(&mut self) -> Result<Answer, oneshot::error::RecvError> {
        (&mut self.reply).await
    }

    /// The answer settles the call: there is nothing to take back.
    pub(super) fn disarm(mut self) {
        self.undo = None;
    }
}

impl<Q> Drop for Pending<'_, Q> {
    fn drop(&mut self) {
        if planted!(CancelLeavesWaiter) {
            return;
        }
        if let Some(call) = self.undo.take() {
            // Full: twice the capacity is released at once, and the lease's end frees the key.
            let _ = self.mail.release(Mail::Call { call, reply: None });
        }
    }
}
