use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::{ChannelError, NodeName, QUEUE_BYTES, queue};

/// How a [`Tcp`](super::Tcp) channel is run.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// This node's name.
    pub name: NodeName,
    /// Where to listen; port 0 finds a free one.
    pub listen: SocketAddr,
    /// The other nodes: name to `host:port`. Connections of other names are refused.
    pub peers: BTreeMap<NodeName, String>,
    /// Listen beyond loopback although frames travel in plain text and peers are not
    /// authenticated: only on a network that is trusted. Off by default.
    pub insecure: bool,
    /// How long one attempt to connect may take; 1 s by default.
    pub connect_timeout: Duration,
    /// Frames that wait for one peer; more are dropped and counted. 1 to 2²⁴, 8,192 by default.
    pub outgoing_frames_max: usize,
    /// Frames that wait for `receive`; more are dropped and counted. 1 to 2²⁴, 65,536
    /// by default.
    pub incoming_frames_max: usize,
    /// What those frames may weigh together, in bytes, for each of the two kinds of queues; 64 MiB
    /// by default, and at least [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX).
    pub queue_bytes_max: usize,
}

impl TcpOptions {
    /// A node that listens on `listen` and knows no peers yet.
    #[must_use]
    pub fn new(name: NodeName, listen: SocketAddr) -> Self {
        Self {
            name,
            listen,
            peers: BTreeMap::new(),
            insecure: false,
            connect_timeout: Duration::from_secs(1),
            outgoing_frames_max: 8_192,
            incoming_frames_max: 65_536,
            queue_bytes_max: QUEUE_BYTES,
        }
    }

    /// Adds a peer.
    #[must_use]
    pub fn peer(mut self, name: NodeName, address: impl Into<String>) -> Self {
        self.peers.insert(name, address.into());
        self
    }

    /// Allows listening beyond loopback in plain text.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    pub(super) fn validate(&self) -> Result<(), ChannelError> {
        let invalid = |field, problem: String| Err(ChannelError::InvalidOptions { field, problem });
        if !self.listen.ip().is_loopback() && !self.insecure {
            let problem = format!(
                "{} is beyond loopback, and frames travel in plain text; insecure=true allows it",
                self.listen
            );
            return invalid("listen", problem);
        }
        queue::validate(self.outgoing_frames_max, self.incoming_frames_max, self.queue_bytes_max)?;
        if self.connect_timeout.is_zero() {
            return invalid("connect_timeout", "0 s, it must be longer".into());
        }
        Ok(())
    }
}
