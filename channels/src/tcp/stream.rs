//! A connection, plain or under TLS, and its halves.

use std::io::{self, IoSlice};
#[cfg(feature = "tls")]
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use tokio::{
    io::ReadHalf,
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};
#[cfg(feature = "tls")]
use tokio::{
    io::{AsyncReadExt, AsyncWrite, Join, Take, WriteHalf, join, split},
    task::unconstrained,
};
use tokio_util::either::Either;

/// TCP whose bytes are counted until the peer is authenticated.
#[cfg(feature = "tls")]
pub(super) type CountedStream = Join<Take<OwnedReadHalf>, OwnedWriteHalf>;
#[cfg(feature = "tls")]
pub(super) type TlsStream = tokio_rustls::TlsStream<CountedStream>;
/// Stands for TLS, and is never made.
#[cfg(not(feature = "tls"))]
type TlsStream = tokio::io::Empty;

/// A connection whose handshake is done: plain, or under TLS.
pub(super) type Stream = Either<TcpStream, Box<TlsStream>>;
/// The receiving half.
pub(crate) type Reader = Either<OwnedReadHalf, ReadHalf<TlsStream>>;

/// The bytes that a connection may bring before its peer is authenticated.
#[cfg(feature = "tls")]
pub(super) fn counted(stream: TcpStream, bytes_max: u64) -> CountedStream {
    let (read, write) = stream.into_split();
    join(read.take(bytes_max), write)
}

/// The halves of an authenticated connection, which may bring any number of bytes.
pub(super) fn halves(stream: Stream) -> (Reader, Writer) {
    match stream {
        Either::Left(stream) => {
            let (read, write) = stream.into_split();
            (Either::Left(read), Writer::Plain(write))
        }
        #[cfg(feature = "tls")]
        Either::Right(mut stream) => {
            stream.get_mut().0.reader_mut().set_limit(u64::MAX);
            let (read, write) = split(*stream);
            (Either::Right(read), Writer::Tls(Mutex::new(write)))
        }
        #[cfg(not(feature = "tls"))]
        Either::Right(_) => unreachable!("TLS needs its feature"),
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
                let write = |context: &mut Context<'_>| {
                    Pin::new(&mut *lock(half)).poll_write_vectored(context, slices)
                };
                at_once(write).unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
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
                let flush =
                    |context: &mut Context<'_>| Pin::new(&mut *lock(half)).poll_flush(context);
                at_once(flush).map_or(Ok(false), |flushed| flushed.map(|()| true))
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

/// The output of one poll. It takes nothing from the budget of the calling task, which would leave
/// the rest to a task that may never run again.
#[cfg(feature = "tls")]
fn at_once<T>(poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let polled = pin!(unconstrained(poll_fn(poll))).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[cfg(feature = "tls")]
fn lock(half: &Mutex<WriteHalf<TlsStream>>) -> MutexGuard<'_, WriteHalf<TlsStream>> {
    half.lock().unwrap_or_else(PoisonError::into_inner)
}
