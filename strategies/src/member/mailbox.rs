//! What the handle sends its driver, and how much of it may wait there.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    handle::MemberSizes,
    requests::{Answer, Call},
};
use crate::{Inspection, Lock};

/// What the handle sends its driver.
#[derive(Debug)]
pub(super) enum Mail {
    Call {
        call: Call,
        reply: Option<oneshot::Sender<Answer>>,
    },
    Inspect {
        key: Arc<str>,
        reply: oneshot::Sender<Option<Inspection>>,
    },
    Sizes {
        reply: oneshot::Sender<MemberSizes>,
    },
    /// A lock that was lost perhaps before it was watched: lost, unless it is held all the same.
    Recheck {
        lock: Lock,
    },
    /// Withdraws every wait, unlocks these, and ends within the request timeout.
    Close {
        unlock: Vec<Lock>,
        done: oneshot::Sender<()>,
    },
}

/// Mail with the room that it takes in the mailbox, until the driver takes it out.
struct Letter {
    mail: Mail,
    _room: Option<OwnedSemaphorePermit>,
}

/// The handle's end.
#[derive(Debug)]
pub(super) struct Sender {
    letters: mpsc::UnboundedSender<Letter>,
    room: Arc<Semaphore>,
}

/// The driver's end.
pub(super) struct Receiver {
    letters: mpsc::UnboundedReceiver<Letter>,
}

/// Room for a request.
pub(super) struct Room(Option<OwnedSemaphorePermit>);

/// The mailbox is full.
#[derive(Debug)]
pub(super) struct Full;

/// A mailbox for `requests` that have not been taken yet.
pub(super) fn mailbox(requests: usize) -> (Sender, Receiver) {
    let (letters, taken) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
    (Sender { letters, room }, Receiver { letters: taken })
}

impl Sender {
    /// A request that may be refused.
    pub(super) fn ask(&self, mail: Mail) -> Result<(), Full> {
        let room = self.room.clone().try_acquire_owned().map_err(|_| Full)?;
        self.post(mail, Some(room));
        Ok(())
    }

    /// Waits until there is room for a request that must not be refused.
    pub(super) async fn room(&self) -> Room {
        Room(self.room.clone().acquire_owned().await.ok())
    }

    /// The request for which there is room.
    pub(super) fn ask_with(&self, Room(room): Room, mail: Mail) {
        self.post(mail, room);
    }

    /// What makes room, and must never be refused or wait: a withdrawal or a dropped guard, of
    /// which there is at most one for each request that found room; and a watch that begins late.
    pub(super) fn tell(&self, mail: Mail) {
        self.post(mail, None);
    }

    /// Whether the driver has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.letters.is_closed()
    }

    fn post(&self, mail: Mail, room: Option<OwnedSemaphorePermit>) {
        // A driver that has ended drops the mail with the sender of its answer, and whoever waits
        // for that sees it.
        let _ = self.letters.send(Letter { mail, _room: room });
    }
}

impl Receiver {
    /// Takes no more mail.
    pub(super) fn close(&mut self) {
        self.letters.close();
    }

    /// The next mail; `None` once every handle is gone. Cancel safe.
    pub(super) async fn recv(&mut self) -> Option<Mail> {
        self.letters.recv().await.map(|letter| letter.mail)
    }

    /// The next mail, if one waits.
    pub(super) fn try_recv(&mut self) -> Option<Mail> {
        self.letters.try_recv().ok().map(|letter| letter.mail)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn withdrawal() -> Mail {
        Mail::Call { call: Call::GiveUp { caller: 1 }, reply: None }
    }

    #[test]
    fn a_full_mailbox_refuses_requests_and_takes_withdrawals() {
        let (sender, mut receiver) = mailbox(2);
        assert!(sender.ask(withdrawal()).is_ok() && sender.ask(withdrawal()).is_ok());
        assert!(sender.ask(withdrawal()).is_err(), "two wait already");
        sender.tell(withdrawal());
        assert!(receiver.try_recv().is_some());
        assert!(sender.ask(withdrawal()).is_ok(), "one was taken");
    }

    #[tokio::test]
    async fn an_unlock_waits_for_room() {
        let (sender, mut receiver) = mailbox(1);
        let asks = async || sender.ask_with(sender.room().await, withdrawal());
        asks().await;
        let mut waits = std::pin::pin!(asks());
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(receiver.try_recv().is_some());
        assert!(waits.as_mut().now_or_never().is_some());
    }
}
