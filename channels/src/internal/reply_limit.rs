//! A limit for the bytes that a Redis may send without ending a reply.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest reply or publication of a Redis, in bytes: 8 MiB. A page of a listing has about one.
///
/// It bounds what a server can make this process allocate by a reply without an end.
pub const REPLY_BYTES_MAX: usize = 8 << 20;

/// How many bytes a Redis may send before the handshake is complete: 1 MiB.
pub const HANDSHAKE_BYTES_MAX: usize = 1 << 20;

/// The error of a longer one.
pub const TOO_LONG: &str =
    "reply too long: expected at most 8 MiB for a reply and 1 MiB for the handshake";

/// How many bytes may still be read before the next reply is whole. Clones share it.
#[derive(Clone, Debug)]
pub struct ReplyLimit(Arc<AtomicUsize>);

impl ReplyLimit {
    /// A limit for the bytes of the first replies together.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(bytes.into()))
    }

    /// Whether a reply was longer.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Starts the limit of the next reply: [`REPLY_BYTES_MAX`] bytes.
    pub fn renew(&self) {
        self.0.store(REPLY_BYTES_MAX, Ordering::Relaxed);
    }
}

/// A stream that fails once the limit is reached.
///
/// ```
/// use gaggle_channels::internal::reply_limit::{LimitedStream, ReplyLimit};
/// use tokio::io::AsyncReadExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limit = ReplyLimit::new(2);
/// let mut stream = LimitedStream::new(tokio::io::join(&b"+OK\r\n"[..], tokio::io::sink()), limit);
/// stream.read_u16().await.unwrap();
/// assert!(stream.read_u8().await.is_err());
/// # }
/// ```
#[derive(Debug)]
pub struct LimitedStream<S> {
    stream: S,
    limit: ReplyLimit,
    yield_after: usize,
    /// How many bytes were read since the task last yielded.
    read: usize,
}

impl<S> LimitedStream<S> {
    /// Limits the bytes that are read from `stream`.
    pub fn new(stream: S, limit: ReplyLimit) -> Self {
        Self { stream, limit, yield_after: usize::MAX, read: 0 }
    }

    /// Ends a read without a pause after about so many bytes, and wakes the task to read on.
    #[must_use]
    pub fn yield_after(self, bytes: usize) -> Self {
        Self { yield_after: bytes, ..self }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= self.yield_after {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let left = self.limit.0.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::Error::other(TOO_LONG)));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let read = buffer.filled().len() - before;
        self.limit.0.store(left.saturating_sub(read), Ordering::Relaxed);
        self.read = if polled.is_pending() { 0 } else { self.read.saturating_add(read) };
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
