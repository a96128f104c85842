//! The incoming queue of a channel, bounded in frames and in bytes, and its counters.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{ChannelError, Counters, INCOMING_FRAMES_MAX, QUEUE_BYTES, Received};

/// The incoming queue of a channel, closed until it connects. A frame that does not fit is dropped
/// and counted.
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    arrived: Notify,
    counters: Mutex<Counters>,
    frames_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Queue {
    received: VecDeque<Received>,
    bytes: usize,
    open: bool,
    /// How often it was closed: a wait ends with the connection on which it began.
    closings: u64,
}

/// What a queue gives out, seen from a wait for it.
enum Next {
    Head(Received),
    Empty,
    /// The queue is closed, or was closed after the wait began.
    Closed,
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new(INCOMING_FRAMES_MAX, QUEUE_BYTES)
    }
}

impl Inbox {
    /// A queue of at most `frames_max` frames of together at most `bytes_max`.
    fn new(frames_max: usize, bytes_max: usize) -> Self {
        let (queue, arrived, counters) = (Mutex::default(), Notify::new(), Mutex::default());
        Self { queue, arrived, counters, frames_max, bytes_max }
    }

    pub(crate) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a frame that was accepted for sending, or dropped.
    pub(crate) fn count_sent(&self, accepted: bool) {
        let mut counters = self.counters();
        if accepted {
            counters.sent += 1;
        } else {
            counters.dropped_outgoing += 1;
            count!("gaggle_frames_dropped_total", "direction" => "outgoing");
        }
    }

    pub(crate) fn open(&self) {
        self.lock().open = true;
    }

    /// Fails with [`ChannelError::Disconnected`] while it is closed.
    pub(crate) fn check_open(&self) -> Result<(), ChannelError> {
        if self.lock().open { Ok(()) } else { Err(ChannelError::Disconnected) }
    }

    pub(crate) fn push(&self, received: Received) {
        let mut queue = self.lock();
        if !queue.open {
            return;
        }
        let bytes = queue.bytes.saturating_add(received.bytes());
        if queue.received.len() >= self.frames_max || bytes > self.bytes_max {
            self.counters().dropped_incoming += 1;
            count!("gaggle_frames_dropped_total", "direction" => "incoming");
            tracing::debug!("incoming queue full, dropped a frame");
            return;
        }
        self.counters().received += 1;
        queue.bytes = bytes;
        queue.received.push_back(received);
        drop(queue);
        self.arrived.notify_one();
    }

    /// Takes the head, once there is one; `None` once closed. Cancel safe.
    pub(crate) async fn receive(&self) -> Option<Received> {
        let closings = self.lock().closings;
        loop {
            let arrived = self.arrived.notified();
            match self.take(closings) {
                Next::Empty => arrived.await,
                Next::Head(received) => return Some(received),
                Next::Closed => return None,
            }
        }
    }

    /// Takes the head, if there is one.
    pub(crate) fn try_receive(&self) -> Option<Received> {
        let closings = self.lock().closings;
        match self.take(closings) {
            Next::Head(received) => Some(received),
            Next::Empty | Next::Closed => None,
        }
    }

    /// Ends it: nothing more is received.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        *queue = Queue { closings: queue.closings + 1, ..Queue::default() };
        drop(queue);
        self.arrived.notify_one();
    }

    fn take(&self, closings: u64) -> Next {
        let mut queue = self.lock();
        if !queue.open || queue.closings != closings {
            return Next::Closed;
        }
        let Some(received) = queue.received.pop_front() else { return Next::Empty };
        queue.bytes -= received.bytes();
        Next::Head(received)
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

    fn inbox(frames_max: usize, bytes_max: usize) -> Inbox {
        let inbox = Inbox::new(frames_max, bytes_max);
        inbox.open();
        inbox
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
        let counters = *inbox.counters();
        assert_eq!((counters.received, counters.dropped_incoming), (2, 1));
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

    #[tokio::test]
    async fn wait_ends_although_the_inbox_opens_again() {
        let inbox = inbox(10, 100);
        let mut waiting = std::pin::pin!(inbox.receive());
        assert_eq!(futures_util::poll!(&mut waiting), std::task::Poll::Pending);
        inbox.close();
        inbox.open();
        inbox.push(frame(1));
        assert_eq!(waiting.await, None);
        assert_eq!(inbox.receive().await, Some(frame(1)));
    }
}
