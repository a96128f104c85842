//! [`Memory`]: frames within one process, with seeded faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use crate::{
    Channel, ChannelError, Counters, FRAME_BYTES_MAX, NodeName, QUEUE_BYTES, Received,
    inbox::{Counts, Inbox},
};

/// Frames that wait for one node's `receive`; more are dropped and counted. As many as a busy
/// cluster sends in the time that a test may stall.
const INBOX_FRAMES_MAX: usize = 65_536;

/// Joins [`Memory`] channels of one process. Cloning shares it.
///
/// Without faults a frame is in its receiver's queue when `send` returns: no task, no hop.
#[derive(Clone, Default)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

/// What goes wrong on a [`Hub`], drawn per frame from its seed. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// The share of frames that arrive twice, 0 to 1.
    pub repeat: f64,
    /// The share of frames that may overtake others, or be overtaken, within `delay`, 0 to 1.
    pub reorder: f64,
    /// The shortest and the longest delay. Order per pair is kept unless reordered.
    pub delay: (Duration, Duration),
}

/// How often each fault fired: one that never did looks like a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Frames lost at random.
    pub lost: u64,
    /// Frames that arrived twice.
    pub repeated: u64,
    /// Frames that arrived late.
    pub delayed: u64,
    /// Frames whose order was not kept.
    pub reordered: u64,
    /// Frames dropped by a cut.
    pub cut: u64,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeName, Arc<Inbox>>,
    faults: Faults,
    rng: Option<StdRng>,
    cuts: BTreeSet<(NodeName, NodeName)>,
    isolated: BTreeSet<NodeName>,
    /// The arrival of the newest frame of each pair, so that delays keep the order.
    newest: BTreeMap<(NodeName, NodeName), Instant>,
    fired: Fired,
}

/// A node's end of a [`Hub`].
pub struct Memory {
    name: NodeName,
    hub: Hub,
    inbox: Mutex<Option<Arc<Inbox>>>,
    counts: Arc<Counts>,
}

/// The hubs of [`Hub::shared`]. Weak, so that a hub ends with its last channel.
static SHARED: Mutex<BTreeMap<String, Weak<Mutex<State>>>> = Mutex::new(BTreeMap::new());

impl Hub {
    /// A hub without faults.
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

    /// A hub whose faults are drawn from `seed`: the same sends meet the same faults.
    #[must_use]
    pub fn with_faults(seed: u64, faults: Faults) -> Self {
        let hub = Self::new();
        hub.lock().rng = Some(StdRng::seed_from_u64(seed));
        hub.set_faults(faults);
        hub
    }

    /// A channel of this hub for the node `name`. It takes part once connected.
    #[must_use]
    pub fn channel(&self, name: NodeName) -> Memory {
        Memory { name, hub: self.clone(), inbox: Mutex::new(None), counts: Arc::default() }
    }

