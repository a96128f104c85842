//! Why a Redis channel has no usable connection.

use std::time::Duration;

use redis::RedisError;

use crate::{
    ChannelError,
    internal::redis_error::{Attempt, is_passing, no_password},
};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that does not reply for this long is dropped.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Why a connection is unusable, with the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// There is no server, or it is silent.
    #[error("{0}")]
    Unreachable(String),
    /// The server replied with an error, and may serve later.
    #[error("{0}")]
    Refused(String),
    /// An operator has to change the server or the URL.
    #[error("{0}")]
    Misconfigured(String),
}

impl ConnectionError {
    /// There was no connection in time.
    pub(super) fn timeout(address: &str) -> Self {
        let limit = CONNECT_TIMEOUT.as_secs();
        Self::Unreachable(format!(
            "cannot reach Redis at {address}: no connection within {limit} s"
        ))
    }

    pub(super) fn closed(address: &str) -> Self {
        Self::Unreachable(format!("Redis at {address} closed the connection"))
    }

    pub(super) fn of_attempt(address: &str, error: &RedisError) -> Self {
        match Attempt::of(error) {
            Attempt::Failed => Self::of_command(address, error),
            attempt if attempt.is_permanent() => Self::Misconfigured(attempt.text(address, error)),
            attempt => Self::Refused(attempt.text(address, error)),
        }
    }

    pub(super) fn of_command(address: &str, error: &RedisError) -> Self {
        let refused = || format!("Redis at {address} refused a command of the channel: {error}");
        match error.code() {
            Some("NOAUTH") => Self::Misconfigured(no_password(address)),
            Some(code) if is_passing(code) => Self::Refused(refused()),
            Some(_) => Self::Misconfigured(refused()),
            None if error.is_timeout() => {
                let limit = SILENCE_MAX.as_secs();
                Self::Unreachable(format!("Redis at {address} has not replied for {limit} s"))
            }
            None => Self::Unreachable(Attempt::Failed.text(address, error)),
        }
    }
}

impl From<ConnectionError> for ChannelError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Unreachable(_) => Self::Unavailable { source: error.into() },
            ConnectionError::Refused(_) => Self::Refused { source: error.into() },
            ConnectionError::Misconfigured(_) => Self::Misconfigured { source: error.into() },
        }
    }
}
