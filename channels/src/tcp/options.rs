//! The options of a TCP channel.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::{ChannelError, NodeName};

/// The addresses of a [`Tcp`](super::Tcp) channel.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    pub(super) name: NodeName,
    pub(super) listen: SocketAddr,
    pub(super) peers: BTreeMap<NodeName, String>,
    insecure: bool,
}

impl TcpOptions {
    /// A node that listens on `listen`, where port 0 finds a free one, and knows no peers yet.
    #[must_use]
    pub fn new(name: NodeName, listen: SocketAddr) -> Self {
        Self { name, listen, peers: BTreeMap::new(), insecure: false }
    }

    /// Adds another node, which is reached at `host:port`. Connections of other names are refused.
    #[must_use]
    pub fn peer(mut self, name: NodeName, address: impl Into<String>) -> Self {
        self.peers.insert(name, address.into());
        self
    }

    /// Allows listening beyond loopback although frames travel in plain text and peers are not
    /// authenticated: only on a network that is trusted. Off by default.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    pub(super) fn check(&self) -> Result<(), ChannelError> {
        if self.listen.ip().is_loopback() || self.insecure {
            return Ok(());
        }
        let problem = format!(
            "{} is beyond loopback, and frames travel in plain text; insecure=true allows it",
            self.listen
        );
        Err(ChannelError::InvalidOptions { field: "listen", problem })
    }
}
