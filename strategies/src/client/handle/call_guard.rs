//! A call of a handle, with the drop guard that withdraws the call of a dropped future.

use tokio::sync::oneshot;

use super::Client;
use crate::{
    client::{
        backend::Backend,
        calls::{Call, CallId, Query, Reply, RequestId},
        mailbox::{Full, Mail},
    },
    clock::Instant,
    error::Error,
};

/// A call whose caller waits. Dropping it withdraws the call, unless it was disarmed.
pub(super) struct CallGuard<'a, B: Backend> {
    client: &'a Client<B>,
    /// The request that dropping withdraws.
    armed: Option<RequestId>,
    receiver: oneshot::Receiver<Reply>,
}

impl<B: Backend> Client<B> {
    /// Sends a call, which the guard withdraws by the id of its request. A call without one goes on
    /// without its caller.
    pub(super) fn send(
        &self,
        id: CallId,
        call: Call,
        request: Option<RequestId>,
    ) -> Result<CallGuard<'_, B>, Error> {
        let (sender, receiver) = oneshot::channel();
        let mail = Mail { call, reply: Some((id, sender)) };
        let sent = match request {
            Some(_) => self.mail.request(mail),
            None => self.mail.release(mail),
        };
        sent.map_err(|Full| self.full())?;
        Ok(CallGuard { client: self, armed: request, receiver })
    }

    pub(super) fn begin(&self, limit: Instant, query: Query) -> Result<CallGuard<'_, B>, Error> {
        let id = self.next_id();
        self.send(id, Call::Query { id, limit, query }, Some(RequestId::Query(id)))
    }

    pub(super) async fn query(&self, limit: Instant, query: Query) -> Result<Reply, Error> {
        self.begin(limit, query)?.finish().await
    }
}

impl<B: Backend> CallGuard<'_, B> {
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

    /// The reply settles the call: there is nothing to withdraw.
    pub(super) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl<B: Backend> Drop for CallGuard<'_, B> {
    fn drop(&mut self) {
        if let Some(id) = self.armed.take()
            && self.client.opener.is_this_process()
        {
            // Full: twice the capacity is released at once, and the lease's end frees the key.
            let _ = self.client.send_now(Call::Withdraw(id));
        }
    }
}
