//! The hubs that `+memory` URLs share within this process, one a cluster name.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, Hub, Memory, NodeName, Received};

/// Weak, so that a hub ends with its last channel.
static HUBS: Mutex<BTreeMap<String, Weak<Hub>>> = Mutex::new(BTreeMap::new());

/// A channel of the hub of this cluster.
pub(super) fn channel(cluster: &str, name: NodeName) -> Arc<dyn Channel> {
    let mut hubs = HUBS.lock().unwrap_or_else(PoisonError::into_inner);
    hubs.retain(|_, hub| hub.strong_count() > 0);
    let hub = hubs.get(cluster).and_then(Weak::upgrade).unwrap_or_else(|| {
        let hub = Arc::new(Hub::new());
        hubs.insert(cluster.to_owned(), Arc::downgrade(&hub));
        hub
    });
    Arc::new(HubChannel { channel: hub.channel(name), _hub: hub })
}

/// A channel that keeps its hub findable.
struct HubChannel {
    channel: Memory,
    _hub: Arc<Hub>,
}

#[async_trait]
impl Channel for HubChannel {
    fn name(&self) -> &NodeName {
        self.channel.name()
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        self.channel.connect().await
    }

    async fn disconnect(&self) {
        self.channel.disconnect().await;
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.channel.send(to, frame)
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        self.channel.broadcast(frame)
    }

    async fn receive(&self) -> Option<Received> {
        self.channel.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        self.channel.try_receive()
    }

    fn counters(&self) -> Counters {
        self.channel.counters()
    }

    fn frame_limit(&self) -> usize {
        self.channel.frame_limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_ends_with_its_last_channel() {
        let name = |name: &str| NodeName::new(name).unwrap();
        let known = |cluster: &str| {
            let hubs = HUBS.lock().unwrap();
            hubs.get(cluster).is_some_and(|hub| hub.strong_count() > 0)
        };
        let (a, b) = (channel("ends", name("a")), channel("ends", name("b")));
        drop(a);
        assert!(known("ends"));
        drop(b);
        assert!(!known("ends"));
    }
}
