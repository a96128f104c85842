//! What can go wrong between this process and its Redis: the private error behind
//! [`Error`](crate::Error)'s `source()`.

use std::sync::Arc;

use redis::RedisError;

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// Nothing was sent.
    #[error("cannot connect to redis")]
    Unreachable(#[source] Arc<RedisError>),
    /// Nothing was sent: the attempt to connect took too long.
    #[error("connecting to redis took too long")]
    ConnectTimeout,
    /// Sent, perhaps.
    #[error("the connection to redis broke before the answer")]
    Dropped(#[source] Arc<RedisError>),
    /// Sent, perhaps.
    #[error("redis has not answered in time")]
    Silent,
    /// Sent, perhaps; the caller had little time, which says nothing about the server.
    #[error("no time was left for redis to answer")]
    NoTime,
    /// The server has answered, and done nothing.
    #[error("redis refused the request")]
    Refused(#[source] Arc<RedisError>),
    /// The server has answered, and perhaps done something.
    #[error("redis answered something else: {0}")]
    Malformed(&'static str),
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
            Self::Refused(error) => matches!(
                error.code(),
                Some(
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
            ),
            Self::Malformed(_) => false,
            _ => true,
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
