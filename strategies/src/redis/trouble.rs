//! What can go wrong between this process and its Redis: the private error behind
//! [`Error`](crate::Error)'s `source()`.

use std::{error::Error as StdError, fmt, sync::Arc};

use redis::RedisError;

use crate::{Error, UnavailableKind};

#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// Nothing was sent.
    Unreachable(Arc<RedisError>),
    /// Nothing was sent: the attempt to connect took too long.
    ConnectTimeout,
    /// Sent, perhaps.
    Dropped(Arc<RedisError>),
    /// Sent, perhaps.
    Silent,
    /// Sent, perhaps; the caller had little time, which says nothing about the server.
    NoTime,
    /// The server has answered, and done nothing.
    Refused(Arc<RedisError>),
    /// The server has answered, and perhaps done something.
    Malformed(&'static str),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable(_) => "cannot connect to redis",
            Self::ConnectTimeout => "connecting to redis took too long",
            Self::Dropped(_) => "the connection to redis broke before the answer",
            Self::Silent => "redis has not answered in time",
            Self::NoTime => "no time was left for redis to answer",
            Self::Refused(_) => "redis refused the request",
            Self::Malformed(what) => return write!(f, "redis answered something else: {what}"),
        })
    }
}

impl StdError for Trouble {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            // A `RedisError` says the same as its own source: one of the two is enough.
            Self::Unreachable(error) | Self::Dropped(error) | Self::Refused(error) => {
                Some(error.source().unwrap_or(&**error))
            }
            _ => None,
        }
    }
}

/// Where a request stands that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Unsent,
    Unanswered,
    Answered,
}

impl Trouble {
    /// Sorts out what the client library said of a request that it was given.
    pub(super) fn of_request(error: RedisError) -> Self {
        if error.code().is_some() {
            Self::Refused(Arc::new(error))
        } else {
            Self::Dropped(Arc::new(error))
        }
    }

    pub(super) fn fate(&self) -> Fate {
        match self {
            Self::Unreachable(_) | Self::ConnectTimeout => Fate::Unsent,
            Self::Dropped(_) | Self::Silent | Self::NoTime | Self::Malformed(_) => Fate::Unanswered,
            Self::Refused(_) => Fate::Answered,
        }
    }

    /// Whether the same request may succeed later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Refused(error) => error.code().is_some_and(is_passing),
            Self::Malformed(_) => false,
            _ => true,
        }
    }

    /// The public kind.
    pub(super) fn kind(&self) -> UnavailableKind {
        match self {
            Self::Unreachable(error) | Self::Refused(error) => match error.code() {
                None => UnavailableKind::Unreachable,
                Some(code) if is_passing(code) => UnavailableKind::Refused,
                Some(_) => UnavailableKind::Misconfigured,
            },
            Self::Malformed(_) => UnavailableKind::Misconfigured,
            _ => UnavailableKind::Unreachable,
        }
    }

    /// Whether the connection is of no more use: broken, silent, or to a server that will not serve
    /// while another may be found behind the same name.
    pub(super) fn is_of_connection(&self) -> bool {
        match self {
            Self::Refused(error) => matches!(error.code(), Some("READONLY" | "MASTERDOWN")),
            Self::Dropped(_) | Self::Silent => true,
            _ => false,
        }
    }
}

/// Whether a refusal with this code can end without a change of the set-up.
fn is_passing(code: &str) -> bool {
    matches!(
        code,
        "LOADING"
            | "BUSY"
            | "READONLY"
            | "MASTERDOWN"
            | "CLUSTERDOWN"
            | "TRYAGAIN"
            | "OOM"
            | "NOREPLICAS"
            | "MISCONF"
            | "NOSCRIPT"
    )
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Self {
        Self::unavailable(trouble.kind(), trouble)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused(code: &str) -> Arc<RedisError> {
        Arc::new(redis::make_extension_error(code.into(), Some("some text".into())))
    }

    #[test]
    fn no_error_repeats_the_text_of_its_source() {
        let broken = || Arc::new(RedisError::from(io::Error::other("reset by peer")));
        let all = [
            Trouble::Unreachable(broken()),
            Trouble::ConnectTimeout,
            Trouble::Dropped(broken()),
            Trouble::Silent,
            Trouble::NoTime,
            Trouble::Refused(refused("NOPERM")),
            Trouble::Malformed("no number"),
        ];
        for trouble in all {
            let error = Error::from(trouble);
            let mut outer: &dyn StdError = &error;
            while let Some(inner) = outer.source() {
                assert!(!outer.to_string().contains(&inner.to_string()), "{outer}: {inner}");
                outer = inner;
            }
        }
    }

    #[test]
    fn kind_says_whether_a_refusal_can_pass() {
        let kinds = [
            (Trouble::Refused(refused("LOADING")), UnavailableKind::Refused),
            (Trouble::Refused(refused("OOM")), UnavailableKind::Refused),
            (Trouble::Refused(refused("NOPERM")), UnavailableKind::Misconfigured),
            (Trouble::Unreachable(refused("WRONGPASS")), UnavailableKind::Misconfigured),
            (Trouble::Unreachable(refused("LOADING")), UnavailableKind::Refused),
            (Trouble::ConnectTimeout, UnavailableKind::Unreachable),
            (Trouble::Silent, UnavailableKind::Unreachable),
            (Trouble::Malformed("no number"), UnavailableKind::Misconfigured),
        ];
        for (trouble, kind) in kinds {
            let text = trouble.to_string();
            let error = Error::from(trouble);
            assert!(matches!(&error, Error::Unavailable { kind: is, .. } if *is == kind), "{text}");
            assert_eq!(error.is_permanent(), kind == UnavailableKind::Misconfigured, "{text}");
        }
    }
}
