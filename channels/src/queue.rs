//! A queue that is bounded in items and in bytes, and never waits: what does not fit is refused.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

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
