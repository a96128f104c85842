//! Which server a handle uses, and with which login.

use std::fmt;

use gaggle_channels::internal::url::check_login;
#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsFiles;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

use super::sentinel::Sentinels;
use crate::error::Error;

/// The server as it was given.
#[derive(Clone)]
pub(in crate::redis) struct Server {
    info: Result<ConnectionInfo, String>,
    /// Whether the URL asks for TLS.
    tls: bool,
    pub(in crate::redis) place: Place,
}

/// How the server is found.
#[derive(Clone)]
pub(in crate::redis) enum Place {
    /// The server has the address that the options were made from.
    Direct,
    Sentinels(Sentinels),
    /// The server is in a Cluster: that address is of one node, and these are of others.
    Cluster(Vec<String>),
}

/// How TLS to the server is made.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default)]
pub(in crate::redis) struct Tls {
    pub(in crate::redis) files: TlsFiles,
    /// The name in the server's certificate, if it is not the host.
    pub(in crate::redis) name: Option<String>,
}

impl Server {
    pub(in crate::redis) fn at_url(url: &str) -> Self {
        // The library is built without TLS, and takes no such URL.
        let rest = url.strip_prefix("rediss:");
        let plain = rest.map_or_else(|| url.to_owned(), |rest| format!("redis:{rest}"));
        // Never the URL itself: it may hold a password.
        let parse = |()| plain.into_connection_info().map_err(|error| error.to_string());
        let info = check_login(url).map_err(str::to_owned).and_then(parse);
        Self { info, tls: rest.is_some(), place: Place::Direct }
    }

    pub(in crate::redis) fn of(info: ConnectionInfo) -> Self {
        Self { info: Ok(info), tls: false, place: Place::Direct }
    }

    pub(in crate::redis) fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// Address and login, and whether TLS is asked for.
    pub(in crate::redis) fn info(&self) -> Result<(ConnectionInfo, bool), Error> {
        let info = self.info.clone().map_err(|problem| invalid(problem, URL))?;
        match info.addr() {
            ConnectionAddr::TcpTls { insecure: false, tls_params: None, .. } => Ok((info, true)),
            ConnectionAddr::TcpTls { .. } => {
                let limit = "RedisOptions::tls with the files, and checked certificates";
                Err(invalid("TLS parameters of a redis::Client".into(), limit))
            }
            _ => Ok((info, self.tls)),
        }
    }
}

pub(in crate::redis) const URL: &str = "redis://[[user]:password@]host[:port][/db]";

pub(in crate::redis) fn invalid(value: String, limit: &str) -> Error {
    Error::InvalidOptions { field: "url", value, limit: limit.into() }
}

/// Shows no URL: any part of an invalid one may be a part of a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
