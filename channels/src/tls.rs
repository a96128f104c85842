//! TLS from PEM files or a shared secret: configurations, certificates, and why a handshake failed.

mod authority;
mod files;
#[cfg(feature = "tcp")]
pub(crate) mod member;
mod reason;
mod server;

use std::{io, path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig,
    crypto::{CryptoProvider, ring},
    pki_types::ServerName,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

#[cfg(feature = "tcp")]
pub use self::member::{TlsKeys, member_dns_name};
pub use self::{
    authority::{Authority, IssuedCertificate, Validity, generate_secret},
    reason::reason,
    server::{ServerStream, TlsServer},
};
use crate::ChannelError;

/// The PEM files of a client. By default the client trusts the authorities of the system, and has
/// no certificate.
///
/// ```
/// use gaggle_channels::tls::TlsFiles;
///
/// let files = TlsFiles::default().ca("ca.pem").cert("client.pem", "client-key.pem");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    ca: Option<PathBuf>,
    /// The certificate and its key.
    cert: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// Sets the file of the authorities that sign the certificates of the other side.
    #[must_use]
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Sets the file of the certificate of this side, followed by those of its intermediate
    /// authorities, and the file of its private key. Other users of the machine must not be able
    /// to read the key.
    #[must_use]
    pub fn cert(mut self, path: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.cert = Some((path.into(), key.into()));
        self
    }
}

/// The client's side of TLS 1.2 and 1.3. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    /// What an unknown authority is not.
    expected: &'static str,
}

impl TlsClient {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`ChannelError::InvalidOptions`] of the field `tls_ca`, `tls_cert` or `tls_key`, with the
    /// file and the remedy.
    pub fn new(files: &TlsFiles) -> Result<Self, ChannelError> {
        let roots = match &files.ca {
            Some(path) => files::roots(&files::read(files::CA, path)?)?,
            None => files::system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites of both versions")
            .with_root_certificates(roots);
        let config = match &files.cert {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = files::read(files::CERT, cert)?;
                let chain = files::certificates(&cert)?;
                let key = files::read_private(files::KEY, key)?;
                builder
                    .with_client_auth_cert(chain, files::key(&key)?)
                    .map_err(|error| files::misfit(&cert, &key, &error))?
            }
        };
        let expected = match files.ca {
            Some(_) => "not signed by one of tls_ca, or sent without its intermediate authorities",
            None => "not an authority of this system: set tls_ca to the authority's file",
        };
        Ok(Self { config: Arc::new(config), expected })
    }

    /// Negotiates this protocol (ALPN, RFC 7301), as `h2`. By default none is negotiated.
    #[must_use]
    pub fn alpn(mut self, protocol: &str) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols = vec![protocol.into()];
        self
    }

    /// Shakes hands as a client. The certificate of the other side must be valid for `name`, a DNS
    /// name or an IP address.
    ///
    /// # Errors
    ///
    /// Those of the stream, and of the handshake with [its reason](reason) as the text. A server
    /// that refuses the certificate of this side says so only at the first read.
    pub async fn connect<S>(&self, name: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let connector = TlsConnector::from(self.config.clone());
        connector.connect(name, stream).await.map_err(|error| {
            let reason = reason(&error).replace(reason::NOT_OF_CA, self.expected);
            io::Error::new(error.kind(), reason)
        })
    }
}

/// Whether a text is a DNS name or an IP address, as [`TlsClient::connect`] needs it.
#[must_use]
pub fn is_server_name(text: &str) -> bool {
    ServerName::try_from(text).is_ok()
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
