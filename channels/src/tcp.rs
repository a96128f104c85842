//! [`Tcp`]: one connection per pair of nodes.

pub(crate) mod connection;
mod gate;
pub(crate) mod hello;
mod options;
mod outgoing;
mod security;
mod stream;

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{net::TcpListener, sync::Mutex as AsyncMutex, task::JoinSet};
use tokio_util::task::TaskTracker;

pub use self::options::TcpOptions;
use self::{
    connection::{DATA, head},
    gate::Gate,
    outgoing::Outgoing,
    security::Security,
};
use crate::{
    Channel, ChannelError, Counters, NodeName, Received, check_length, inbox::Inbox,
    internal::process::Opener,
};

/// Frames over TCP: one connection per pair of nodes, kept up by the node of the smaller name.
///
/// A node accepts connections of its peers only; a restarted peer's new connection replaces its old
/// one. With the feature `tls` and [`TcpOptions::tls`], both sides of a connection prove their
/// names by TLS 1.3. Files of keys are read again every 10 s: new connections use the new keys, and
/// keys that do not fit are logged and ignored. Without TLS, names are not authenticated and frames
/// travel in plain text: a node refuses to listen beyond loopback unless
/// [`insecure`](TcpOptions::insecure) is set.
///
/// ```
/// use gaggle_channels::{Channel, NodeName, Tcp, TcpOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = TcpOptions::new(NodeName::new("a")?, "127.0.0.1:0".parse()?);
/// let channel = Tcp::new(options.peer(NodeName::new("b")?, "127.0.0.1:7002"))?;
/// channel.connect().await?; // keeps connecting to b
/// channel.disconnect().await;
/// # Ok(())
/// # }
/// ```
///
/// | bound | value | reason |
/// |---|---|---|
/// | frame | 1 MiB | bounds the memory that a peer can occupy |
/// | outgoing queue per peer | 8,192 frames, 64 MiB | a peer that does not read costs memory |
/// | incoming queue | 65,536 frames, 64 MiB | a busy group sends while the receiver stalls |
/// | connect | 1 s | a dead host must not delay the next attempt |
/// | handshake and hello | 2 s, 64 KiB | bounds the cost of an unauthenticated connection |
/// | connections before the hello | 8 per address, 128 of non-peers | the oldest is closed |
/// | silence | 3 s | closes half-open connections; a keep-alive each second |
/// | stalled write | 3 s | a peer that does not read is disconnected |
/// | reconnect | 20 ms to 500 ms, jittered | soon after a restart, and no storm at a dead host |
pub struct Tcp {
    options: TcpOptions,
    shared: Arc<Shared>,
    running: AsyncMutex<Option<Running>>,
}

/// The tasks of a connected channel.
struct Running {
    tasks: JoinSet<()>,
    /// The accepted connections, which end after the task that accepts them.
    accepted: TaskTracker,
}

/// The state that connections share with the channel.
struct Shared {
    name: NodeName,
    inbox: Inbox,
    security: Security,
    gate: Arc<Gate>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    peers: BTreeMap<NodeName, String>,
    links: BTreeMap<NodeName, Link>,
    /// Why the latest attempt to connect to a peer failed, unless it is connected.
    failures: BTreeMap<NodeName, String>,
    local: Option<SocketAddr>,
}

/// The sending side of a connection that is up.
struct Link {
    outgoing: Arc<Outgoing>,
}

/// A connection that is replaced, or whose channel is disconnected, ends.
impl Drop for Link {
    fn drop(&mut self) {
        self.outgoing.end();
    }
}

impl Tcp {
    /// A channel with these options. It listens and dials once connected.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] naming the field.
    pub fn new(options: TcpOptions) -> Result<Self, ChannelError> {
        let security = options.check()?;
        let state = State { peers: options.peers.clone(), ..State::default() };
        let (name, inbox) = (options.name.clone(), Inbox::default());
        let (gate, state) = (Arc::default(), Mutex::new(state));
        let shared = Arc::new(Shared { name, inbox, security, gate, state });
        Ok(Self { options, shared, running: AsyncMutex::new(None) })
    }

    /// Adds a peer, or moves it to another address, from the next attempt to connect on.
    pub async fn add_peer(&self, name: NodeName, address: impl Into<String>) {
        // Locked before the peer is known. Otherwise a concurrent `connect` dials it as well, and a
        // future that is dropped here leaves it known and not dialled.
        let mut running = self.running.lock().await;
        let address = address.into().trim().to_owned();
        let known = self.shared.lock().peers.insert(name.clone(), address).is_some();
        if let (Some(running), false) = (running.as_mut(), known) {
            self.dial(&mut running.tasks, name);
        }
    }

