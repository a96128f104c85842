//! Finds the master of a Redis by its Sentinels: each is asked for the address in turn.

use std::{io, time::Duration};

use gaggle_channels::internal::redis_error::{Attempt, NO_RESP3, reason};
use humantime::format_duration;
use redis::{ConnectionAddr, RedisConnectionInfo, Value};

use super::{
    dial::{Dial, DialFuture, shown, unopened},
    query::{self, QueryClient},
};
use crate::redis::{
    error::{ConnectionError, is_unknown_command, server_reason},
    protocol::master,
};

/// The port of a Sentinel that is given without one.
const PORT: u16 = 26_379;

/// The Sentinels of one master, as the options name them.
#[derive(Clone, Debug)]
pub(super) struct Sentinels {
    master: String,
    addresses: Vec<String>,
    login: RedisConnectionInfo,
}

impl Sentinels {
    pub(super) fn new(master: String, addresses: Vec<String>) -> Self {
        Self { master, addresses, login: RedisConnectionInfo::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    pub(super) fn login(&self) -> &RedisConnectionInfo {
        &self.login
    }

    pub(super) fn set_login(&mut self, user: Option<&str>, password: &str) {
        let login = self.login.clone().set_password(password);
        self.login = match user {
            Some(user) => login.set_username(user),
            None => login,
        };
    }
}

/// Asks the Sentinels, beginning with another one in each attempt.
pub(super) struct SentinelDial {
    sentinels: Sentinels,
    queries: QueryClient,
    attempts: usize,
}

impl SentinelDial {
    pub(super) fn new(sentinels: Sentinels, queries: QueryClient) -> Self {
        Self { sentinels, queries, attempts: 0 }
    }

    /// Asks one Sentinel, and connects to the server that it names.
    fn candidate(&self, at: usize, patience: Duration) -> DialFuture {
        let address = query::address(&self.sentinels.addresses[at], PORT);
        let (master, queries) = (self.sentinels.master.clone(), self.queries.clone());
        Box::pin(async move {
            let asked = named(&address, &master, &queries);
            let asked = queries.transport().within(patience, asked).await.unwrap_or_else(|| {
                let reason = format!("no reply within {}", format_duration(patience));
                Err(unreachable(&address, &reason))
            });
            let server = asked.map_err(io::Error::other)?;
            queries.transport().open(&server).await.map_err(|error| {
                let (server, sentinel) = (shown(&server), shown(&address));
                let named = format!("{server}, which is {master} for the Sentinel at {sentinel}");
                io::Error::other(unopened(named, error))
            })
        })
    }
}

impl Dial for SentinelDial {
    fn dial(&mut self) -> Vec<DialFuture> {
        let count = self.sentinels.addresses.len();
        let (first, patience) = (self.attempts, self.queries.patience());
        self.attempts += 1;
        (first..first + count).map(|at| self.candidate(at % count, patience)).collect()
    }

    fn may_move(&self) -> bool {
        true
    }

    fn has_pending_look_up(&self) -> bool {
        self.queries.transport().has_pending_look_up()
    }

    fn address(&self) -> String {
        format!("{} of the Sentinels {}", self.sentinels.master, self.sentinels.addresses.join(","))
    }
}

/// The address of the master, as one Sentinel has it.
async fn named(
    address: &ConnectionAddr,
    name: &str,
    queries: &QueryClient,
) -> Result<ConnectionAddr, ConnectionError> {
    let shown = || shown(address);
    let unreachable = |reason: &str| self::unreachable(address, reason);
    let refused = |reason: &str| {
        ConnectionError::misconfigured(format!(
            "the Sentinel at {} did not name the master: {reason}; sentinel_user and \
             sentinel_password log in there",
            shown()
        ))
    };
    let asked = queries.ask(address, [&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]]).await;
    let reply = asked.map_err(|error| match error {
        ConnectionError::Unreachable { reason, .. } => unreachable(&reason),
        error => error,
    })?;
    match reply {
        Ok([Value::ServerError(error)]) if is_unknown_command(&error) => {
            let scheme = queries.transport().scheme();
            Err(ConnectionError::misconfigured(format!(
                "the server at {address} is not a Sentinel: give the address of one, or for that \
                 server alone write {scheme}://{address}",
                address = shown()
            )))
        }
        Ok([Value::ServerError(error)]) => Err(refused(&server_reason(&error))),
        Ok([Value::Nil]) => Err(ConnectionError::misconfigured(format!(
            "the Sentinel at {} knows no master {name:?}: see its sentinel.conf",
            shown()
        ))),
        Ok([value]) => match master(value) {
            Some((host, port)) => Ok(ConnectionAddr::Tcp(host, port)),
            None => Err(unreachable("its reply has no address")),
        },
        Err(error) => Err(match Attempt::of(&error) {
            attempt @ Attempt::Refused { permanent: false, .. } => {
                ConnectionError::refused(attempt.text(&shown(), &error))
            }
            Attempt::Refused { reason, .. } => refused(&reason),
            Attempt::NoResp3 => refused(&format!("it {NO_RESP3}")),
            Attempt::NoPassword => refused("NOAUTH"),
            Attempt::WrongPassword => refused("it refused the user name or the password"),
            Attempt::NotRedis | Attempt::Failed => unreachable(&reason(&error)),
        }),
    }
}

fn unreachable(sentinel: &ConnectionAddr, reason: &str) -> ConnectionError {
    ConnectionError::silent(format!("cannot reach the Sentinel at {}: {reason}", shown(sentinel)))
}
