//! Why a Redis channel has no usable connection.

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError};

use crate::ChannelError;

/// A server that does not reply for this long is dropped.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(3);

type DynError = dyn Error + Send + Sync;

/// A problem, and the server that has it: one sentence with the remedy where there is one.
#[derive(Debug)]
pub(super) struct ConnectionError {
    pub(super) address: String,
    pub(super) problem: Problem,
}

/// Why a connection is unusable.
#[derive(Debug)]
pub(super) enum Problem {
    Unreachable(String),
    Timeout(Duration),
    NotRedis,
    NoPassword,
    WrongPassword,
    /// The server replied to a command with an error of this code and text.
    Refused {
        code: String,
        reason: String,
    },
    Closed,
    Silent,
}

impl Problem {
    /// Of an attempt to log in. Of a refusal only the code is shown: the server may quote the
    /// command with its password.
    pub(super) fn of_attempt(error: &RedisError) -> Self {
        match (error.code(), error.kind()) {
            (Some("NOAUTH"), _) => Self::NoPassword,
            (Some("WRONGPASS"), _) => Self::WrongPassword,
            (Some(code), _) => Self::Refused { code: code.to_owned(), reason: code.to_owned() },
            (None, ErrorKind::AuthenticationFailed) => Self::WrongPassword,
            (None, ErrorKind::Parse | ErrorKind::UnexpectedReturnType) => Self::NotRedis,
            (None, _) => Self::of_command(error),
        }
    }

    pub(super) fn of_command(error: &RedisError) -> Self {
        match error.code() {
            Some("NOAUTH") => Self::NoPassword,
            Some(code) => Self::Refused { code: code.to_owned(), reason: error.to_string() },
            None if error.is_timeout() => Self::Silent,
            None => Self::Unreachable(reason(error)),
        }
    }

    /// Whether an operator has to change the server or the URL.
    fn is_permanent(&self) -> bool {
        match self {
            Self::NotRedis | Self::NoPassword | Self::WrongPassword => true,
            Self::Refused { code, .. } => !matches!(
                code.as_str(),
                "LOADING" | "BUSY" | "CLUSTERDOWN" | "TRYAGAIN" | "MASTERDOWN" | "READONLY"
            ),
            Self::Unreachable(_) | Self::Timeout(_) | Self::Closed | Self::Silent => false,
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

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, problem } = self;
        match problem {
            Problem::Unreachable(reason) => write!(f, "cannot reach Redis at {address}: {reason}"),
            Problem::Timeout(timeout) => {
                write!(
                    f,
                    "cannot reach Redis at {address}: no connection within {} s",
                    timeout.as_secs()
                )
            }
            Problem::NotRedis => {
                write!(f, "the server at {address} is no Redis: its reply does not parse")
            }
            Problem::NoPassword => {
                write!(
                    f,
                    "Redis at {address} requires a password: write :PASSWORD@ before the host"
                )
            }
            Problem::WrongPassword => {
                write!(f, "Redis at {address} refused the user name or the password")
            }
            Problem::Refused { reason, .. } => {
                write!(f, "Redis at {address} refused a command of the channel: {reason}")
            }
            Problem::Closed => write!(f, "Redis at {address} closed the connection"),
            Problem::Silent => {
                write!(f, "Redis at {address} has not replied for {} s", SILENCE_MAX.as_secs())
            }
        }
    }
}

impl Error for ConnectionError {}

impl From<ConnectionError> for ChannelError {
    fn from(error: ConnectionError) -> Self {
        match error.problem.is_permanent() {
            true => Self::Misconfigured { source: error.into() },
            false => Self::Unavailable { source: error.into() },
        }
    }
}
