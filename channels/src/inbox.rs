//! The incoming queue of a channel, bounded in frames and in bytes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, time::Instant};

use crate::{Counters, Received};

/// The incoming queue of a channel. A frame that does not fit is dropped and counted.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    arrived: Notify,
    counts: Arc<Counts>,
    frames_max: usize,
    bytes_max: usize,
}

/// A channel's [`Counters`], which outlive its connection.
#[derive(Default)]
pub(crate) struct Counts(Mutex<Counters>);

#[derive(Default)]
struct Queue {
    /// Each with its arrival, if it is delayed.
    received: VecDeque<(Option<Instant>, Received)>,
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
    /// A queue of at most `frames_max` frames of together at most `bytes_max`.
    pub(crate) fn new(counts: Arc<Counts>, frames_max: usize, bytes_max: usize) -> Arc<Self> {
        let (queue, arrived) = (Mutex::default(), Notify::new());
        Arc::new(Self { queue, arrived, counts, frames_max, bytes_max })
    }

    #[cfg(any(feature = "redis", feature = "tcp"))]
    pub(crate) fn push(&self, received: Received) {
        self.push_at(None, received);
    }

    /// Enqueues what can be received from `arrival` on.
    pub(crate) fn push_at(&self, arrival: Option<Instant>, received: Received) {
        let mut queue = self.lock();
        if queue.closed {
            return;
        }
        let bytes = queue.bytes.saturating_add(received.bytes());
        if queue.received.len() >= self.frames_max || bytes > self.bytes_max {
            self.counts.lock().dropped_incoming += 1;
            tracing::debug!("incoming queue full, dropped a frame");
            return;
        }
        self.counts.lock().received += 1;
        queue.bytes = bytes;
        queue.received.push_back((arrival, received));
        drop(queue);
        self.arrived.notify_one();
    }

    /// Takes the head, once there is one; `None` once closed. Cancel safe.
    pub(crate) async fn receive(&self) -> Option<Received> {
        loop {
            let arrived = self.arrived.notified();
            match self.take() {
                Ok(received) => return received,
                Err(None) => arrived.await,
                Err(Some(arrival)) => tokio::time::sleep_until(arrival).await,
            }
        }
    }

    /// Takes the head, if there is one.
    pub(crate) fn try_receive(&self) -> Option<Received> {
        self.take().ok().flatten()
    }

    /// Ends it: nothing more is received.
    pub(crate) fn close(&self) {
        *self.lock() = Queue { closed: true, ..Queue::default() };
        self.arrived.notify_one();
    }

    /// The head, or `None` once closed.
    ///
    /// # Errors
    ///
    /// When the head arrives, if there is one: nothing has arrived so far.
    fn take(&self) -> Result<Option<Received>, Option<Instant>> {
        let mut queue = self.lock();
        if queue.closed {
            return Ok(None);
        }
        if let Some((Some(arrival), _)) = queue.received.front()
            && *arrival > Instant::now()
        {
            return Err(Some(*arrival));
        }
        let (_, received) = queue.received.pop_front().ok_or(None)?;
        queue.bytes -= received.bytes();
        Ok(Some(received))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
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
        inbox.lock().received.len()
    }

    #[test]
    fn inbox_is_bounded_in_frames() {
        let inbox = inbox(2, 100);
        for _ in 0..3 {
            inbox.push(frame(1));
        }
        assert_eq!(waiting(&inbox), 2);
        assert_eq!((inbox.counts.get().received, inbox.counts.get().dropped_incoming), (2, 1));
        inbox.try_receive().unwrap();
        inbox.push(frame(100));
        assert_eq!(waiting(&inbox), 1, "too long");
        inbox.push(frame(99));
        assert_eq!(waiting(&inbox), 2);
    }

    #[test]
    fn inbox_is_bounded_in_bytes() {
        let inbox = inbox(10, 100);
        for bytes in [60, 41, 40] {
            inbox.push(frame(bytes));
        }
        assert_eq!(waiting(&inbox), 2, "101 bytes");
        inbox.try_receive().unwrap();
        inbox.push(frame(60));
        assert_eq!(waiting(&inbox), 2, "what was taken does not count");
    }

    #[tokio::test]
    async fn closed_inbox_receives_nothing() {
        let inbox = inbox(10, 100);
        inbox.push(frame(1));
        inbox.close();
        inbox.push(frame(1));
        assert_eq!((inbox.receive().await, inbox.try_receive()), (None, None));
    }
}
