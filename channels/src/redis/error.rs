//! Why a Redis channel has no usable connection.

use std::time::Duration;

use redis::RedisError;

use crate::{
    ChannelError,
    internal::redis_error::{Attempt, NO_RESP3, is_passing, reason},
};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that does not reply for this long is dropped.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Why a connection is unusable, with the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("cannot reach Redis at {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error(
        "cannot reach Redis at {address}: no connection within {} s",
        CONNECT_TIMEOUT.as_secs()
    )]
    Timeout { address: String },
    #[error("the server at {address} did not answer with the Redis protocol")]
    NotRedis { address: String },
    #[error("the server at {address} {NO_RESP3}")]
    NoResp3 { address: String },
    #[error("Redis at {address} requires a password: write :PASSWORD@ before the host")]
    NoPassword { address: String },
    #[error("Redis at {address} refused the user name or the password")]
    WrongPassword { address: String },
    /// The server replied to a command with an error.
    #[error("Redis at {address} refused a command of the channel: {reason}")]
    Refused { address: String, reason: String, permanent: bool },
    #[error("Redis at {address} closed the connection")]
    Closed { address: String },
    #[error("Redis at {address} has not replied for {} s", SILENCE_MAX.as_secs())]
    Silent { address: String },
}

impl ConnectionError {
    pub(super) fn of_attempt(address: String, error: &RedisError) -> Self {
        match Attempt::of(error) {
            Attempt::NotRedis => Self::NotRedis { address },
            Attempt::NoResp3 => Self::NoResp3 { address },
            Attempt::NoPassword => Self::NoPassword { address },
            Attempt::WrongPassword => Self::WrongPassword { address },
            Attempt::Refused { reason, permanent, .. } => {
                Self::Refused { address, reason, permanent }
            }
            Attempt::Failed => Self::of_command(address, error),
        }
    }

    pub(super) fn of_command(address: String, error: &RedisError) -> Self {
        match error.code() {
            Some("NOAUTH") => Self::NoPassword { address },
            Some(code) => {
                Self::Refused { address, reason: error.to_string(), permanent: !is_passing(code) }
            }
            None if error.is_timeout() => Self::Silent { address },
            None => Self::Unreachable { address, reason: reason(error) },
        }
    }
}

impl From<ConnectionError> for ChannelError {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::Refused { permanent: false, .. } => {
                Self::Refused { source: error.into() }
            }
            ConnectionError::Unreachable { .. }
            | ConnectionError::Timeout { .. }
            | ConnectionError::Closed { .. }
            | ConnectionError::Silent { .. } => Self::Unavailable { source: error.into() },
            _ => Self::Misconfigured { source: error.into() },
        }
    }
}
