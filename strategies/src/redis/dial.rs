//! How a byte stream to the server is opened.

use std::{future::Future, io, pin::Pin};

use redis::ConnectionAddr;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

/// A stream of bytes to and from a server.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An attempt to open a stream; dropping it leaves nothing open.
pub(crate) type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens streams to one server. Tests and the simulator have their own.
pub(crate) trait Dial: Send + 'static {
    fn dial(&mut self) -> Dialing;

    /// Opens one more stream to a server that ended a plain one before it answered.
    fn again(&mut self) -> Option<Dialing> {
        None
    }

    /// The server's name in errors; never a password.
    fn address(&self) -> String;
}

impl Dial for ConnectionAddr {
    fn dial(&mut self) -> Dialing {
        let address = self.clone();
        Box::pin(async move {
            match address {
                Self::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), port)).await?;
                    stream.set_nodelay(true)?;
                    Ok(Box::new(stream) as Box<dyn Stream>)
                }
                #[cfg(unix)]
                Self::Unix(path) => {
                    Ok(Box::new(tokio::net::UnixStream::connect(path).await?) as Box<dyn Stream>)
                }
                _ => {
                    let problem = "only plain TCP and Unix sockets are supported";
                    Err(io::Error::new(io::ErrorKind::Unsupported, problem))
                }
            }
        })
    }

    fn again(&mut self) -> Option<Dialing> {
        matches!(self, Self::Tcp(..)).then(|| self.dial())
    }

    fn address(&self) -> String {
        self.to_string()
    }
}

/// Begins a TLS handshake by a malformed message, which every TLS server answers by an alert and no
/// Redis by anything.
pub(super) async fn speaks_tls(mut stream: Box<dyn Stream>) -> bool {
    const HELLO: [u8; 10] = [22, 3, 1, 0, 5, 1, 0, 0, 1, 0];
    const ALERT: u8 = 21;
    let mut answer = [0; 2];
    stream.write_all(&HELLO).await.is_ok()
        // A Redis ends the connection at its end.
        && stream.shutdown().await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && answer == [ALERT, 3]
}
