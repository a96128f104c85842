use std::{fmt, time::Duration};

use crate::{ChannelError, NodeName, QUEUE_BYTES, queue};

/// The longest cluster name, in bytes.
const CLUSTER_BYTES_MAX: usize = 64;

/// How a [`Redis`](super::Redis) channel is run.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://[user:password@]host[:port][/db]`.
    pub url: String,
    /// Keeps clusters that share a Redis apart; 1 to 64 bytes.
    pub cluster: String,
    /// This node's name.
    pub name: NodeName,
    /// How long `connect`, and each attempt to reconnect, may take; 2 s by default.
    pub connect_timeout: Duration,
    /// Frames that wait to be published; more are dropped and counted. 1 to 2²⁴, 16,384 by default.
    pub outgoing_frames_max: usize,
    /// Frames that wait for `receive`; more are dropped and counted. 1 to 2²⁴, 65,536
    /// by default.
    pub incoming_frames_max: usize,
    /// What those frames may weigh together, in bytes, for each of the two kinds of queues; 64 MiB
    /// by default, and at least [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX).
    pub queue_bytes_max: usize,
}

impl RedisOptions {
    /// A node of `cluster` on the Redis at `url`.
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

    pub(super) fn validate(&self) -> Result<(), ChannelError> {
        let invalid = |field, problem: String| Err(ChannelError::InvalidOptions { field, problem });
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX {
            let problem =
                format!("{} bytes, the limit is 1 to {CLUSTER_BYTES_MAX}", self.cluster.len());
            return invalid("cluster", problem);
        }
        queue::validate(self.outgoing_frames_max, self.incoming_frames_max, self.queue_bytes_max)?;
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
