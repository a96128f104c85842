//! What an error of the client library of Redis means, and how it is shown: for the channel `Redis`
//! and the strategy `Redis`.

use std::{error::Error, io, sync::Arc};

use redis::{ErrorKind, RedisError};

/// Why an attempt to connect failed.
#[derive(Debug)]
pub enum Attempt {
    /// The server does not speak the protocol.
    NotRedis,
    /// The server does not know `HELLO 3`.
    NoResp3,
    /// The server requires a password.
    NoPassword,
    /// The server refused the user name or the password.
    WrongPassword,
    /// The server refused a command.
    Refused {
        /// The command's name.
        command: &'static str,
        /// The server's code, or a text without any part of the command.
        reason: String,
        /// Whether an operator has to change the server or the URL.
        permanent: bool,
    },
    /// The attempt failed without an error reply; [`reason`] says why.
    Failed,
}

/// The condition of [`Attempt::NoResp3`], and the remedy.
pub const NO_RESP3: &str = "does not know HELLO 3 (RESP3): expected a Redis 7 or later; a proxy \
                            before it cannot be used, give the address of the Redis itself";

const NO_DATABASE: &str = "DB index is out of range";
const ONE_DATABASE: &str = "SELECT is not allowed in cluster mode";
const TOO_MANY_CLIENTS: &str = "max number of clients";

impl Attempt {
    /// Sorts an error that ended an attempt to connect. Of an error reply only the code is shown: a
    /// server may quote the password in the text.
    #[must_use]
    pub fn of(error: &RedisError) -> Self {
        let refused = error.code().is_some() || error.kind() == ErrorKind::AuthenticationFailed;
        if !refused && matches!(error.kind(), ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
            return Self::NotRedis;
        }
        if !refused && error.kind() != ErrorKind::RESP3NotSupported {
            return Self::Failed;
        }
        let (command, reason, permanent) = match error.code() {
            Some("NOAUTH") => return Self::NoPassword,
            // Redis' own text, which has no part of the request.
            _ if error.detail() == Some(NO_DATABASE) => ("SELECT", NO_DATABASE, true),
            _ if error.detail() == Some(ONE_DATABASE) => ("SELECT", ONE_DATABASE, true),
            Some("WRONGPASS") => return Self::WrongPassword,
            None if error.kind() == ErrorKind::AuthenticationFailed => return Self::WrongPassword,
            _ if error.detail().is_some_and(|it| it.starts_with(TOO_MANY_CLIENTS)) => {
                ("HELLO", "it has as many clients as its maxclients allows", false)
            }
            Some("DENIED") => {
                ("HELLO", "DENIED: it is in protected mode; set a password there", true)
            }
            // Redis has no other error of this code for a login, and a proxy has no other code.
            None | Some("ERR" | "NOPROTO") => return Self::NoResp3,
            // Not the server's text, which may quote the command with its password.
            Some(code) => ("HELLO", code, !is_passing(code)),
        };
        Self::Refused { command, reason: reason.to_owned(), permanent }
    }

    /// The sentence for an error, with the address of the server and the remedy.
    #[must_use]
    pub fn text(&self, address: &str, error: &RedisError) -> String {
        match self {
            Self::NotRedis => {
                format!("the server at {address} did not answer with the Redis protocol")
            }
            Self::NoResp3 => format!("the server at {address} {NO_RESP3}"),
            Self::NoPassword => no_password(address),
            Self::WrongPassword => {
                format!("Redis at {address} refused the user name or the password")
            }
            Self::Refused { command, reason, .. } => {
                format!("Redis at {address} refused {command}: {reason}")
            }
            Self::Failed => format!("cannot reach Redis at {address}: {}", reason(error)),
        }
    }

    /// Whether an operator has to change the server or the URL.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Refused { permanent: false, .. } | Self::Failed)
    }
}

/// The sentence for a server that requires a password.
#[must_use]
pub fn no_password(address: &str) -> String {
    format!("Redis at {address} requires a password: write :PASSWORD@ before the host")
}

/// Whether the same request may succeed later after an error reply of this code, on this server or
/// on another one of the same name.
#[must_use]
pub fn is_passing(code: &str) -> bool {
    const PASSING: [&str; 11] = [
        "LOADING",
        "BUSY",
        "OOM",
        "NOREPLICAS",
        "MISCONF",
        "READONLY",
        "MASTERDOWN",
        "MOVED",
        "CLUSTERDOWN",
        "ASK",
        "TRYAGAIN",
    ];
    PASSING.contains(&code)
}

/// The condition in an operator's terms.
#[must_use]
pub fn reason(error: &RedisError) -> String {
    io_of(error).map_or_else(|| error.to_string(), io_reason)
}

/// The text of an error of the stream, with the same rules as [`reason`].
#[must_use]
pub fn io_reason(error: &io::Error) -> String {
    #[cfg(feature = "tls")]
    if error.kind() == io::ErrorKind::InvalidData {
        return crate::tls::reason(error);
    }
    match error.raw_os_error() {
        // Only a Unix socket has a path that can be missing.
        Some(_) if error.kind() == io::ErrorKind::NotFound => "no such socket".into(),
        // The system's own text ends with the error number, which this one omits.
        Some(_) if !error.kind().to_string().starts_with("uncategorized") => {
            error.kind().to_string()
        }
        _ => error.to_string(),
    }
}

/// Whether the peer ended TLS after the handshake, as a server does that requires a client
/// certificate.
#[cfg(feature = "tls")]
#[must_use]
pub fn is_of_tls(error: &RedisError) -> bool {
    io_of(error).is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

fn io_of(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}
