//! Channels move frames between named nodes.
//!
//! A [`Channel`] is best effort: it may drop, delay, repeat and reorder frames. Order is kept per
//! pair of nodes while the connection lasts. Sending never blocks the caller: a full outgoing
//! queue drops the frame and counts it. Stronger delivery is built above, by idempotent requests.
//!
//! | channel | moves frames through | for |
//! |---|---|---|
//! | [`Memory`] | a [`Hub`] in this process | tests, demonstrations |
//! | [`Redis`] | pub/sub of one Redis: a topic per node | sharing a Redis |
//! | [`Tcp`] | one TCP connection per pair of nodes | production clusters |
//!
//! `Redis` and `Tcp` are features, `redis` and `tcp`. No channel reads the content of a frame.

/// Adds one to a counter of the `metrics` facade; a no-op without that feature.
#[allow(unused_macros, reason = "a `Memory` alone counts nothing")]
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)?) => {
        #[cfg(feature = "metrics")]
        metrics::counter!($name $(, $label => $value)?).increment(1)
    };
}

#[cfg(any(feature = "redis", feature = "tcp"))]
mod backoff;
mod inbox;
#[doc(hidden)]
pub mod internal;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "tcp")]
mod tcp;
#[cfg(feature = "tls")]
pub mod tls;

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;

pub use crate::memory::{Hub, Memory};
#[cfg(feature = "redis")]
pub use crate::redis::{Redis, RedisOptions};
#[cfg(feature = "tcp")]
pub use crate::tcp::{Tcp, TcpOptions};

/// The longest frame that every channel carries, in bytes: 1 MiB.
///
/// It bounds how much one peer can make another allocate.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// How much one queue of a channel holds, in bytes: 64 MiB.
pub const QUEUE_BYTES: usize = 64 << 20;

/// How many frames the incoming queue of a channel holds.
const INCOMING_FRAMES_MAX: usize = 65_536;

/// The longest name of a node, in bytes.
pub const NODE_NAME_BYTES_MAX: usize = 128;

/// The name of a node on a channel: 1 to [`NODE_NAME_BYTES_MAX`] bytes of UTF-8.
///
/// One name belongs to one running process at a time. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Checks and wraps a name, without the spaces around it, as they stand in lists: `a, b`.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidName`] when it is empty or longer than [`NODE_NAME_BYTES_MAX`] bytes.
    pub fn new(name: impl AsRef<str>) -> Result<Self, ChannelError> {
        let name = name.as_ref().trim();
        if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX {
            return Err(ChannelError::InvalidName { bytes: name.len() });
        }
        Ok(Self(name.into()))
    }

    /// The name of these bytes from the network, which have no spaces around them.
    #[cfg(any(feature = "redis", feature = "tcp"))]
    fn exact(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        Self::new(text).ok().filter(|name| name.as_str() == text)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// An item that [`Channel::receive`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame from `from`, which may be the receiver itself.
    Frame {
        /// The sender, as it names itself; over [`Tcp`] with TLS, as its certificate proves.
        from: NodeName,
        /// The bytes as they were sent.
        frame: Bytes,
    },
    /// The connection to `peer` is closed: frames are dropped until it is open again.
    Down {
        /// The node at its other end.
        peer: NodeName,
    },
}

impl Received {
    /// The size in a queue.
    fn bytes(&self) -> usize {
        match self {
            Self::Frame { frame, .. } => frame.len(),
            Self::Down { .. } => 0,
        }
    }
}

/// How much a channel has moved and dropped since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames accepted for sending.
    pub sent: u64,
    /// Frames and lost connections that were queued for [`Channel::receive`].
    pub received: u64,
    /// Frames dropped because an outgoing queue was full or its connection down. Frames that are
    /// queued when a connection breaks are lost as well, and not counted.
    pub dropped_outgoing: u64,
    /// Frames dropped because the incoming queue was full.
    pub dropped_incoming: u64,
    /// Byte sequences that did not decode or exceeded the frame limit.
    pub malformed: u64,
    /// Connections that were closed because they proved no peer's name, in time or at all.
    pub refused_before_authentication: u64,
}

