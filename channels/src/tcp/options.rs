//! The options of a TCP channel.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::{ChannelError, NodeName, QUEUE_BYTES, queue};

/// How a [`Tcp`](super::Tcp) channel is run.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    pub(super) name: NodeName,
    pub(super) listen: SocketAddr,
    pub(super) peers: BTreeMap<NodeName, String>,
    insecure: bool,
    pub(super) connect_timeout: Duration,
    pub(super) outgoing_frames_max: usize,
    pub(super) incoming_frames_max: usize,
    pub(super) queue_bytes_max: usize,
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
            connect_timeout: Duration::from_secs(1),
            outgoing_frames_max: 8_192,
            incoming_frames_max: 65_536,
            queue_bytes_max: QUEUE_BYTES,
        }
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

    /// How long one attempt to connect may take; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Frames that wait for one peer; more are dropped and counted. 1 to 2²⁴, 8,192 by default.
    #[must_use]
    pub fn outgoing_frames_max(mut self, frames: usize) -> Self {
        self.outgoing_frames_max = frames;
        self
    }

    /// Frames that wait for `receive`; more are dropped and counted. 1 to 2²⁴, 65,536 by default.
    #[must_use]
    pub fn incoming_frames_max(mut self, frames: usize) -> Self {
        self.incoming_frames_max = frames;
        self
    }

    /// What those frames may weigh together, in bytes, for each of the two kinds of queues; 64 MiB
    /// by default, and at least [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX).
    #[must_use]
    pub fn queue_bytes_max(mut self, bytes: usize) -> Self {
        self.queue_bytes_max = bytes;
        self
    }

    pub(super) fn check(&self) -> Result<(), ChannelError> {
        let invalid = |field, problem: String| Err(ChannelError::InvalidOptions { field, problem });
        if !self.listen.ip().is_loopback() && !self.insecure {
            let problem = format!(
                "{} is beyond loopback, and frames travel in plain text; insecure=true allows it",
                self.listen
            );
            return invalid("listen", problem);
        }
        queue::check(self.outgoing_frames_max, self.incoming_frames_max, self.queue_bytes_max)?;
        if self.connect_timeout.is_zero() {
            return invalid("connect_timeout", "0 s, it must be longer".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_set_and_checked_by_its_name() {
        let options = || {
            let name = NodeName::new("a").unwrap();
            TcpOptions::new(name, "127.0.0.1:0".parse().unwrap())
        };
        assert!(options().check().is_ok());
        for (wrong, option) in [
            (options().connect_timeout(Duration::ZERO), "connect_timeout"),
            (options().outgoing_frames_max(0), "outgoing_frames_max"),
            (options().incoming_frames_max(0), "incoming_frames_max"),
            (options().queue_bytes_max(0), "queue_bytes_max"),
        ] {
            match wrong.check() {
                Err(ChannelError::InvalidOptions { field, .. }) => assert_eq!(field, option),
                other => panic!("{option}: {other:?}"),
            }
        }
    }
}
