//! Which server a handle uses: its address and login, and how it is found and reached.

use std::fmt;

use gaggle_channels::internal::url::check_login;
#[cfg(feature = "tls")]
use gaggle_channels::{
    ChannelError,
    tls::{TlsClient, TlsFiles},
};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

use super::{
    cluster::ClusterDial,
    dial::{Dial, Direct, Transport},
    query::QueryClient,
    sentinel::{SentinelDial, Sentinels},
};
use crate::{error::Error, options::check_option, redis::options::RedisOptions};

/// The server as it was given.
#[derive(Clone)]
pub(in crate::redis) struct Server {
    info: Result<ConnectionInfo, String>,
    /// Whether the URL asks for TLS.
    is_secure: bool,
    topology: Topology,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// How the server is found.
#[derive(Clone)]
enum Topology {
    /// The server has the address that the options were made from.
    Direct,
    Sentinels(Sentinels),
    /// The server is in a Cluster: that address is of one node, and these are of others.
    Cluster(Vec<String>),
}

/// How TLS to the server is made.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default)]
struct Tls {
    files: TlsFiles,
    /// The name in the server's certificate, if it is not the host.
    name: Option<String>,
}

impl Server {
    pub(in crate::redis) fn at_url(url: &str) -> Self {
        // The library is built without TLS, and takes no such URL.
        let rest = url.strip_prefix("rediss:");
        let plain = rest.map_or_else(|| url.to_owned(), |rest| format!("redis:{rest}"));
        // Never the URL itself: it may hold a password.
        let parse = |()| plain.into_connection_info().map_err(|error| error.to_string());
        Self::new(check_login(url).map_err(str::to_owned).and_then(parse), rest.is_some())
    }

    pub(in crate::redis) fn of(info: ConnectionInfo) -> Self {
        Self::new(Ok(info), false)
    }

    fn new(info: Result<ConnectionInfo, String>, is_secure: bool) -> Self {
        Self {
            info,
            is_secure,
            topology: Topology::Direct,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    pub(in crate::redis) fn set_sentinels(&mut self, master: String, addresses: Vec<String>) {
        self.topology = Topology::Sentinels(Sentinels::new(master, addresses));
    }

    pub(in crate::redis) fn set_sentinel_login(&mut self, user: Option<&str>, password: &str) {
        if let Topology::Sentinels(sentinels) = &mut self.topology {
            sentinels.set_login(user, password);
        }
    }

    pub(in crate::redis) fn set_cluster(&mut self, others: Vec<String>) {
        self.topology = Topology::Cluster(others);
    }

    #[cfg(feature = "tls")]
    pub(in crate::redis) fn set_tls_files(&mut self, files: TlsFiles) {
        self.tls.get_or_insert_default().files = files;
    }

    #[cfg(feature = "tls")]
    pub(in crate::redis) fn set_tls_name(&mut self, name: String) {
        self.tls.get_or_insert_default().name = Some(name);
    }

    pub(in crate::redis) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// Checks what needs no I/O, but for the URL.
    pub(in crate::redis) fn check(&self) -> Result<(), Error> {
        let has_none = matches!(&self.topology, Topology::Sentinels(it) if it.is_empty());
        check_option("sentinels", !has_none, "none", "at least one address")
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
            _ => Ok((info, self.is_secure)),
        }
    }

    /// How to connect to the server, and the scheme of its URLs.
    pub(in crate::redis) fn dial(
        &self,
        options: &RedisOptions,
    ) -> Result<(Box<dyn Dial>, &'static str), Error> {
        let (info, is_secure) = self.info()?;
        let transport = Transport::new(options.connect_timeout, options.clock.clone());
        let transport = self.secure(transport, is_secure)?;
        if !transport.is_plain() && matches!(info.addr(), ConnectionAddr::Unix(_)) {
            return Err(invalid("TLS".into(), "a host: a Unix socket has no TLS"));
        }
        let scheme = transport.scheme();
        let dial: Box<dyn Dial> = match &self.topology {
            Topology::Direct => Box::new(Direct::new(info.addr().clone(), transport)),
            Topology::Sentinels(sentinels) => {
                let queries = QueryClient::new(sentinels.login(), transport);
                Box::new(SentinelDial::new(sentinels.clone(), queries))
            }
            Topology::Cluster(nodes) => {
                let queries = QueryClient::new(info.redis_settings(), transport);
                Box::new(ClusterDial::new(&info, nodes, options.namespace.clone(), queries)?)
            }
        };
        Ok((dial, scheme))
    }

    #[cfg(feature = "tls")]
    fn secure(&self, transport: Transport, is_secure: bool) -> Result<Transport, Error> {
        let tls = self.tls.clone().or_else(|| is_secure.then(Tls::default));
        let Some(Tls { files, name }) = tls else { return Ok(transport) };
        let client = TlsClient::new(&files).map_err(|error| match error {
            ChannelError::InvalidOptions { field, problem } => {
                Error::InvalidOptions { field, value: "a file".into(), limit: problem }
            }
            error => invalid(error.to_string(), URL),
        })?;
        Ok(transport.with_tls(client, name))
    }

    #[cfg(not(feature = "tls"))]
    fn secure(&self, transport: Transport, is_secure: bool) -> Result<Transport, Error> {
        match is_secure {
            true => Err(invalid("TLS".into(), "a program with the feature tls of this crate")),
            false => Ok(transport),
        }
    }
}

const URL: &str = "redis://[[user]:password@]host[:port][/db]";

pub(super) fn invalid(value: String, limit: &str) -> Error {
    Error::InvalidOptions { field: "url", value, limit: limit.into() }
}

/// Shows no URL: any part of an invalid one may be a part of a password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Server");
        #[cfg(feature = "tls")]
        shown.field("tls", &self.tls);
        shown.finish_non_exhaustive()
    }
}
