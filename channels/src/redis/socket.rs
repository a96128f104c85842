//! A plain socket to a Redis, over TCP or Unix.

use std::io;

use redis::ConnectionAddr;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::writer::Writer;

pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;

impl Socket {
    pub(super) async fn open(address: &ConnectionAddr) -> io::Result<Self> {
        match address {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            _ => {
                let problem = "only plain TCP and Unix sockets are supported";
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    pub(super) fn into_stream(self) -> Box<dyn Stream> {
        match self {
            Self::Tcp(stream) => Box::new(stream),
            #[cfg(unix)]
            Self::Unix(stream) => Box::new(stream),
        }
    }

    pub(super) fn into_split(self) -> (Reader, Writer) {
        match self {
            Self::Tcp(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Writer::Tcp(writer))
            }
            #[cfg(unix)]
            Self::Unix(stream) => {
                let (reader, writer) = stream.into_split();
                (Box::new(reader), Writer::Unix(writer))
            }
        }
    }
}
