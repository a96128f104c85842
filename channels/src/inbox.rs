//! What a channel has received and its owner has not taken, bounded in frames and in bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::{Counters, Received};

/// A queue of what was received. What does not fit is dropped and counted; nothing ever waits to
/// enter it.
pub(crate) struct Inbox {
    queues: Mutex<Queues>,
    arrived: Notify,
    counts: Arc<Counts>,
    frames_max: usize,
    bytes_max: usize,
}

/// A channel's [`Counters`], which outlive its connection.
#[derive(Default)]
pub(crate) struct Counts(Mutex<Counters>);

#[derive(Default)]
struct Queues {
    ready: VecDeque<Received>,
    delayed: BTreeMap<(Instant, u64), Received>,
    numbered: u64,
    bytes: usize,
    closed: bool,
}

impl Counts {
    pub(crate) fn get(&self) -> Counters {
        *self.lock()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a frame that was accepted for sending, or dropped.
    pub(crate) fn sent(&self, accepted: bool) {
        let mut counters = self.lock();
        if accepted {
            counters.sent += 1;
        } else {
            counters.dropped_outgoing += 1;
        }
    }
}

impl Inbox {
    /// At most `frames_max` frames of together at most `bytes_max` wait.
    pub(crate) fn new(counts: Arc<Counts>, frames_max: usize, bytes_max: usize) -> Arc<Self> {
        let (queues, arrived) = (Mutex::default(), Notify::new());
        Arc::new(Self { queues, arrived, counts, frames_max, bytes_max })
    }

    /// Enters what arrives now, or with `at`, then.
    pub(crate) fn push(&self, at: Option<Instant>, received: Received) {
        let mut queues = self.lock();
        if queues.closed {
            return;
        }
        let frames = queues.ready.len() + queues.delayed.len();
        let bytes = queues.bytes.saturating_add(received.bytes());
        if frames >= self.frames_max || bytes > self.bytes_max {
            self.counts.lock().dropped_incoming += 1;
            tracing::debug!("incoming queue full, dropped a frame");
            return;
        }
        self.counts.lock().received += 1;
        queues.bytes = bytes;
        match at {
            None => queues.ready.push_back(received),
            Some(at) => {
                queues.numbered += 1;
                let number = queues.numbered;
                queues.delayed.insert((at, number), received);
            }
        }
        drop(queues);
        self.arrived.notify_one();
    }

    /// Takes the next thing, once there is one; `None` once closed. Cancel safe.
    pub(crate) async fn receive(&self) -> Option<Received> {
        loop {
            let arrived = self.arrived.notified();
            match self.take() {
                Ok(received) => return received,
                Err(None) => arrived.await,
                Err(Some(at)) => {
                    tokio::select! {
                        biased;
                        () = arrived => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// Takes the next thing, if there is one.
    pub(crate) fn try_receive(&self) -> Option<Received> {
        self.take().ok().flatten()
    }

    /// Ends it: nothing more is received.
    pub(crate) fn close(&self) {
        *self.lock() = Queues { closed: true, ..Queues::default() };
        self.arrived.notify_one();
    }

    /// What has arrived by now, and nothing once closed; as an error, when the next thing arrives.
    fn take(&self) -> Result<Option<Received>, Option<Instant>> {
        let mut queues = self.lock();
        if queues.closed {
            return Ok(None);
        }
        if !queues.delayed.is_empty() {
            let now = Instant::now();
            while let Some(first) = queues.delayed.first_entry()
                && first.key().0 <= now
            {
                let received = first.remove();
                queues.ready.push_back(received);
            }
        }
        match queues.ready.pop_front() {
            Some(received) => {
                queues.bytes -= received.bytes();
                Ok(Some(received))
            }
            None => Err(queues.delayed.keys().next().map(|(at, _)| *at)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use super::*;
    use crate::NodeName;

    fn frame(bytes: usize) -> Received {
        Received::Frame { from: NodeName::new("a").unwrap(), frame: vec![0; bytes].into() }
    }

    fn inbox(frames_max: usize, bytes_max: usize) -> Arc<Inbox> {
        Inbox::new(Arc::default(), frames_max, bytes_max)
    }

    fn waiting(inbox: &Inbox) -> usize {
        inbox.lock().ready.len()
    }

    #[test]
    fn inbox_is_bounded_in_frames() {
        let inbox = inbox(2, 100);
        for _ in 0..3 {
            inbox.push(None, frame(1));
        }
        assert_eq!(waiting(&inbox), 2);
        assert_eq!((inbox.counts.get().received, inbox.counts.get().dropped_incoming), (2, 1));
        inbox.try_receive().unwrap();
        inbox.push(None, frame(100));
        assert_eq!(waiting(&inbox), 1, "too long");
        inbox.push(None, frame(99));
        assert_eq!(waiting(&inbox), 2);
    }

    #[test]
    fn inbox_is_bounded_in_bytes() {
        let inbox = inbox(10, 100);
        for bytes in [60, 41, 40] {
            inbox.push(None, frame(bytes));
        }
        assert_eq!(waiting(&inbox), 2, "101 bytes");
        inbox.try_receive().unwrap();
        inbox.push(None, frame(60));
        assert_eq!(waiting(&inbox), 2, "what was taken does not count");
    }

    #[tokio::test]
    async fn closed_inbox_receives_nothing() {
        let inbox = inbox(10, 100);
        inbox.push(None, frame(1));
        inbox.close();
        inbox.push(None, frame(1));
        assert_eq!((inbox.receive().await, inbox.try_receive()), (None, None));
    }
}