/// Moves frames between named nodes, best effort.
///
/// # Examples
///
/// A function over any channel: it echoes each frame to its sender.
///
/// ```
/// use gaggle_channels::{Channel, ChannelError, Hub, NodeName, Received};
///
/// async fn echo(channel: &dyn Channel) -> Result<(), ChannelError> {
///     while let Some(received) = channel.receive().await {
///         if let Received::Frame { from, frame } = received {
///             channel.send(&from, frame)?;
///         }
///     }
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ChannelError> {
/// let hub = Hub::new();
/// let (a, b) = (hub.channel(NodeName::new("a")?), hub.channel(NodeName::new("b")?));
/// a.connect().await?;
/// b.connect().await?;
/// a.send(b.name(), "hello".into())?;
/// tokio::select! {
///     ended = echo(&b) => ended?,
///     echoed = a.receive() => {
///         let (from, frame) = (b.name().clone(), "hello".into());
///         assert_eq!(echoed, Some(Received::Frame { from, frame }));
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// # For implementors
///
/// A channel must keep the order per pair while a connection lasts, never block in
/// [`send`](Self::send), bound every queue, and count what it drops.
/// The suite that tests it is `gaggle-fixtures` in this repository, in `lab/fixtures`.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// This node's own name.
    fn name(&self) -> &NodeName;

    /// Joins: from now on frames can be sent and received. Connecting twice is not an error.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Unavailable`] when the transport cannot be reached within its connect
    /// limit, [`ChannelError::Refused`] when it does not serve this node now,
    /// [`ChannelError::Misconfigured`] when it refuses this node, [`ChannelError::NameTaken`] when
    /// it knows that the name is in use.
    async fn connect(&self) -> Result<(), ChannelError>;

    /// Leaves: pending frames may be lost, [`receive`](Self::receive) ends with `None`, and no
    /// task, socket or thread stays behind. Disconnecting twice is not an error.
    async fn disconnect(&self);

    /// Queues `frame` for `to` and returns at once. `Ok` does not promise delivery.
    ///
    /// # Errors
    ///
    /// [`ChannelError::FrameTooLong`], [`ChannelError::Disconnected`]. A full queue is not an
    /// error: the frame is dropped and counted.
    fn send(&self, to: &NodeName, frame: Bytes) -> Result<(), ChannelError>;

    /// Waits for the next frame or loss of a connection. `None` once disconnected, and before
    /// connecting.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. One task at a time may wait.
    async fn receive(&self) -> Option<Received>;

    /// The next event, as of [`receive`](Self::receive), if one has arrived: for gathering a batch.
    fn try_receive(&self) -> Option<Received>;

    /// How much it has moved and dropped so far.
    fn counters(&self) -> Counters;

    /// The address that this node listens on, once connected, with the port chosen for port 0. For
    /// diagnostics only. `None` where nodes have no addresses.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// Why peers are not connected, as far as this node knows: for diagnostics. Empty for a channel
    /// that does not connect to peers directly.
    fn failures(&self) -> BTreeMap<NodeName, String> {
        BTreeMap::new()
    }

    /// The longest frame in bytes, at least 4 KiB and at most [`FRAME_BYTES_MAX`].
    fn frame_limit(&self) -> usize {
        FRAME_BYTES_MAX
    }
}

fn check_length(frame: &Bytes) -> Result<(), ChannelError> {
    let (bytes, limit) = (frame.len(), FRAME_BYTES_MAX);
    if bytes > limit { Err(ChannelError::FrameTooLong { bytes, limit }) } else { Ok(()) }
}

/// Why a channel refused a call. `Debug` prints the sentence, as a `main` that returns it does.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum ChannelError {
    /// The name of a node is empty or too long. Nothing was done.
    #[error("node name is {bytes} bytes long, the limit is 1 to {NODE_NAME_BYTES_MAX}")]
    InvalidName {
        /// The name's length in bytes.
        bytes: usize,
    },
    /// An option is outside its limit. Nothing was done.
    #[error("invalid channel option {field}: {problem}")]
    InvalidOptions {
        /// The field.
        field: &'static str,
        /// The value, and the limit that it breaks.
        problem: String,
    },
    /// The frame exceeds the limit. It was not sent.
    #[error("frame is {bytes} bytes long, the limit is {limit}")]
    FrameTooLong {
        /// The frame's length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Not connected: nothing was sent.
    #[error("the channel is not connected")]
    Disconnected,
    /// Another node of this name is connected. Nothing was done.
    #[error("node name {name} is in use on this channel")]
    NameTaken {
        /// The name.
        name: NodeName,
    },
    /// The transport cannot be reached; connecting again later may work. Its text is that of the
    /// source: the address, and the cause.
    #[error(transparent)]
    Unavailable {
        /// The error of the transport.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transport replied that it does not serve this node now; connecting again later may work.
    /// Displayed as its source.
    #[error(transparent)]
    Refused {
        /// The error of the transport.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The transport refuses this node until an operator changes something: a wrong password, a
    /// missing right, a server of another kind. Its text is that of the source.
    #[error(transparent)]
    Misconfigured {
        /// The error of the transport.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Debug for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
