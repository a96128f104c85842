//! The channels between members: frames arrive late, in order, and are lost if a member is isolated.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use gaggle_channels::{Channel, ChannelError, Counters, NodeName, Received};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};

use crate::simulator::random::Random;

/// The network between the members.
pub(super) struct Network(Mutex<State>);

struct State {
    random: Random,
    /// The delay of a frame, in microseconds.
    delay: (u64, u64),
    inboxes: BTreeMap<NodeName, UnboundedSender<Received>>,
    isolated: BTreeSet<NodeName>,
    /// When the last frame of each way arrives.
    last: BTreeMap<(NodeName, NodeName), Instant>,
}

impl Network {
    pub(super) fn new(seed: u64, delay: (u64, u64)) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            random: Random::new(seed, 12),
            delay,
            inboxes: BTreeMap::new(),
            isolated: BTreeSet::new(),
            last: BTreeMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The channel of a member that starts: frames to its name reach this one alone.
    pub(super) fn channel(self: &Arc<Self>, name: NodeName) -> Arc<MemberChannel> {
        let (sender, inbox) = unbounded_channel();
        self.state().inboxes.insert(name.clone(), sender.clone());
        let (network, inbox) = (self.clone(), Mutex::new(inbox));
        Arc::new(MemberChannel { name, network, own: sender, inbox })
    }

    pub(super) fn isolate(&self, name: &NodeName) {
        self.state().isolated.insert(name.clone());
    }

    pub(super) fn heal(&self) {
        self.state().isolated.clear();
    }

    fn deliver(&self, from: NodeName, to: &NodeName, frame: Bytes) {
        let state = self.state();
        if !state.isolated.contains(&from)
            && !state.isolated.contains(to)
            && let Some(inbox) = state.inboxes.get(to)
        {
            // A member that has ended reads nothing.
            let _ = inbox.send(Received::Frame { from, frame });
        }
    }
}

/// The channel of a member.
pub(super) struct MemberChannel {
    name: NodeName,
    network: Arc<Network>,
    own: UnboundedSender<Received>,
    inbox: Mutex<UnboundedReceiver<Received>>,
}

impl MemberChannel {
    /// The process has ended: it sends and receives nothing.
    pub(super) fn end(&self) {
        let mut state = self.network.state();
        if self.is_connected(&state) {
            state.inboxes.remove(&self.name);
        }
    }

    fn is_connected(&self, state: &State) -> bool {
        state.inboxes.get(&self.name).is_some_and(|inbox| inbox.same_channel(&self.own))
    }

    fn inbox(&self) -> MutexGuard<'_, UnboundedReceiver<Received>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Channel for MemberChannel {
    fn name(&self) -> &NodeName {
        &self.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        Ok(())
    }

    async fn disconnect(&self) {
        self.end();
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        let mut state = self.network.state();
        if !self.is_connected(&state) {
            return Ok(());
        }
        let (low, high) = state.delay;
        let delay = Duration::from_micros(state.random.between(low, high));
        let last = state.last.entry((self.name.clone(), to.clone())).or_insert_with(Instant::now);
        *last = (*last).max(Instant::now() + delay);
        let (at, network) = (*last, self.network.clone());
        let (from, to) = (self.name.clone(), to.clone());
        tokio::spawn(async move {
            sleep_until(at).await;
            network.deliver(from, &to, frame);
        });
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        poll_fn(|context| self.inbox().poll_recv(context)).await
    }

    fn try_receive(&self) -> Option<Received> {
        self.inbox().try_recv().ok()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
