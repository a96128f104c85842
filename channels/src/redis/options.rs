//! The options of a Redis channel.

use std::{fmt, time::Duration};

use crate::{ChannelError, NodeName, QUEUE_BYTES, queue};

/// The longest cluster name, in bytes.
const CLUSTER_BYTES_MAX: usize = 64;

/// How a [`Redis`](super::Redis) channel is run.
#[derive(Clone)]
pub struct RedisOptions {
    pub(super) url: String,
    pub(super) cluster: String,
    pub(super) name: NodeName,
    pub(super) connect_timeout: Duration,
    pub(super) outgoing_frames_max: usize,
    pub(super) incoming_frames_max: usize,
    pub(super) queue_bytes_max: usize,
}

impl RedisOptions {
    /// A node on the Redis at `redis://[user:password@]host[:port][/db]`. `cluster`, of 1 to 64 bytes,
    /// keeps clusters that share a Redis apart.
    #[must_use]
    pub fn new(url: impl Into<String>, cluster: impl Into<String>, name: NodeName) -> Self {
        Self {
            url: url.into(),
            cluster: cluster.into(),
            name,
            connect_timeout: Duration::from_secs(2),
            outgoing_frames_max: 16_384,
            incoming_frames_max: 65_536,
            queue_bytes_max: QUEUE_BYTES,
        }
    }

    /// How long `connect`, and each attempt to reconnect, may take; 2 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Frames that wait to be published; more are dropped and counted. 1 to 2²⁴, 16,384 by default.
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
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX {
            let problem =
                format!("{} bytes, the limit is 1 to {CLUSTER_BYTES_MAX}", self.cluster.len());
            return invalid("cluster", problem);
        }
        queue::check(self.outgoing_frames_max, self.incoming_frames_max, self.queue_bytes_max)?;
        if self.connect_timeout.is_zero() {
            return invalid("connect_timeout", "0 s, it must be longer".into());
        }
        match redis::Client::open(self.url.as_str()) {
            Ok(_) => Ok(()),
            // The URL itself may hold a password.
            Err(_) => {
                invalid("url", "not of the form redis://[user:password@]host[:port][/db]".into())
            }
        }
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URL: it may hold a password.
        f.debug_struct("RedisOptions")
            .field("cluster", &self.cluster)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_set_and_checked_by_its_name() {
        let options =
            |url: &str, cluster: &str| RedisOptions::new(url, cluster, NodeName::new("a").unwrap());
        let right = || options("redis://127.0.0.1", "c");
        assert!(right().check().is_ok());
        for (wrong, option) in [
            (options("http://127.0.0.1", "c"), "url"),
            (options("redis://127.0.0.1", ""), "cluster"),
            (right().connect_timeout(Duration::ZERO), "connect_timeout"),
            (right().outgoing_frames_max(0), "outgoing_frames_max"),
            (right().incoming_frames_max(0), "incoming_frames_max"),
            (right().queue_bytes_max(0), "queue_bytes_max"),
        ] {
            match wrong.check() {
                Err(ChannelError::InvalidOptions { field, .. }) => assert_eq!(field, option),
                other => panic!("{option}: {other:?}"),
            }
        }
    }
}
