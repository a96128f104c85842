//! The server's side of TLS, for clients without a certificate.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
pub use tokio_rustls::server::TlsStream as ServerStream;

use super::{files, provider, reason::reason};
use crate::ChannelError;

/// The server's side of TLS 1.2 and 1.3, for HTTP/2 and HTTP/1.1.
#[derive(Debug)]
pub struct TlsServer {
    cert: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl TlsServer {
    /// Reads the file of the server's certificate, followed by those of its intermediate
    /// authorities, and the file of its private key. Other users of the machine must not be able to
    /// read the key.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] of the field `tls_cert` or `tls_key`, with the file and the
    /// remedy.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, ChannelError> {
        let (cert, key) = (cert.into(), key.into());
        let config = RwLock::new(read(&cert, &key)?);
        Ok(Self { cert, key, config })
    }

    /// Reads the files again, for later connections.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the certificate stays as it was.
    pub fn reload(&self) -> Result<(), ChannelError> {
        let config = read(&self.cert, &self.key)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Shakes hands as a server.
    ///
    /// # Errors
    ///
    /// Those of the stream, and of the handshake with [its reason](reason()) as the text.
    pub async fn accept<S>(&self, stream: S) -> io::Result<ServerStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let accepted = tokio_rustls::TlsAcceptor::from(config).accept(stream).await;
        accepted.map_err(|error| io::Error::new(error.kind(), reason(&error)))
    }
}

fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, ChannelError> {
    let cert = files::read(files::CERT, cert)?;
    let key = files::read_private(files::KEY, key)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of both versions")
        .with_no_client_auth()
        .with_single_cert(files::certificates(&cert)?, files::key(&key)?)
        .map_err(|error| files::misfit(&cert, &key, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
