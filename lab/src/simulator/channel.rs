//! A member's simulated channel.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, NodeName, Received};

/// The channel of one process. The simulation puts frames in and takes frames out.
///
/// One thread runs the simulation, so atomics need no order.
#[derive(Debug)]
pub(super) struct SimChannel {
    name: NodeName,
    frame_limit: usize,
    queues: Mutex<Queues>,
    /// When the first of those arrived that wait; the end of time if none does.
    first: AtomicU64,
    /// A turn takes only frames that have arrived by this time.
    visible_until: AtomicU64,
}

/// No frame waits.
const NONE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Queues {
    /// With the virtual time of arrival.
    arrived: VecDeque<(u64, Received)>,
    sent: Vec<Outgoing>,
}

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: NodeName,
    pub(super) frame: Bytes,
}

impl SimChannel {
    pub(super) fn new(name: NodeName, frame_limit: usize) -> Self {
        let (first, visible_until) = (AtomicU64::new(NONE), AtomicU64::new(0));
        Self { name, frame_limit, queues: Mutex::default(), first, visible_until }
    }

    pub(super) fn arrive(&self, now: u64, received: Received) {
        self.queues().arrived.push_back((now, received));
        self.first.fetch_min(now, Ordering::Relaxed);
    }

    pub(super) fn show_until(&self, virtual_time: u64) {
        self.visible_until.store(virtual_time, Ordering::Relaxed);
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.first.load(Ordering::Relaxed) != NONE
    }

    pub(super) fn take_sent(&self) -> Vec<Outgoing> {
        std::mem::take(&mut self.queues().sent)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Channel for SimChannel {
    fn name(&self) -> &NodeName {
        &self.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn disconnect(&self) {}

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        assert!(frame.len() <= self.frame_limit, "a frame of {} bytes is too long", frame.len());
        self.queues().sent.push(Outgoing { to: to.clone(), frame });
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        unreachable!("a simulated driver is turned, it does not wait")
    }

    fn try_receive(&self) -> Option<Received> {
        let visible_until = self.visible_until.load(Ordering::Relaxed);
        if self.first.load(Ordering::Relaxed) > visible_until {
            return None;
        }
        let mut queues = self.queues();
        let (_, received) = queues.arrived.pop_front()?;
        let first = queues.arrived.front().map_or(NONE, |(at, _)| *at);
        self.first.store(first, Ordering::Relaxed);
        Some(received)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn frame_limit(&self) -> usize {
        self.frame_limit
    }
}
