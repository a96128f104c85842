//! The side of a socket that is written to, without waiting.

use std::io::{self, IoSlice};

use tokio::net::tcp;

/// The side of a connection that is written to, without waiting.
#[derive(Debug)]
pub(crate) enum Writer {
    /// Of a TCP connection.
    Tcp(tcp::OwnedWriteHalf),
    /// Of a Unix socket.
    #[cfg(unix)]
    Unix(tokio::net::unix::OwnedWriteHalf),
}

impl Writer {
    /// Writes what the socket takes at once; how many bytes that was.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when it takes none now; others when it will take no more.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// As [`try_write`](Self::try_write), of several pieces in one call of the system.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(pieces),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write_vectored(pieces),
        }
    }

    /// Waits until the socket may take more.
    ///
    /// # Errors
    ///
    /// What the system said of the socket.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            #[cfg(unix)]
            Self::Unix(stream) => stream.writable().await,
        }
    }
}