    /// The node of the smaller name dials, so that a pair has one connection and never two.
    fn dial(&self, tasks: &mut JoinSet<()>, peer: NodeName) {
        let opener = Opener::this_process();
        if self.options.name < peer {
            tasks.spawn(opener.bind(connection::dial(self.shared.clone(), peer)));
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a connection to `peer`, which replaces its former one. Returns false once
    /// disconnected.
    fn up(&self, peer: &NodeName, outgoing: Arc<Outgoing>) -> bool {
        let mut state = self.lock();
        let is_open = self.inbox.check_open().is_ok();
        if is_open {
            state.failures.remove(peer);
            state.links.insert(peer.clone(), Link { outgoing });
        }
        is_open
    }

    /// Removes this connection, unless another has replaced it.
    fn down(&self, peer: &NodeName, outgoing: &Arc<Outgoing>) {
        let mut state = self.lock();
        if state.links.get(peer).is_some_and(|link| Arc::ptr_eq(&link.outgoing, outgoing)) {
            state.links.remove(peer);
            self.inbox.push(Received::Down { peer: peer.clone() });
            tracing::info!(%peer, "connection down");
        }
    }

    /// Notes why a peer was not reached. Returns whether the attempt before it ended otherwise.
    fn note_failure(&self, peer: &NodeName, address: &str, reason: &str) -> bool {
        let failure = format!("{address}: {reason}");
        let before = self.lock().failures.insert(peer.clone(), failure.clone());
        before.is_none_or(|before| before != failure)
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        self.inbox.check_open()?;
        if *to == self.name {
            self.inbox.count_sent(true);
            self.inbox.push(Received::Frame { from: to.clone(), frame });
            return Ok(());
        }
        let outgoing = self.lock().links.get(to).map(|link| link.outgoing.clone());
        // Sending may be a system call, so the mutex is released before it.
        let sent =
            outgoing.is_some_and(|outgoing| outgoing.send([&head(DATA, frame.len()), &frame]));
        self.inbox.count_sent(sent);
        if !sent {
            tracing::debug!(peer = %to, "outgoing queue full or connection down, dropped a frame");
        }
        Ok(())
    }

    fn malformed(&self) {
        self.inbox.counters().malformed += 1;
    }
}

#[async_trait]
impl Channel for Tcp {
    fn name(&self) -> &NodeName {
        &self.options.name
    }

    async fn connect(&self) -> Result<(), ChannelError> {
        let mut running = self.running.lock().await;
        if running.is_some() {
            return Ok(());
        }
        let listen = self.options.listen;
        let unavailable = |error: std::io::Error| {
            let remedy = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    ": another process, perhaps this member itself, uses the port"
                }
                _ => "",
            };
            let source = format!("cannot listen on {listen}: {error}{remedy}").into();
            ChannelError::Unavailable { source }
        };
        let listener = TcpListener::bind(listen).await.map_err(unavailable)?;
        let peers: Vec<NodeName> = {
            let mut state = self.shared.lock();
            state.local = listener.local_addr().ok();
            self.shared.inbox.open();
            state.peers.keys().cloned().collect()
        };
        let (mut tasks, accepted) = (JoinSet::new(), TaskTracker::new());
        let opener = Opener::this_process();
        let accept = connection::accept(self.shared.clone(), listener, accepted.clone());
        tasks.spawn(opener.bind(accept));
        tasks.spawn(opener.bind(connection::look_up_peers(self.shared.clone())));
        #[cfg(feature = "tls")]
        if matches!(self.shared.security, Security::Tls(_)) {
            tasks.spawn(opener.bind(security::reload(self.shared.clone())));
        }
        for peer in peers {
            self.dial(&mut tasks, peer);
        }
        *running = Some(Running { tasks, accepted });
        Ok(())
    }

    async fn disconnect(&self) {
        // Held to the end, so that a concurrent `connect` is not torn down with the rest.
        let mut running = self.running.lock().await;
        {
            let mut state = self.shared.lock();
            self.shared.inbox.close();
            state.links.clear();
            state.failures.clear();
            state.local = None;
        }
        if let Some(Running { mut tasks, accepted }) = running.take() {
            tasks.shutdown().await;
            accepted.close();
            accepted.wait().await;
        }
    }

    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError> {
        check_length(&frame)?;
        self.shared.send(to, frame)
    }

    async fn receive(&self) -> Option<Received> {
        self.shared.inbox.receive().await
    }

    fn try_receive(&self) -> Option<Received> {
        self.shared.inbox.try_receive()
    }

    fn counters(&self) -> Counters {
        *self.shared.inbox.counters()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.shared.lock().local
    }

    fn failures(&self) -> BTreeMap<NodeName, String> {
        self.shared.lock().failures.clone()
    }
}

impl fmt::Debug for Tcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tcp").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use futures_util::FutureExt;
    use tokio::net::TcpStream;

    use super::*;

    fn channel(name: &str) -> Tcp {
        let options = TcpOptions::new(NodeName::new(name).unwrap(), "127.0.0.1:0".parse().unwrap());
        Tcp::new(options).unwrap()
    }

    /// A concurrent `connect` dials every known peer; `add_peer` dials the peer that it adds.
    #[tokio::test]
    async fn add_peer_waits_for_a_running_connect() {
        let a = channel("a");
        let connecting = a.running.lock().await;
        let b = NodeName::new("b").unwrap();
        let mut adding = Box::pin(a.add_peer(b.clone(), "127.0.0.1:1"));
        assert!(adding.as_mut().now_or_never().is_none());
        assert!(!a.shared.lock().peers.contains_key(&b));
        drop(connecting);
        adding.await;
        assert!(a.shared.lock().peers.contains_key(&b));
    }

    #[tokio::test]
    async fn no_connection_is_up_once_disconnected() {
        let (a, b) = (channel("a"), channel("b"));
        b.connect().await.unwrap();
        let stream = TcpStream::connect(b.address().unwrap()).await.unwrap();
        let (_, writer) = stream.into_split();
        let writer = stream::Writer::Plain(writer);
        let outgoing = Arc::new(Outgoing::new(writer, Bytes::new(), 1, 1));
        assert!(!a.shared.up(b.name(), outgoing.clone()));
        a.connect().await.unwrap();
        assert!(a.shared.up(b.name(), outgoing.clone()));
        a.disconnect().await;
        assert!(!a.shared.up(b.name(), outgoing));
        assert!(a.shared.lock().links.is_empty());
    }
}
