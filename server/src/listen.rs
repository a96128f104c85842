//! The places of a server: TCP addresses, with TLS or without, and Unix sockets.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{
    fmt, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use futures_util::future::{BoxFuture, FutureExt as _, ready};
#[cfg(feature = "tls")]
use gaggle::channels::tls::TlsServer;
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

/// A place to listen: `ADDRESS:PORT` or `unix:PATH`.
///
/// ```
/// use gaggle_server::Listen;
///
/// let local: Listen = "localhost:7080".parse()?;
/// assert_eq!((local.to_string(), local.is_local()), ("127.0.0.1:7080".into(), true));
/// assert!("unix:/run/gaggle.sock".parse::<Listen>()?.is_local());
/// assert!(!"0.0.0.0:7080".parse::<Listen>()?.is_local());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An IP address with a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Listen {
    /// Whether only processes of this machine can connect.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Binds the place, in plain text.
    ///
    /// # Errors
    ///
    /// The place and the reason, as that another process listens there.
    pub async fn bind(&self) -> io::Result<Listener> {
        let bound = match self {
            Self::Tcp(address) => TcpListener::bind(address).await.map(Kind::Tcp),
            #[cfg(unix)]
            Self::Unix(path) => bind_unix(path).await,
            #[cfg(not(unix))]
            Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        bound.map(Listener).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen on {self}: {error}"))
        })
    }

    /// Binds the place, with TLS for TCP.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    #[cfg(feature = "tls")]
    pub async fn bind_tls(&self, tls: Arc<TlsServer>) -> io::Result<Listener> {
        Ok(match self.bind().await? {
            Listener(Kind::Tcp(listener)) => Listener(Kind::Tls(listener, tls)),
            other => other,
        })
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("expected a path, as in unix:/run/gaggle.sock".into()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        let expected = "expected an IP address or localhost with a port, as 127.0.0.1:7080, or \
                        unix:PATH";
        address.parse().map(Self::Tcp).map_err(|_| expected.to_owned())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A bound place. A Unix socket's file is removed with it.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    #[cfg(feature = "tls")]
    Tls(TcpListener, Arc<TlsServer>),
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

/// How the requests of a listener travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Plain,
    /// In plain text, over TCP within this machine.
    Loopback,
    Tls,
}

impl Transport {
    /// The scheme of URLs.
    pub(crate) fn scheme(self) -> &'static str {
        if self == Self::Tls { "https" } else { "http" }
    }
}

/// A stream between a client and a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    /// The URL at which clients reach it.
    #[must_use]
    pub fn url(&self) -> String {
        let listener = match &self.0 {
            Kind::Tcp(listener) => listener,
            #[cfg(feature = "tls")]
            Kind::Tls(listener, _) => listener,
            #[cfg(unix)]
            Kind::Unix(_, file) => return format!("http+unix://{}", file.0.display()),
        };
        let address = listener.local_addr().map(|it| it.to_string()).unwrap_or_default();
        format!("{}://{address}", self.transport().scheme())
    }

    pub(crate) fn transport(&self) -> Transport {
        match &self.0 {
            #[cfg(feature = "tls")]
            Kind::Tls(..) => Transport::Tls,
            Kind::Tcp(listener) if listener.local_addr().is_ok_and(|it| it.ip().is_loopback()) => {
                Transport::Loopback
            }
            _ => Transport::Plain,
        }
    }

    /// Accepts a connection. Its handshake is yet to be awaited.
    pub(crate) async fn accept(&self) -> io::Result<Handshake> {
        Ok(match &self.0 {
            Kind::Tcp(listener) => plain(accept_tcp(listener).await?),
            #[cfg(feature = "tls")]
            Kind::Tls(listener, tls) => {
                let (stream, tls) = (accept_tcp(listener).await?, tls.clone());
                async move { Ok(Box::new(tls.accept(stream).await?) as Box<dyn Stream>) }.boxed()
            }
            #[cfg(unix)]
            Kind::Unix(listener, _) => plain(listener.accept().await?.0),
        })
    }
}

/// The stream of a connection, once both sides have agreed on it.
pub(crate) type Handshake = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

fn plain(stream: impl Stream + 'static) -> Handshake {
    ready(Ok(Box::new(stream) as Box<dyn Stream>)).boxed()
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Removed as the listener is dropped.
#[cfg(unix)]
#[derive(Debug)]
struct SocketFile(PathBuf);

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(unix)]
async fn bind_unix(path: &Path) -> io::Result<Kind> {
    remove_stale(path).await?;
    let listener = UnixListener::bind(path)?;
    Ok(Kind::Unix(listener, SocketFile(path.to_owned())))
}

/// Removes the socket of a server that has ended.
#[cfg(unix)]
async fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let in_use = |problem: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
    if !file.file_type().is_socket() {
        return in_use("the file exists, and is not a socket");
    }
    match UnixStream::connect(path).await {
        Ok(_) => in_use("another server listens there"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}
