//! Queries to a server that knows which server holds the locks: a Sentinel or a node of a Cluster.

use std::{pin::pin, time::Duration};

use gaggle_channels::internal::reply_limit::{HANDSHAKE_BYTES_MAX, LimitedStream, ReplyLimit};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, RedisConnectionInfo, RedisResult,
    Value, aio::MultiplexedConnection,
};

use super::dial::{Transport, shown, tls_at, unopened};
use crate::redis::error::ConnectionError;

/// The login and the transport of queries.
#[derive(Clone, Debug)]
pub(super) struct QueryClient {
    login: RedisConnectionInfo,
    transport: Transport,
}

impl QueryClient {
    pub(super) fn new(login: &RedisConnectionInfo, transport: Transport) -> Self {
        // An error of HELLO keeps its code, an error of AUTH does not.
        let login = login.clone().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
        Self { login, transport }
    }

    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// How long one server may take: half of an attempt to connect, whose other half is for the
    /// connection to the server that it names. The next attempt begins with another one.
    pub(super) fn patience(&self) -> Duration {
        self.transport.limit() / 2
    }

    /// Sends commands on a separate connection. Error replies are among the replies.
    ///
    /// # Errors
    ///
    /// The outer one, if no stream opens, [`ConnectionError::Unreachable`] naming the server, or if
    /// the server speaks TLS and this side does not.
    pub(super) async fn ask<const N: usize>(
        &self,
        address: &ConnectionAddr,
        questions: [&[&str]; N],
    ) -> Result<RedisResult<[Value; N]>, ConnectionError> {
        let stream = self.transport.open(address).await;
        let (stream, peer) = stream.map_err(|error| unopened(shown(address), error))?;
        let stream = LimitedStream::new(stream, ReplyLimit::new(HANDSHAKE_BYTES_MAX));
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let replies: RedisResult<[Value; N]> = async {
            let (mut connection, driver) =
                MultiplexedConnection::new_with_config(&self.login, stream, config).await?;
            let mut pipe = redis::pipe();
            for question in questions {
                pipe.cmd(question[0]).arg(&question[1..]);
            }
            let mut replies = pin!(connection.send_packed_commands(&pipe, 0, N));
            let replies = tokio::select! {
                replies = &mut replies => replies,
                // The driver may have delivered them before it ended.
                () = driver => replies.await,
            };
            Ok(replies?.try_into().expect("a reply to each question"))
        }
        .await;
        match &replies {
            Err(error) if error.code().is_none() => tls_at(peer).await.map_or(Ok(replies), Err),
            _ => Ok(replies),
        }
    }
}

/// `host`, `host:port` or `[host]:port`, without the spaces around it.
pub(super) fn address(text: &str, default_port: u16) -> ConnectionAddr {
    let text = text.trim();
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
            (" s1:7 ", "s1", 7),
        ] {
            let expected = ConnectionAddr::Tcp(host.into(), port);
            assert_eq!(address(text, 26_379), expected, "{text}");
        }
    }
}
