//! A stream that fails if the head of a request takes too long, however the client splits it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// How long the head of a request may take, from its first byte on; the first also from the
/// handshake on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// A stream whose heads are timed. Between requests it may be idle.
pub(crate) struct HeadTimeout<S> {
    stream: S,
    progress: Arc<Progress>,
    /// When the head that is being read must be complete.
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Default)]
struct Progress {
    /// A head was complete after the last read.
    is_complete: AtomicBool,
    /// A request has no response yet.
    in_request: AtomicBool,
}

impl Progress {
    fn in_request(&self) -> bool {
        self.in_request.load(Ordering::Acquire)
    }
}

/// Notes the requests of a connection.
pub(crate) struct Requests(Arc<Progress>);

/// A request whose head is complete, until its response is made.
pub(crate) struct InRequest(Arc<Progress>);

impl Requests {
    pub(crate) fn begin(&self) -> InRequest {
        self.0.is_complete.store(true, Ordering::Release);
        self.0.in_request.store(true, Ordering::Release);
        InRequest(self.0.clone())
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        self.0.in_request.store(false, Ordering::Release);
    }
}

impl<S> HeadTimeout<S> {
    pub(crate) fn new(stream: S) -> (Self, Requests) {
        let progress = Arc::<Progress>::default();
        let stream = Self { stream, progress: progress.clone(), timer: Some(timer()) };
        (stream, Requests(progress))
    }
}

fn timer() -> Pin<Box<Sleep>> {
    Box::pin(sleep_until(Instant::now() + HEAD_TIMEOUT))
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.progress.is_complete.swap(false, Ordering::AcqRel) || self.progress.in_request() {
            self.timer = None;
        } else if let Some(timer) = &mut self.timer
            && timer.as_mut().poll(context).is_ready()
        {
            let problem = "the head of a request took too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, problem)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before && !self.progress.in_request() {
            self.timer.get_or_insert_with(timer);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
