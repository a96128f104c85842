//! Why Redis cannot serve: the private causes of [`Error::Unavailable`](crate::Error).

use std::time::Duration;

use gaggle_channels::internal::redis_error::{Attempt, is_passing, no_password, reason};
use humantime::format_duration;
use redis::{RedisError, ServerError};

use crate::{client::backend::Cause, clock::Instant, error::UnavailableKind, printable::Printable};

/// The oldest server whose `PEXPIRE` knows `GT` and `LT`.
pub(super) const VERSION_MIN: u32 = 7;

/// Why there is no usable connection.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("cannot reach Redis at {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("the server at {address} did not answer with the Redis protocol")]
    NotRedis { address: String },
    /// Any other cause, which `text` names together with the address.
    #[error("{text}")]
    Other { kind: UnavailableKind, text: String },
}

impl ConnectionError {
    /// An operator has to change the server or the options.
    pub(super) fn misconfigured(text: impl Into<String>) -> Self {
        Self::Other { kind: UnavailableKind::Misconfigured, text: text.into() }
    }

    /// The server replied, and may serve later, as after a failover.
    pub(super) fn refused(text: impl Into<String>) -> Self {
        Self::Other { kind: UnavailableKind::Refused, text: text.into() }
    }

    /// No server replied.
    pub(super) fn silent(text: impl Into<String>) -> Self {
        Self::Other { kind: UnavailableKind::Unreachable, text: text.into() }
    }

    /// `what` did not come in time.
    pub(super) fn unreachable_within(address: String, what: &str, limit: Duration) -> Self {
        Self::Unreachable { address, reason: format!("{what} within {}", format_duration(limit)) }
    }

    pub(super) fn lost(address: &str, reason: &str) -> Self {
        Self::silent(format!("lost the connection to Redis at {address}: {reason}"))
    }

    pub(super) fn cluster_down(address: &str, reason: &str) -> Self {
        Self::refused(format!(
            "the Redis Cluster of {address} does not serve: {reason}; redis-cli --cluster check \
             finds the cause"
        ))
    }

    /// The server is a Sentinel, where a Redis is expected.
    pub(super) fn is_sentinel(address: &str, scheme: &str) -> Self {
        Self::misconfigured(format!(
            "the server at {address} is a Sentinel, which holds no keys: write \
             {scheme}+sentinel://{address}/MASTER"
        ))
    }

    /// The server replied to a command with this error.
    pub(super) fn of_command(address: &str, command: &str, error: &ServerError) -> Self {
        let reason = server_reason(error);
        match error.code() {
            "CLUSTERDOWN" => Self::cluster_down(address, &reason),
            "NOAUTH" => Self::misconfigured(no_password(address)),
            code => {
                let text = format!("Redis at {address} refused {command}: {reason}");
                match Refusal::of(code) {
                    Refusal::Permanent => Self::misconfigured(text),
                    _ => Self::refused(text),
                }
            }
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn tls_failed(address: &str, reason: &str) -> Self {
        let remedy = match reason.starts_with("certificate is not for") {
            true => "; tls_name is the name to expect in it",
            false => "",
        };
        Self::misconfigured(format!("TLS to Redis at {address} failed: {reason}{remedy}"))
    }

    #[cfg(feature = "tls")]
    pub(super) fn no_tls(address: &str) -> Self {
        Self::misconfigured(format!(
            "the server at {address} does not speak TLS: write redis in place of rediss"
        ))
    }

    /// Sorts an error of the client library that ended an attempt to connect.
    pub(super) fn of_attempt(address: String, error: &RedisError) -> Self {
        #[cfg(feature = "tls")]
        if gaggle_channels::internal::redis_error::is_of_tls(error) {
            return Self::tls_failed(&address, &reason(error));
        }
        match Attempt::of(error) {
            Attempt::NotRedis => Self::NotRedis { address },
            Attempt::Failed => Self::Unreachable { address, reason: reason(error) },
            attempt if attempt.is_permanent() => Self::misconfigured(attempt.text(&address, error)),
            attempt => Self::refused(attempt.text(&address, error)),
        }
    }

    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.kind(), self.to_string())
    }

    /// The error of several attempts that most needs an operator, or else this, the latest.
    pub(super) fn or_worse(self, before: Option<Self>) -> Self {
        before.filter(|before| before.rank() > self.rank()).unwrap_or(self)
    }

    fn rank(&self) -> u8 {
        match self.kind() {
            UnavailableKind::Misconfigured => 2,
            UnavailableKind::Refused => 1,
            _ => 0,
        }
    }

    fn kind(&self) -> UnavailableKind {
        match self {
            Self::Unreachable { .. } => UnavailableKind::Unreachable,
            Self::NotRedis { .. } => UnavailableKind::Misconfigured,
            Self::Other { kind, .. } => *kind,
        }
    }
}

