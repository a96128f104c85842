//! The drop guard of a call, by which a dropped future takes its call back.

use tokio::sync::oneshot;

use super::{
    call::{Call, Reply},
    mailbox::{Full, Mail, Sender},
};

/// A call whose caller waits. Dropping it takes the call back, unless it was disarmed.
pub(super) struct Pending<'a, Q> {
    mail: &'a Sender<Q>,
    undo: Option<Call>,
    receiver: oneshot::Receiver<Reply>,
}

impl<'a, Q> Pending<'a, Q> {
    /// Sends a call. `undo` takes it back; a call without one goes on without its caller.
    pub(super) fn send(mail: &'a Sender<Q>, call: Call, undo: Option<Call>) -> Result<Self, Full> {
        let (sender, receiver) = oneshot::channel();
        let message = Mail::Call { call, reply: Some(sender) };
        if undo.is_some() {
            mail.ask(message)?;
        } else {
            mail.release(message)?;
        }
        Ok(Self { mail, undo, receiver })
    }

    /// The reply; an error once the driver has ended.
    pub(super) async fn reply(&mut self) -> Result<Reply, oneshot::error::RecvError> {
        (&mut self.receiver).await
    }

    /// The reply settles the call: there is nothing to take back.
    pub(super) fn disarm(&mut self) {
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
