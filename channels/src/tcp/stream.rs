//! A connection, plain or under TLS, and its halves.

#[cfg(feature = "tls")]
use std::{
    future::poll_fn,
    sync::{Mutex, MutexGuard, PoisonError},
    task::Waker,
};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

#[cfg(feature = "tls")]
use tokio::io::{AsyncReadExt, Join, ReadHalf, Take, WriteHalf, join, split};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// TCP whose bytes are counted until the peer is authenticated.
#[cfg(feature = "tls")]
pub(super) type Counted = Join<Take<OwnedReadHalf>, OwnedWriteHalf>;
#[cfg(feature = "tls")]
pub(super) type TlsStream = tokio_rustls::TlsStream<Counted>;

/// What carries a hello.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection whose handshake is done.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

/// The bytes that a connection may bring before its peer is authenticated.
#[cfg(feature = "tls")]
pub(super) fn counted(stream: TcpStream, bytes_max: u64) -> Counted {
    let (read, write) = stream.into_split();
    join(read.take(bytes_max), write)
}

impl Stream {
    pub(super) fn io(&mut self) -> &mut dyn Io {
        match self {
            Self::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream,
        }
    }

    /// The halves of an authenticated connection, which may bring any number of bytes.
    pub(super) fn into_halves(self) -> (Reader, Writer) {
        match self {
            Self::Plain(stream) => {
                let (read, write) = stream.into_split();
                (Reader::Plain(read), Writer::Plain(write))
            }
            #[cfg(feature = "tls")]
            Self::Tls(mut stream) => {
                stream.get_mut().0.reader_mut().set_limit(u64::MAX);
                let (read, write) = split(*stream);
                (Reader::Tls(read), Writer::Tls(Mutex::new(write)))
            }
        }
    }
}

/// The receiving half.
pub(crate) enum Reader {
    Plain(OwnedReadHalf),
    #[cfg(feature = "tls")]
    Tls(ReadHalf<TlsStream>),
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(context, buffer),
            #[cfg(feature = "tls")]
            Self::Tls(half) => Pin::new(half).poll_read(context, buffer),
        }
    }
}

/// The sending half. Only one caller at a time may use it, and none during
/// [`writable`](Self::writable): TLS keeps one waker.
pub(crate) enum Writer {
    Plain(OwnedWriteHalf),
    #[cfg(feature = "tls")]
    Tls(Mutex<WriteHalf<TlsStream>>),
}

impl Writer {
    /// Takes as many bytes as it can at once, like a socket. Under TLS some of them may stay in its
    /// buffer, for [`try_flush`](Self::try_flush).
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(half) => half.try_write_vectored(slices),
            #[cfg(feature = "tls")]
            Self::Tls(half) => {
                let mut context = Context::from_waker(Waker::noop());
                match Pin::new(&mut *lock(half)).poll_write_vectored(&mut context, slices) {
                    Poll::Ready(written) => written,
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Sends what TLS has in its buffer, as far as the socket takes it at once. Returns whether
    /// that was all.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            #[cfg(feature = "tls")]
            Self::Tls(half) => {
                let mut context = Context::from_waker(Waker::noop());
                match Pin::new(&mut *lock(half)).poll_flush(&mut context) {
                    Poll::Ready(flushed) => flushed.map(|()| true),
                    Poll::Pending => Ok(false),
                }
            }
        }
    }

    /// Waits until more can be written; under TLS, until its buffer is sent.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(half) => half.writable().await,
            #[cfg(feature = "tls")]
            Self::Tls(half) => {
                poll_fn(|context| Pin::new(&mut *lock(half)).poll_flush(context)).await
            }
        }
    }
}

#[cfg(feature = "tls")]
fn lock(half: &Mutex<WriteHalf<TlsStream>>) -> MutexGuard<'_, WriteHalf<TlsStream>> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}