/// What a server's error means for the request and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server does not know the script.
    NoScript,
    /// The same request may succeed later.
    Passing,
    /// The same, once a slot of the Cluster has moved: until then neither node has all keys of a
    /// script.
    Migrating,
    /// The request may succeed on another connection: another server may have the same name.
    OfConnection,
    /// An operator has to change the server, or the caller its request.
    Permanent,
}

impl Refusal {
    pub(super) const fn kind(self) -> UnavailableKind {
        match self {
            Self::Permanent => UnavailableKind::Misconfigured,
            _ => UnavailableKind::Refused,
        }
    }

    /// Sorts an error reply to a request on an open connection.
    pub(super) fn of_request(error: &ServerError) -> Self {
        let details = error.details().unwrap_or_default();
        // By the command in a script: a Cluster with `cluster-allow-reads-when-down` begins it.
        if error.code() == "ERR"
            && details.starts_with("Script attempted to execute a")
            && details.contains("while the cluster is down")
        {
            return Self::OfConnection;
        }
        // A script that has removed the last element of a key finds the key missing on a node that
        // its slot leaves.
        if error.code() == "ERR" && details.starts_with("Script attempted to access a non local") {
            return Self::Migrating;
        }
        Self::of(error.code())
    }

    /// Whether to log it: one passing and one permanent refusal in ten seconds.
    /// Other requests may succeed in between; with a full memory, unlocks do.
    pub(super) fn is_logged(self, now: Instant, next: &mut [Instant; 2]) -> bool {
        let next = match self {
            Self::Passing => &mut next[0],
            Self::Permanent => &mut next[1],
            _ => return false,
        };
        let is_due = now >= *next;
        if is_due {
            *next = now.after(Duration::from_secs(10));
        }
        is_due
    }

    pub(super) fn of(code: &str) -> Self {
        match code {
            "NOSCRIPT" => Self::NoScript,
            "READONLY" | "MASTERDOWN" | "MOVED" | "CLUSTERDOWN" => Self::OfConnection,
            "ASK" | "TRYAGAIN" => Self::Migrating,
            _ if is_passing(code) => Self::Passing,
            _ => Self::Permanent,
        }
    }
}

/// Whether the server is of a kind that does not know the command.
pub(super) fn is_unknown_command(error: &ServerError) -> bool {
    error.details().is_some_and(|text| text.starts_with("unknown command"))
}

pub(super) fn server_reason(error: &ServerError) -> String {
    match error.details().map(without_script) {
        Some(details) => format!("{} {}", error.code(), Printable(details)),
        None => error.code().to_owned(),
    }
}

/// Leaves out which script was refused in which line: `script: f0e1…, on @user_script:7.`
fn without_script(details: &str) -> &str {
    let is_hash = |rest: &str| rest.bytes().take_while(u8::is_ascii_hexdigit).count() == 40;
    match details.split_once(" script: ") {
        Some((text, rest)) if is_hash(rest) => text.trim_end_matches([',', '.']),
        _ => details,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's text may quote the password.
    #[test]
    fn refusal_shows_no_text_of_the_server() {
        let text = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'hunter2'";
        let expected = "the server at here:6379 does not know HELLO 3 (RESP3): expected a Redis 7 ";
        for (code, text) in [("ERR", text), ("ERR", "invalid request"), ("NOPROTO", "hunter2")] {
            let error = redis::make_extension_error(code.into(), Some(text.into()));
            let error = ConnectionError::of_attempt("here:6379".into(), &error);
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
            assert_eq!(error.kind(), UnavailableKind::Misconfigured);
        }
        let error = redis::make_extension_error("NOPERM".into(), Some(text.into()));
        let shown = ConnectionError::of_attempt("here:6379".into(), &error).to_string();
        assert_eq!(shown, "Redis at here:6379 refused HELLO: NOPERM");
    }

    #[test]
    fn reason_names_no_script() {
        let hash = "6b1bf486c81ceb7edf3c093f4c48582e38c0e791";
        let details =
            format!("No permissions to run 'pexpire', script: {hash}, on @user_script:9.");
        let reason = |details: &str| {
            let reply = format!("-NOPERM {details}\r\n");
            match redis::parse_redis_value(reply.as_bytes()) {
                Ok(redis::Value::ServerError(error)) => server_reason(&error),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(reason(&details), "NOPERM No permissions to run 'pexpire'");
        assert_eq!(reason("no script: none"), "NOPERM no script: none");
    }

    #[test]
    fn protected_mode_is_named() {
        let text = "Redis is running in protected mode because protected mode is enabled and ...";
        let error = redis::make_extension_error("DENIED".into(), Some(text.into()));
        let error = ConnectionError::of_attempt("here:6379".into(), &error);
        assert_eq!(error.kind(), UnavailableKind::Misconfigured);
        assert!(error.to_string().contains("it is in protected mode"), "{error}");
    }
}
