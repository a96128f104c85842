//! Which server a handle uses, and with which login.

use std::fmt;

#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsFiles;
use gaggle_channels::url::check_login;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisError};

use super::sentinel::Sentinels;
use crate::Error;

/// The server as it was given.
#[derive(Clone)]
pub(super) struct Server {
    source: Source,
    pub(super) place: Place,
}

/// How the server is found.
#[derive(Clone)]
pub(super) enum Place {
    /// At the address that the options were made from.
    Direct,
    Sentinels(Sentinels),
    /// In a Cluster: that address is of one node, and these are of others.
    Cluster(Vec<String>),
}

#[derive(Clone)]
enum Source {
    Url(String),
    Info(Box<ConnectionInfo>),
}

/// How TLS to the server is made.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub(super) files: TlsFiles,
    /// Of the server's certificate, if it is not the host.
    pub(super) name: Option<String>,
}

impl Server {
    pub(super) fn at_url(url: String) -> Self {
        Self { source: Source::Url(url), place: Place::Direct }
    }

    pub(super) fn of(info: ConnectionInfo) -> Self {
        Self { source: Source::Info(Box::new(info)), place: Place::Direct }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.place, Place::Cluster(_))
    }

    /// Address and login, and whether TLS is asked for.
    pub(super) fn info(&self) -> Result<(ConnectionInfo, bool), Error> {
        // Never the URL itself: it may hold a password.
        let wrong = |error: RedisError| invalid(error.to_string(), URL);
        let info = match &self.source {
            Source::Url(url) => {
                check_login(url).map_err(|problem| invalid(problem.to_owned(), URL))?;
                match url.strip_prefix("rediss:") {
                    Some(rest) => {
                        let plain = format!("redis:{rest}").into_connection_info();
                        return Ok((plain.map_err(wrong)?, true));
                    }
                    None => url.as_str().into_connection_info().map_err(wrong)?,
                }
            }
            Source::Info(info) => (**info).clone(),
        };
        match info.addr() {
            ConnectionAddr::TcpTls { insecure: false, tls_params: None, .. } => Ok((info, true)),
            ConnectionAddr::TcpTls { .. } => {
                let limit = "RedisOptions::tls with the files, and checked certificates";
                Err(invalid("TLS parameters of a redis::Client".into(), limit))
            }
            _ => Ok((info, false)),
        }
    }
}

pub(super) const URL: &str = "redis://[user:password@]host[:port][/db]";

pub(super) fn invalid(value: String, limit: &str) -> Error {
    Error::InvalidOptions { field: "url", value, limit: limit.into() }
}

/// Not shown: any part of an invalid URL may be a part of a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
