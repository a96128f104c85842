//! The sending half of a socket, which is written to without waiting.

use std::io::{self, IoSlice};

use tokio::net::tcp;

#[derive(Debug)]
pub(crate) enum Writer {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(unix)]
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only a Redis has a Unix socket")
    )]
    Unix(tokio::net::unix::OwnedWriteHalf),
}

impl Writer {
    /// Writes as much as the socket takes at once, in one system call. Returns how many bytes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when it takes none now; others when it will take no more.
    pub(crate) fn try_write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(pieces),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write_vectored(pieces),
        }
    }

    /// Waits until the socket may take more. Cancel safe.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            #[cfg(unix)]
            Self::Unix(stream) => stream.writable().await,
        }
    }
}
