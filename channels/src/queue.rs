//! A queue that is bounded in items and in bytes, and never waits: what does not fit is refused.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use crate::{ChannelError, FRAME_BYTES_MAX};

/// The most frames that a queue can be told to hold.
pub(crate) const FRAMES_MAX: usize = 1 << 24;

/// Checks what the options of a channel say of its queues.
pub(crate) fn check(outgoing: usize, incoming: usize, bytes: usize) -> Result<(), ChannelError> {
    for (field, frames) in [("outgoing_frames_max", outgoing), ("incoming_frames_max", incoming)] {
        if !(1..=FRAMES_MAX).contains(&frames) {
            let problem = format!("{frames} frames, the limit is 1 to {FRAMES_MAX}");
            return Err(ChannelError::InvalidOptions { field, problem });
        }
    }
    if bytes < FRAME_BYTES_MAX {
        let problem = format!("{bytes} bytes, the least is {FRAME_BYTES_MAX}");
        return Err(ChannelError::InvalidOptions { field: "queue_bytes_max", problem });
    }
    Ok(())
}

pub(crate) struct Sender<T> {
    items: mpsc::Sender<(T, usize)>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

pub(crate) struct Receiver<T> {
    items: mpsc::Receiver<(T, usize)>,
    bytes: Arc<AtomicUsize>,
}

/// At most `items_max` things of together at most `bytes_max`.
pub(crate) fn bounded<T>(items_max: usize, bytes_max: usize) -> (Sender<T>, Receiver<T>) {
    let (items, received) = mpsc::channel(items_max);
    let bytes = Arc::new(AtomicUsize::new(0));
    (Sender { items, bytes: bytes.clone(), bytes_max }, Receiver { items: received, bytes })
}

impl<T> Sender<T> {
    /// Whether there was room for `item`, which weighs `bytes`.
    pub(crate) fn try_send(&self, item: T, bytes: usize) -> bool {
        // The sum alone counts, and every change of it is one step: no order with anything else.
        let room = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max)
        });
        if room.is_err() {
            return false;
        }
        let sent = self.items.try_send((item, bytes)).is_ok();
        if !sent {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        sent
    }
}

impl<T> Receiver<T> {
    /// The next item; `None` once every sender is gone. Cancel safe: nothing is taken and lost.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let received = self.items.recv().await?;
        Some(self.taken(received))
    }

    /// The next item, if one waits.
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        let received = self.items.try_recv().ok()?;
        Some(self.taken(received))
    }

    fn taken(&self, (item, bytes): (T, usize)) -> T {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        item
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use super::*;

    #[test]
    fn what_no_queue_can_hold_is_refused_by_the_name_of_its_option() {
        let refused = |outgoing, incoming, bytes| match check(outgoing, incoming, bytes) {
            Err(ChannelError::InvalidOptions { field, .. }) => Some(field),
            other => other.map(|()| None).unwrap(),
        };
        assert_eq!(refused(1, 1, FRAME_BYTES_MAX), None);
        assert_eq!(refused(FRAMES_MAX, FRAMES_MAX, usize::MAX), None);
        assert_eq!(refused(0, 1, FRAME_BYTES_MAX), Some("outgoing_frames_max"));
        assert_eq!(refused(FRAMES_MAX + 1, 1, FRAME_BYTES_MAX), Some("outgoing_frames_max"));
        assert_eq!(refused(1, 0, FRAME_BYTES_MAX), Some("incoming_frames_max"));
        assert_eq!(refused(1, usize::MAX, FRAME_BYTES_MAX), Some("incoming_frames_max"));
        assert_eq!(refused(1, 1, FRAME_BYTES_MAX - 1), Some("queue_bytes_max"));
        // The most that can be asked for can be made.
        let _ = bounded::<u8>(FRAMES_MAX, usize::MAX);
    }

    #[test]
    fn a_queue_is_bounded_in_items() {
        let (sender, mut receiver) = bounded(2, 100);
        assert!(sender.try_send('a', 1) && sender.try_send('b', 1));
        assert!(!sender.try_send('c', 1), "two wait");
        assert_eq!(receiver.try_recv(), Some('a'));
        assert!(sender.try_send('d', 1));
    }

    #[test]
    fn a_queue_is_bounded_in_bytes() {
        let (sender, mut receiver) = bounded(10, 100);
        assert!(sender.try_send('a', 60));
        assert!(!sender.try_send('b', 41), "101 bytes");
        assert!(sender.try_send('c', 40));
        assert!(!sender.try_send('d', usize::MAX), "a sum beyond all numbers");
        assert_eq!(receiver.try_recv(), Some('a'));
        assert!(sender.try_send('e', 60), "what was taken no longer counts");
    }

    #[test]
    fn what_is_refused_for_its_number_takes_no_bytes() {
        let (sender, mut receiver) = bounded(1, 100);
        assert!(sender.try_send('a', 10));
        for _ in 0..100 {
            assert!(!sender.try_send('b', 10));
        }
        assert_eq!(receiver.try_recv(), Some('a'));
        assert!(sender.try_send('c', 100));
    }
}
