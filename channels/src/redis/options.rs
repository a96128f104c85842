//! The options of a Redis channel.

use std::fmt;

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::{ChannelError, NodeName, internal::url::check_login};

/// The longest cluster name, in bytes.
const CLUSTER_BYTES_MAX: usize = 64;

/// The server, cluster and name of a [`Redis`](super::Redis) channel.
///
/// # Examples
///
/// ```
/// use gaggle_channels::{NodeName, RedisOptions};
///
/// # fn main() -> Result<(), gaggle_channels::ChannelError> {
/// let options = RedisOptions::new("redis://127.0.0.1:6379/0", "orders", NodeName::new("a")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisOptions {
    url: String,
    pub(super) cluster: String,
    pub(super) name: NodeName,
}

impl RedisOptions {
    /// A node on the Redis at `redis://[[user]:password@]host[:port][/db]`. `cluster`, of 1 to 64
    /// bytes, keeps clusters that share a Redis apart.
    #[must_use]
    pub fn new(url: impl Into<String>, cluster: impl Into<String>, name: NodeName) -> Self {
        Self { url: url.into(), cluster: cluster.into(), name }
    }

    pub(super) fn check(&self) -> Result<ConnectionInfo, ChannelError> {
        let invalid = |field, problem: String| ChannelError::InvalidOptions { field, problem };
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX {
            let problem =
                format!("{} bytes, the limit is 1 to {CLUSTER_BYTES_MAX}", self.cluster.len());
            return Err(invalid("cluster", problem));
        }
        check_login(&self.url).map_err(|problem| invalid("url", problem.into()))?;
        // Not the parser's error: any part of the URL may be a part of a password.
        let expected = "not of the form redis://[[user]:password@]host[:port][/db]";
        self.url.as_str().into_connection_info().map_err(|_| invalid("url", expected.into()))
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
    fn every_option_is_checked_by_its_name() {
        let options =
            |url: &str, cluster: &str| RedisOptions::new(url, cluster, NodeName::new("a").unwrap());
        assert!(options("redis://127.0.0.1", "c").check().is_ok());
        for (wrong, option) in [
            (options("http://127.0.0.1", "c"), "url"),
            (options("redis://u:pass?word@127.0.0.1", "c"), "url"),
            (options("redis://127.0.0.1", ""), "cluster"),
        ] {
            match wrong.check() {
                Err(ChannelError::InvalidOptions { field, .. }) => assert_eq!(field, option),
                other => panic!("{option}: {other:?}"),
            }
        }
    }
}
