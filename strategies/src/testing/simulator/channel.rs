use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, NodeName, Received};

/// The channel of one process: what arrives is put in by the simulation, what is sent is taken out.
#[derive(Debug)]
pub(super) struct SimChannel {
    name: NodeName,
    frame_limit: usize,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    /// With the virtual time of arrival.
    arrived: VecDeque<(u64, Received)>,
    /// Only what has arrived by then is taken in this turn.
    visible_until: u64,
    sent: Vec<Outgoing>,
}

/// A frame on its way; to everybody where `to` is `None`.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) to: Option<NodeName>,
    pub(super) frame: Bytes,
}

impl SimChannel {
    pub(super) fn new(name: NodeName, frame_limit: usize) -> Self {
        Self { name, frame_limit, queues: Mutex::default() }
    }

    pub(super) fn arrive(&self, now: u64, received: Received) {
        self.queues().arrived.push_back((now, received));
    }

    pub(super) fn show_until(&self, virtual_time: u64) {
        self.queues().visible_until = virtual_time;
    }

    pub(super) fn has_arrived(&self) -> bool {
        !self.queues().arrived.is_empty()
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
        self.queues().sent.push(Outgoing { to: Some(to.clone()), frame });
        Ok(())
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        assert!(frame.len() <= self.frame_limit, "a frame of {} bytes is too long", frame.len());
        self.queues().sent.push(Outgoing { to: None, frame });
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        unreachable!("a simulated driver is turned, it does not wait")
    }

    fn try_receive(&self) -> Option<Received> {
        let mut queues = self.queues();
        let visible = queues.arrived.front().is_some_and(|(at, _)| *at <= queues.visible_until);
        if visible { queues.arrived.pop_front().map(|(_, received)| received) } else { None }
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn frame_limit(&self) -> usize {
        self.frame_limit
    }
}
