//! Why a Redis channel has no usable connection.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError};

use crate::ChannelError;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A server that does not reply for this long is dropped.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

type DynError = dyn Error + Send + Sync;

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
    #[error("the server at {address} is no Redis: its reply does not parse")]
    NotRedis { address: String },
    #[error("Redis at {address} requires a password: write :PASSWORD@ before the host")]
    NoPassword { address: String },
    #[error("Redis at {address} refused the user name or the password")]
    WrongPassword { address: String },
    /// The server replied to a command with an error of this code and text.
    #[error("Redis at {address} refused a command of the channel: {reason}")]
    Refused { address: String, code: String, reason: String },
    #[error("Redis at {address} closed the connection")]
    Closed { address: String },
    #[error("Redis at {address} has not replied for {} s", SILENCE_MAX.as_secs())]
    Silent { address: String },
}

impl ConnectionError {
    /// Of an attempt to log in. Of a refusal only the code is shown: the server may quote the
    /// command with its password.
    pub(super) fn of_attempt(address: String, error: &RedisError) -> Self {
        match (error.code(), error.kind()) {
            (Some("NOAUTH"), _) => Self::NoPassword { address },
            (Some("WRONGPASS"), _) => Self::WrongPassword { address },
            (Some(code), _) => {
                Self::Refused { address, code: code.to_owned(), reason: code.to_owned() }
            }
            (None, ErrorKind::AuthenticationFailed) => Self::WrongPassword { address },
            (None, ErrorKind::Parse | ErrorKind::UnexpectedReturnType) => {
                Self::NotRedis { address }
            }
            (None, _) => Self::of_command(address, error),
        }
    }

    pub(super) fn of_command(address: String, error: &RedisError) -> Self {
        match error.code() {
            Some("NOAUTH") => Self::NoPassword { address },
            Some(code) => {
                Self::Refused { address, code: code.to_owned(), reason: error.to_string() }
            }
            None if error.is_timeout() => Self::Silent { address },
            None => Self::Unreachable { address, reason: reason(error) },
        }
    }

    /// Whether an operator has to change the server or the URL.
    fn is_permanent(&self) -> bool {
        match self {
            Self::NotRedis { .. } | Self::NoPassword { .. } | Self::WrongPassword { .. } => true,
            Self::Refused { code, .. } => !matches!(
                code.as_str(),
                "LOADING" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "READONLY"
            ),
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Closed { .. }
            | Self::Silent { .. } => false,
        }
    }
}

/// The condition in an operator's terms, without the number of the system's error.
fn reason(error: &RedisError) -> String {
    let source = error.source().and_then(|source| source.downcast_ref::<Arc<DynError>>());
    match source.and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(io) if !io.kind().to_string().starts_with("uncategorized") => io.kind().to_string(),
        Some(io) => io.to_string(),
        None => error.to_string(),
    }
}

impl From<ConnectionError> for ChannelError {
    fn from(error: ConnectionError) -> Self {
        match error.is_permanent() {
            true => Self::Misconfigured { source: error.into() },
            false => Self::Unavailable { source: error.into() },
        }
    }
}
