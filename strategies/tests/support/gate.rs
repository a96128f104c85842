//! A channel with a gate: frames between nodes that are cut from each other are dropped where they
//! arrive. It wraps any channel, so that one fixture partitions Memory, Redis and TCP alike.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, NodeName, Received};

/// The cut links, shared by all gates of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Cuts(Arc<Mutex<BTreeSet<(NodeName, NodeName)>>>);

impl Cuts {
    /// Cuts the link between the two.
    pub(crate) fn cut(&self, one: &NodeName, two: &NodeName) {
        let mut cuts = self.cuts();
        cuts.insert((one.clone(), two.clone()));
        cuts.insert((two.clone(), one.clone()));
    }

    /// Restores all links.
    pub(crate) fn heal(&self) {
        self.cuts().clear();
    }

    fn has(&self, from: &NodeName, to: &NodeName) -> bool {
        self.cuts().contains(&(from.clone(), to.clone()))
    }

    fn cuts(&self) -> MutexGuard<'_, BTreeSet<(NodeName, NodeName)>> {
        self.0.lock().expect("no test panics with it")
    }
}

pub(crate) struct Gate {
    inner: Arc<dyn Channel>,
    cuts: Cuts,
}

impl Gate {
    pub(crate) fn new(inner: Arc<dyn Channel>, cuts: Cuts) -> Self {
        Self { inner, cuts }
    }

    fn passes(&self, received: &Received) -> bool {
        match received {
            Received::Frame { from, .. } => !self.cuts.has(from, self.inner.name()),
            Received::Down { .. } => true,
        }
    }
}

#[async_trait]
impl Channel for Gate {
    fn name(&self) -> &NodeName {
        self.inner.name()
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        self.inner.connect().await
    }

    async fn disconnect(&self) {
        self.inner.disconnect().await;
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.inner.send(to, frame)
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        self.inner.broadcast(frame)
    }

    async fn receive(&self) -> Option<Received> {
        loop {
            let received = self.inner.receive().await?;
            if self.passes(&received) {
                return Some(received);
            }
        }
    }

    fn try_receive(&self) -> Option<Received> {
        std::iter::from_fn(|| self.inner.try_receive()).find(|received| self.passes(received))
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }

    fn frame_limit(&self) -> usize {
        self.inner.frame_limit()
    }
}