    /// Replaces the faults, from the next frame on. On a hub without a seed, the seed is 0.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.lock();
        state.faults = faults;
        state.rng.get_or_insert_with(|| StdRng::seed_from_u64(0));
    }

    /// Drops every frame between two nodes, both ways.
    pub fn partition(&self, a: &NodeName, b: &NodeName) {
        self.cut(a, b);
        self.cut(b, a);
    }

    /// Drops every frame from one node to another, not those back.
    pub fn cut(&self, from: &NodeName, to: &NodeName) {
        self.lock().cuts.insert((from.clone(), to.clone()));
    }

    /// Drops every frame between a node and all others, also those that connect later.
    pub fn isolate(&self, name: &NodeName) {
        self.lock().isolated.insert(name.clone());
    }

    /// Ends every cut and isolation. Frames dropped meanwhile stay lost.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.cuts.clear();
        state.isolated.clear();
    }

    /// How often each fault has fired.
    #[must_use]
    pub fn fired(&self) -> Fired {
        self.lock().fired
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a frame goes, and when its copies arrive: `None` for one, at once.
struct Route {
    inbox: Arc<Inbox>,
    arrivals: Option<Vec<Option<Instant>>>,
}

impl Route {
    /// Not under the hub's lock: it wakes the receiver, which may be a system call.
    fn take(self, from: &NodeName, frame: &Bytes) {
        let received = || Received::Frame { from: from.clone(), frame: frame.clone() };
        match self.arrivals {
            None => self.inbox.push(None, received()),
            Some(arrivals) => arrivals.into_iter().for_each(|at| self.inbox.push(at, received())),
        }
    }
}

impl State {
    fn route(&mut self, from: &NodeName, to: &NodeName) -> Option<Route> {
        if from != to && self.is_cut(from, to) {
            self.fired.cut += 1;
            return None;
        }
        let inbox = self.nodes.get(to)?.clone();
        let faulty = self.rng.is_some() && self.faults != Faults::default() && from != to;
        Some(Route { inbox, arrivals: faulty.then(|| self.arrivals(from, to)) })
    }

    fn is_cut(&self, from: &NodeName, to: &NodeName) -> bool {
        let isolated = self.isolated.contains(from) || self.isolated.contains(to);
        isolated || !self.cuts.is_empty() && self.cuts.contains(&(from.clone(), to.clone()))
    }

    /// When copies of a frame arrive: `None` for at once.
    fn arrivals(&mut self, from: &NodeName, to: &NodeName) -> Vec<Option<Instant>> {
        let faults = self.faults;
        let Some(rng) = &mut self.rng else { return vec![None] };
        let mut fires = |share: f64| share > 0.0 && rng.random_bool(share.clamp(0.0, 1.0));
        if fires(faults.loss) {
            self.fired.lost += 1;
            return Vec::new();
        }
        let copies = if fires(faults.repeat) { 2 } else { 1 };
        self.fired.repeated += copies - 1;
        let (min, max) = faults.delay;
        if max.is_zero() {
            return vec![None; usize::try_from(copies).unwrap_or(1)];
        }
        let reordered = fires(faults.reorder);
        let now = Instant::now();
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let mut at = now + rng.random_range(min..=max.max(min));
            if !reordered {
                let newest = self.newest.entry((from.clone(), to.clone())).or_insert(at);
                at = at.max(*newest);
                *newest = at;
            }
            arrivals.push(Some(at));
        }
        self.fired.delayed += copies;
        self.fired.reordered += u64::from(reordered);
        arrivals
    }
}

impl Memory {
    fn inbox(&self) -> MutexGuard<'_, Option<Arc<Inbox>>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, frame: &Bytes) -> Result<(), ChannelError> {
        if frame.len() > FRAME_BYTES_MAX {
            return Err(ChannelError::FrameTooLong { bytes: frame.len(), limit: FRAME_BYTES_MAX });
        }
        if self.inbox().is_some() { Ok(()) } else { Err(ChannelError::Disconnected) }
    }

    fn take_route(&self, route: Option<Route>, frame: &Bytes) {
        self.counts.sent(route.is_some());
        if let Some(route) = route {
            route.take(&self.name, frame);
        }
    }

    fn leave(&self) {
        let Some(inbox) = self.inbox().take() else { return };
        self.hub.lock().nodes.remove(&self.name);
        inbox.close();
    }
}

#[async_trait]
impl Channel for Memory {
    fn name(&self) -> &NodeName {
        &self.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        let mut mine = self.inbox();
        if mine.is_some() {
            return Ok(());
        }
        let mut state = self.hub.lock();
        if state.nodes.contains_key(&self.name) {
            return Err(ChannelError::NameTaken { name: self.name.clone() });
        }
        let inbox = Inbox::new(self.counts.clone(), INBOX_FRAMES_MAX, QUEUE_BYTES);
        state.nodes.insert(self.name.clone(), inbox.clone());
        *mine = Some(inbox);
        Ok(())
    }

    async fn disconnect(&self) {
        self.leave();
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.check(&frame)?;
        let route = self.hub.lock().route(&self.name, to);
        self.take_route(route, &frame);
        Ok(())
    }

    fn broadcast(&self, frame: Bytes) -> Result<(), ChannelError> {
        self.check(&frame)?;
        let mut state = self.hub.lock();
        let all: Vec<NodeName> = state.nodes.keys().cloned().collect();
        let routes: Vec<_> = all.iter().map(|to| state.route(&self.name, to)).collect();
        drop(state);
        routes.into_iter().for_each(|route| self.take_route(route, &frame));
        Ok(())
    }

    async fn receive(&self) -> Option<Received> {
        let inbox = self.inbox().clone()?;
        inbox.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        self.inbox().as_ref()?.try_receive()
    }

    fn counters(&self) -> Counters {
        self.counts.get()
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
