//! The bounded mailbox between a handle and its driver.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::sync::{mpsc, oneshot};

use super::calls::{Call, CallId, Reply};

/// A message of the handle.
#[derive(Debug)]
pub(crate) struct Mail {
    pub(crate) call: Call,
    /// The waiting caller, and where its reply goes.
    pub(crate) reply: Option<(CallId, oneshot::Sender<Reply>)>,
}

/// The handle's end.
#[derive(Debug)]
pub(crate) struct Sender {
    mail: mpsc::UnboundedSender<Mail>,
    waiting: Arc<AtomicUsize>,
    capacity: usize,
}

/// The driver's end.
#[derive(Debug)]
pub(crate) struct Receiver {
    mail: mpsc::UnboundedReceiver<Mail>,
    waiting: Arc<AtomicUsize>,
    disconnected: bool,
}

/// The mailbox is full.
#[derive(Debug)]
pub(crate) struct Full;

/// A mailbox for `capacity` requests that the driver has not taken, and as many releases.
pub(crate) fn mailbox(capacity: usize) -> (Sender, Receiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (
        Sender { mail: sender, waiting: waiting.clone(), capacity },
        Receiver { mail: receiver, waiting, disconnected: false },
    )
}

impl Sender {
    /// Sends a request, which is refused if the mailbox is full.
    pub(crate) fn request(&self, mail: Mail) -> Result<(), Full> {
        self.post(mail, self.capacity)
    }

    /// Sends an unlock, a withdrawal or a dropped guard, which frees capacity. It never waits, and
    /// is refused only at twice the capacity.
    pub(crate) fn release(&self, mail: Mail) -> Result<(), Full> {
        self.post(mail, self.capacity.saturating_mul(2))
    }

    /// Sends the last mail, which is never refused.
    pub(crate) fn close(&self, mail: Mail) {
        let _ = self.post(mail, usize::MAX);
    }

    /// Whether the driver has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.mail.is_closed()
    }

    fn post(&self, mail: Mail, most: usize) -> Result<(), Full> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= most {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(Full);
        }
        // A driver that has ended drops the mail and with it the sender of its reply, which its
        // caller sees.
        if self.mail.send(mail).is_err() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(())
    }
}

impl Receiver {
    /// Refuses further mail.
    pub(crate) fn close(&mut self) {
        self.mail.close();
    }

    /// Drops queued mail, and waits for mail that another thread is sending: its caller would
    /// otherwise wait for a reply indefinitely.
    pub(crate) fn close_and_drain(&mut self) {
        self.close();
        while self.waiting.load(Ordering::SeqCst) > 0 {
            if self.try_recv().is_none() {
                std::thread::yield_now();
            }
        }
    }

    /// Whether every handle is dropped and all mail is taken.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.disconnected
    }

    /// How much mail waits.
    pub(crate) fn len(&self) -> usize {
        self.mail.len()
    }

    /// The next mail; `None` once every handle is dropped.
    pub(crate) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Mail>> {
        let mail = ready!(self.mail.poll_recv(context));
        self.disconnected = mail.is_none();
        Poll::Ready(self.taken(mail))
    }

    /// The next mail, if one waits.
    pub(crate) fn try_recv(&mut self) -> Option<Mail> {
        let mail = self.mail.try_recv().ok();
        self.taken(mail)
    }

    fn taken(&self, mail: Option<Mail>) -> Option<Mail> {
        mail.inspect(|_| _ = self.waiting.fetch_sub(1, Ordering::SeqCst))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.close_and_drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::calls::RequestId;

    fn mail() -> Mail {
        Mail { call: Call::Withdraw(RequestId::Query(1)), reply: None }
    }

    #[test]
    fn full_mailbox_takes_only_releases() {
        let (sender, mut receiver) = mailbox(2);
        assert!(sender.request(mail()).is_ok() && sender.request(mail()).is_ok());
        assert!(sender.request(mail()).is_err(), "two wait already");
        assert!(sender.release(mail()).is_ok() && sender.release(mail()).is_ok());
        assert!(sender.release(mail()).is_err(), "twice the capacity waits");
        sender.close(mail());
        for _ in 0..4 {
            assert!(receiver.try_recv().is_some());
        }
        assert!(sender.request(mail()).is_ok(), "one waits");
    }
}
