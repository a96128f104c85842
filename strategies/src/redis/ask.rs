//! Questions to a server that knows where the locks are: a Sentinel, or any node of a Cluster.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, RedisConnectionInfo, RedisResult, Value,
    aio::MultiplexedConnection,
};

use super::{
    dial::{Transport, unopened},
    error::ConnectionError,
};

/// How a server is asked.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    pub(super) login: RedisConnectionInfo,
    pub(super) transport: Transport,
    /// How long one attempt to connect may take. All servers are asked within it.
    pub(super) limit: Duration,
}

impl Asking {
    /// How long one server may take if this many are asked.
    pub(super) fn patience(&self, servers: usize) -> Duration {
        self.limit / u32::try_from(servers).unwrap_or(u32::MAX).max(1)
    }

    /// Sends commands on a connection of their own. Error replies are among the replies.
    ///
    /// # Errors
    ///
    /// The outer one, if no stream opens. [`ConnectionError::Unreachable`] names the server.
    pub(super) async fn ask<const N: usize>(
        &self,
        address: &ConnectionAddr,
        questions: [&[&str]; N],
    ) -> Result<RedisResult<[Value; N]>, ConnectionError> {
        let stream = self.transport.open(address).await;
        let stream = stream.map_err(|error| unopened(address.to_string(), error))?;
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Ok(async {
            let (mut connection, driver) =
                MultiplexedConnection::new_with_config(&self.login, stream, config).await?;
            let mut replies = [const { Value::Okay }; N];
            let asked = async {
                for (question, reply) in questions.iter().zip(&mut replies) {
                    let mut cmd = Cmd::new();
                    cmd.arg(question);
                    *reply = connection.send_packed_command(&cmd).await?;
                }
                RedisResult::Ok(())
            };
            tokio::select! {
                asked = asked => asked?,
                () = driver => return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into()),
            }
            Ok(replies)
        }
        .await)
    }
}

/// `host`, `host:port` or `[host]:port`.
pub(super) fn address(text: &str, default_port: u16) -> ConnectionAddr {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            port.parse().map_or((text, default_port), |port| (host, port))
        }
        _ => (text, default_port),
    };
    ConnectionAddr::Tcp(host.trim_matches(['[', ']']).to_owned(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_default_port() {
        for (text, host, port) in [
            ("s1", "s1", 26_379),
            ("s1:7", "s1", 7),
            ("[::1]:7", "::1", 7),
            ("[::1]", "::1", 26_379),
            ("::1", "::1", 26_379),
        ] {
            let expected = ConnectionAddr::Tcp(host.into(), port);
            assert_eq!(address(text, 26_379), expected, "{text}");
        }
    }
}
