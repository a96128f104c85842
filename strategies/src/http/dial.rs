//! How a byte stream to a node is opened: over TCP or a Unix socket, with or without TLS.

use std::{future::Future, io, pin::Pin, time::Duration};

use gaggle_channels::internal::net::LookUps;
#[cfg(feature = "tls")]
use gaggle_channels::tls::TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};

use super::options::{HttpOptions, Node, host_and_port};
use crate::error::Error;
#[cfg(feature = "tls")]
use crate::error::UnavailableKind;

/// A stream of bytes to and from a node.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An attempt to open a stream; dropping it leaves nothing open.
pub type DialFuture = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens streams to the nodes of one service. Tests and the simulator have their own.
pub trait Dial: Send + 'static {
    /// How many nodes there are, at least one.
    fn nodes(&self) -> usize;

    /// Opens a stream to a node. An error of the kinds `InvalidData` and `InvalidInput` is one that
    /// an operator has to correct.
    fn dial(&mut self, node: usize) -> DialFuture;

    /// The address of a node in errors and in the `Host` of requests.
    fn address(&self, node: usize) -> String;

    /// Whether the streams have TLS.
    fn is_tls(&self) -> bool {
        false
    }
}

/// Opens sockets.
pub(super) struct Sockets {
    nodes: Vec<Node>,
    limit: Duration,
    look_ups: LookUps,
    /// TLS, and the name in the server's certificate, if it is not the host.
    #[cfg(feature = "tls")]
    tls: Option<(TlsClient, Option<String>)>,
}

impl Sockets {
    #[cfg_attr(not(feature = "tls"), expect(clippy::unnecessary_wraps))]
    pub(super) fn new(options: &HttpOptions) -> Result<Self, Error> {
        #[cfg(feature = "tls")]
        let tls = match &options.tls {
            Some(files) => {
                let client = TlsClient::new(files).map_err(|error| {
                    Error::unavailable(UnavailableKind::Misconfigured, error.to_string())
                })?;
                Some((client.alpn("h2"), options.tls_name.clone()))
            }
            None => None,
        };
        Ok(Self {
            nodes: options.nodes.clone(),
            limit: options.connect_timeout,
            look_ups: LookUps::default(),
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

impl Dial for Sockets {
    fn nodes(&self) -> usize {
        self.nodes.len()
    }

    fn dial(&mut self, node: usize) -> DialFuture {
        let (look_ups, limit) = (self.look_ups.clone(), self.limit);
        #[cfg(feature = "tls")]
        let tls = self.tls.clone();
        match self.nodes[node].clone() {
            Node::Tcp(address) => Box::pin(async move {
                let (host, port) = host_and_port(&address).expect("the options are checked");
                let stream = look_ups.connect((host.to_owned(), port), limit).await?;
                #[cfg(feature = "tls")]
                if let Some((client, name)) = tls {
                    let name = name.as_deref().unwrap_or(host);
                    return Ok(Box::new(client.connect(name, stream).await?) as _);
                }
                Ok(Box::new(stream) as _)
            }),
            #[cfg(unix)]
            Node::Unix(path) => {
                Box::pin(
                    async move { Ok(Box::new(tokio::net::UnixStream::connect(path).await?) as _) },
                )
            }
            #[cfg(not(unix))]
            Node::Unix(_) => Box::pin(async { Err(io::ErrorKind::Unsupported.into()) }),
        }
    }

    fn address(&self, node: usize) -> String {
        match &self.nodes[node] {
            Node::Tcp(address) => address.clone(),
            Node::Unix(path) => path.display().to_string(),
        }
    }

    #[cfg(feature = "tls")]
    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}
