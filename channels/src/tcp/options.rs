//! The options of a TCP channel.

use std::{collections::BTreeMap, net::SocketAddr};

use super::security::Security;
#[cfg(feature = "tls")]
use crate::tls::{TlsKeys, member};
use crate::{ChannelError, NodeName};

/// The addresses of a [`Tcp`](super::Tcp) channel, and its protection.
///
/// # Examples
///
/// ```
/// use gaggle_channels::{NodeName, TcpOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Without TLS, on a trusted network.
/// let options = TcpOptions::new(NodeName::new("a")?, "10.0.0.1:7001".parse()?)
///     .peer(NodeName::new("b")?, "10.0.0.2:7001")
///     .insecure(true);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TcpOptions {
    pub(super) name: NodeName,
    pub(super) listen: SocketAddr,
    pub(super) peers: BTreeMap<NodeName, String>,
    insecure: bool,
    #[cfg(feature = "tls")]
    tls: Option<(String, TlsKeys)>,
}

impl TcpOptions {
    /// A node that listens on `listen`, where port 0 finds a free one, and knows no peers yet.
    #[must_use]
    pub fn new(name: NodeName, listen: SocketAddr) -> Self {
        Self {
            name,
            listen,
            peers: BTreeMap::new(),
            insecure: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Adds another node, which is reached at `host:port`. Connections of other names are refused.
    #[must_use]
    pub fn peer(mut self, name: NodeName, address: impl Into<String>) -> Self {
        self.peers.insert(name, address.into().trim().to_owned());
        self
    }

    /// Allows listening beyond loopback although frames travel in plain text and peers are not
    /// authenticated: only on a network that is trusted. Off by default.
    #[must_use]
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Speaks TLS 1.3, with these keys, to the other nodes of this cluster. The names of the nodes
    /// and of the cluster are then labels of DNS names: 1 to 63 of `a` to `z`, `0` to `9` and inner
    /// hyphens.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, cluster: impl Into<String>, keys: TlsKeys) -> Self {
        self.tls = Some((cluster.into(), keys));
        self
    }

    pub(super) fn check(&self) -> Result<Security, ChannelError> {
        let invalid = |field, problem| Err(ChannelError::InvalidOptions { field, problem });
        #[cfg(feature = "tls")]
        if let Some((cluster, keys)) = &self.tls {
            if self.insecure {
                return invalid("insecure", "there is TLS: leave it out".into());
            }
            for peer in self.peers.keys() {
                member::check_label("peers", peer.as_str())?;
            }
            let member = member::Member::new(keys.clone(), cluster.clone(), self.name.clone())?;
            return Security::tls(member);
        }
        if self.listen.ip().is_loopback() || self.insecure {
            return Ok(Security::Plain);
        }
        let problem = format!(
            "{} is beyond loopback, and frames would travel in plain text: give keys for TLS, or \
             insecure=true on a trusted network",
            self.listen
        );
        invalid("listen", problem)
    }
}
