//! The way to the master of a Redis that Sentinels watch: each is asked for its address in turn.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, RedisConnectionInfo, RedisResult, Value,
    aio::MultiplexedConnection,
};

use super::{
    dial::{Dial, Dialing, Transport, unopened},
    error::{ConnectionError, reason, server_reason},
    protocol::master,
};
use crate::in_prose;

/// The port of a Sentinel that is given without one.
const PORT: u16 = 26_379;

/// The Sentinels of one master, as the options name them.
#[derive(Clone, Debug)]
pub(super) struct Sentinels {
    pub(super) master: String,
    pub(super) addresses: Vec<String>,
    pub(super) login: RedisConnectionInfo,
}

/// Asks the Sentinels, beginning with another one in each attempt.
pub(super) struct SentinelDial {
    sentinels: Sentinels,
    transport: Transport,
    /// How long one Sentinel may take.
    patience: Duration,
    first: usize,
}

impl SentinelDial {
    /// All are asked within the time of one attempt to connect.
    pub(super) fn new(sentinels: Sentinels, transport: Transport, limit: Duration) -> Self {
        let count = u32::try_from(sentinels.addresses.len()).unwrap_or(u32::MAX);
        Self { sentinels, transport, patience: limit / count.max(1), first: 0 }
    }

    /// Asks one Sentinel, and connects to the server that it names.
    fn way(&self, at: usize) -> Dialing {
        let address = sentinel_address(&self.sentinels.addresses[at]);
        let Sentinels { master, login, .. } = self.sentinels.clone();
        let (transport, patience) = (self.transport.clone(), self.patience);
        Box::pin(async move {
            let asked = tokio::time::timeout(patience, ask(&address, &login, &master, &transport));
            let asked = asked.await.unwrap_or_else(|_| {
                let reason = format!("no reply within {}", in_prose(patience));
                Err(ConnectionError::NoSentinel { address: address.to_string(), reason })
            });
            let server = asked.map_err(io::Error::other)?;
            transport.open(&server).await.map_err(|error| {
                let named = format!("{server}, which is {master} for the Sentinel at {address}");
                io::Error::other(unopened(named, error))
            })
        })
    }
}

impl Dial for SentinelDial {
    fn dial(&mut self) -> Vec<Dialing> {
        let count = self.sentinels.addresses.len();
        let first = self.first;
        self.first = (first + 1) % count;
        (first..first + count).map(|at| self.way(at % count)).collect()
    }

    fn address(&self) -> String {
        format!("{} of the Sentinels {}", self.sentinels.master, self.sentinels.addresses.join(","))
    }
}

/// `host`, `host:port` or `[host]:port`.
pub(super) fn sentinel_address(text: &str) -> ConnectionAddr {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            port.parse().map_or((text, PORT), |port| (host, port))
        }
        _ => (text, PORT),
    };
    ConnectionAddr::Tcp(host.trim_matches(['[', ']']).to_owned(), port)
}

/// The address of the master, as one Sentinel has it.
async fn ask(
    address: &ConnectionAddr,
    login: &RedisConnectionInfo,
    name: &str,
    transport: &Transport,
) -> Result<ConnectionAddr, ConnectionError> {
    let shown = || address.to_string();
    let unreachable = |reason| ConnectionError::NoSentinel { address: shown(), reason };
    let stream = transport.open(address).await.map_err(|error| match unopened(shown(), error) {
        ConnectionError::Unreachable { reason, .. } => unreachable(reason),
        error => error,
    })?;
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let reply = async {
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let mut cmd = Cmd::new();
        cmd.arg(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]);
        tokio::select! {
            reply = connection.send_packed_command(&cmd) => reply,
            () = driver => Ok(Value::Okay),
        }
    };
    let reply: RedisResult<Value> = reply.await;
    match reply {
        Ok(Value::ServerError(error)) => Err(ConnectionError::SentinelRefused {
            address: shown(),
            reason: server_reason(&error),
        }),
        Ok(Value::Nil) => {
            Err(ConnectionError::UnknownMaster { address: shown(), name: name.to_owned() })
        }
        Ok(value) => match master(value) {
            Some((host, port)) => Ok(ConnectionAddr::Tcp(host, port)),
            None => Err(unreachable("its reply has no address".into())),
        },
        // Not the server's text, which may quote the login.
        Err(error) => match error.code() {
            Some(code) => {
                Err(ConnectionError::SentinelRefused { address: shown(), reason: code.to_owned() })
            }
            None => Err(unreachable(reason(&error))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinel_addresses_have_a_default_port() {
        for (text, host, port) in [
            ("s1", "s1", 26_379),
            ("s1:7", "s1", 7),
            ("[::1]:7", "::1", 7),
            ("[::1]", "::1", 26_379),
            ("::1", "::1", 26_379),
        ] {
            assert_eq!(sentinel_address(text), ConnectionAddr::Tcp(host.into(), port), "{text}");
        }
    }
}
