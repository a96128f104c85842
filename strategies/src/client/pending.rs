//! One call of a handle, with the drop guard by which a dropped future takes it back.

use tokio::sync::oneshot;

use super::{
    backend::Backend,
    call::{Call, CallId, Query, Reply},
    handle::Client,
    mailbox::{Full, Mail},
};
use crate::{Error, Instant};

/// A call whose caller waits. Dropping it takes the call back, unless it was disarmed.
pub(super) struct Pending<'a, B: Backend> {
    client: &'a Client<B>,
    undo: Option<Call>,
    receiver: oneshot::Receiver<Reply>,
}

impl<B: Backend> Client<B> {
    /// Sends a call. `undo` takes it back; a call without one goes on without its caller.
    pub(super) fn send(
        &self,
        id: CallId,
        call: Call,
        undo: Option<Call>,
    ) -> Result<Pending<'_, B>, Error> {
        let (sender, receiver) = oneshot::channel();
        let message = Mail { call, reply: Some((id, sender)) };
        let sent = if undo.is_some() { self.mail.ask(message) } else { self.mail.release(message) };
        sent.map_err(|Full| self.full())?;
        Ok(Pending { client: self, undo, receiver })
    }

    pub(super) fn begin(&self, limit: Instant, query: Query) -> Result<Pending<'_, B>, Error> {
        let id = self.next_id();
        self.send(id, Call::Query { id, limit, query }, Some(Call::Abandon { id }))
    }

    pub(super) async fn query(&self, limit: Instant, query: Query) -> Result<Reply, Error> {
        self.begin(limit, query)?.finish().await
    }
}

impl<B: Backend> Pending<'_, B> {
    /// The reply; an error once the driver has ended.
    pub(super) async fn reply(&mut self) -> Result<Reply, Error> {
        (&mut self.receiver).await.map_err(|_| self.client.end_error())
    }

    /// The reply, which settles the call, or its error.
    pub(super) async fn finish(mut self) -> Result<Reply, Error> {
        let reply = self.reply().await?;
        self.disarm();
        match reply {
            Reply::Failed(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// The reply settles the call: there is nothing to take back.
    pub(super) fn disarm(&mut self) {
        self.undo = None;
    }
}

impl<B: Backend> Drop for Pending<'_, B> {
    fn drop(&mut self) {
        if planted!(CancelLeavesWaiter) {
            return;
        }
        if let Some(call) = self.undo.take()
            && self.client.opener.is_this_process()
        {
            // Full: twice the capacity is released at once, and the lease's end frees the key.
            let _ = self.client.send_now(call);
        }
    }
}
