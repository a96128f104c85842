//! [`Memory`]: frames within one process.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{Channel, ChannelError, Counters, NodeName, Received, check_length, inbox::Inbox};

/// Joins [`Memory`] channels of one process. Cloning shares it.
///
/// A frame is in its receiver's queue when `send` returns: no task, no hop.
///
/// ```
/// use gaggle_channels::{Channel, Hub, NodeName, Received};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_channels::ChannelError> {
/// let hub = Hub::new();
/// let (a, b) = (hub.channel(NodeName::new("a")?), hub.channel(NodeName::new("b")?));
/// a.connect().await?;
/// b.connect().await?;
/// a.send(b.name(), "hello".into())?;
/// let (from, frame) = (a.name().clone(), "hello".into());
/// assert_eq!(b.receive().await, Some(Received::Frame { from, frame }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeName, Arc<Inbox>>,
}

/// A node's end of a [`Hub`].
///
/// ```
/// use gaggle_channels::{Channel, Hub, NodeName, Received};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), gaggle_channels::ChannelError> {
/// let memory = Hub::shared("orders").channel(NodeName::new("a")?);
/// memory.connect().await?;
/// memory.send(memory.name(), "hello".into())?; // a node may send to itself
/// let (from, frame) = (memory.name().clone(), "hello".into());
/// assert_eq!(memory.receive().await, Some(Received::Frame { from, frame }));
/// # Ok(())
/// # }
/// ```
pub struct Memory {
    name: NodeName,
    hub: Hub,
    inbox: Arc<Inbox>,
}

/// The hubs of [`Hub::shared`]. Weak, so that a hub ends with its last channel.
static SHARED: Mutex<BTreeMap<String, Weak<Mutex<State>>>> = Mutex::new(BTreeMap::new());

impl Hub {
    /// A new hub, which shares nothing with other hubs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The hub of this name, which all callers in this process share while one of its channels
    /// lives.
    #[must_use]
    pub fn shared(name: &str) -> Self {
        let mut hubs = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|_, hub| hub.strong_count() > 0);
        if let Some(state) = hubs.get(name).and_then(Weak::upgrade) {
            return Self { state };
        }
        let hub = Self::new();
        hubs.insert(name.to_owned(), Arc::downgrade(&hub.state));
        hub
    }

    /// A channel of this hub for the node `name`. It takes part once connected.
    #[must_use]
    pub fn channel(&self, name: NodeName) -> Memory {
        Memory { name, hub: self.clone(), inbox: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn check(&self, frame: &Bytes) -> Result<(), ChannelError> {
        check_length(frame)?;
        self.inbox.check_open()
    }

    /// Called without the hub's mutex: waking the receiver may be a system call.
    fn deliver(&self, inbox: Option<Arc<Inbox>>, frame: Bytes) {
        self.inbox.count_sent(inbox.is_some());
        if let Some(inbox) = inbox {
            inbox.push(Received::Frame { from: self.name.clone(), frame });
        }
    }

    fn leave(&self) {
        let mut state = self.hub.lock();
        // The name may be another channel's.
        if self.inbox.check_open().is_ok() {
            state.nodes.remove(&self.name);
            self.inbox.close();
        }
    }
}

#[async_trait]
impl Channel for Memory {
    fn name(&self) -> &NodeName {
        &self.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        let mut state = self.hub.lock();
        if self.inbox.check_open().is_ok() {
            return Ok(());
        }
        if state.nodes.contains_key(&self.name) {
            return Err(ChannelError::NameTaken { name: self.name.clone() });
        }
        state.nodes.insert(self.name.clone(), self.inbox.clone());
        self.inbox.open();
        Ok(())
    }

    async fn disconnect(&self) {
        self.leave();
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.check(&frame)?;
        let inbox = self.hub.lock().nodes.get(to).cloned();
        self.deliver(inbox, frame);
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        self.inbox.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        self.inbox.try_receive()
    }

    fn counters(&self) -> Counters {
        *self.inbox.counters()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Hub").field("nodes", &state.nodes.keys()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use super::*;

    #[test]
    fn shared_hub_ends_with_its_last_channel() {
        let name = |name: &str| NodeName::new(name).unwrap();
        let is_known = || {
            let hubs = SHARED.lock().unwrap();
            hubs.get("ends").is_some_and(|hub| hub.strong_count() > 0)
        };
        let (a, b) =
            (Hub::shared("ends").channel(name("a")), Hub::shared("ends").channel(name("b")));
        assert!(Arc::ptr_eq(&a.hub.state, &b.hub.state));
        drop(a);
        assert!(is_known());
        drop(b);
        assert!(!is_known());
    }
}
